"""`key list` shows every key with its times, and `key rotate` says what took the place of what."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import acting
from contextos.cli.acting import person_key
from contextos.trust.seal import PURPOSES


def test_a_rotation_shows_in_the_list(shop) -> None:
    new = shop.say("key", "rotate", "--purpose", "export", *shop.by, "--json").json
    lines = [line for line in shop.say("key", "list").out.splitlines() if line.startswith("export")]
    assert [line.split()[1] for line in lines] == [new["kid"], new["old_kid"]]
    assert (lines[0].split()[3], lines[1].split()[3][:2]) == ("-", "20")
    said = shop.say("key", "rotate", "--purpose", "export", *shop.by)
    assert f"{new['kid']} is retired at 20" in said.out


def test_a_new_key_of_a_person_signs_for_them_once_the_directory_lists_it(shop: Any) -> None:
    path = shop.path / "keys" / "new.key"
    public = shop.say("key", "new", str(path), "--json").json
    assert path.stat().st_mode & 0o777 == 0o600
    listed = json.loads((shop.path / "directory.json").read_text("utf-8"))
    for one in listed["tenant_acme_prod"]["approvers"]:
        if one["approver_id"] == "user_operator_5":
            one["keys"] = [public]
    (shop.path / "directory.json").write_text(json.dumps(listed), "utf-8")
    by = ("--by", "user_operator_5", "--key", str(path))
    assert shop.say("runs", "close", "req_small", "--reason", "filed", *by).code == 0


def test_a_key_that_exists_stays_as_it_is(shop: Any) -> None:
    before = {path: path.read_bytes() for path in (shop.path / "keys").iterdir()}
    assert shop.say("key", "new", str(shop.path / "keys" / "user_operator_5.key")).code == 2
    assert "it exists" in shop.say("key", "new", str(shop.path / "keys"), "--runtime").err
    assert {path: path.read_bytes() for path in (shop.path / "keys").iterdir()} == before


def test_encrypted_keys_of_a_runtime_open_a_workspace(shop: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    made = shop.say(
        *("key", "new", str(tmp_path / "sealed"), "--runtime", "--pkcs8", "--passphrase-file", str(secret), "--json")
    )
    assert {one["purpose"] for one in made.json["keys"]} == set(PURPOSES)
    assert all(b"ENCRYPTED" in path.read_bytes() for path in (tmp_path / "sealed").glob("*.pem"))
    assert "correct horse" not in made.out
    settings = 'witness = "off"\nunsafe = ["unsafe_local_directory"]\n[keys]\nkind = "pkcs8"\n'
    settings += f'path = "{tmp_path}/sealed"\n'
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "contextos.toml").write_text(f'{settings}passphrase_file = "{secret}"\n', "utf-8")
    (tmp_path / "w" / "directory.json").write_bytes((shop.path / "directory.json").read_bytes())
    assert shop.say("apply", *shop.by, "-w", str(tmp_path / "w")).code == 0
    listed = shop.say("key", "list", "-w", str(tmp_path / "w"), "--json").json["keys"]
    assert [one["kid"] for one in listed] == [one["kid"] for one in made.json["keys"]]


def test_the_passphrase_is_asked_for_twice_at_the_terminal_and_hidden(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def prompt(_text: str, **how: Any) -> str:
        asked.append(how)
        return "correct horse"

    monkeypatch.setattr(acting.typer, "prompt", prompt)
    monkeypatch.setattr(acting, "_has_terminal", lambda: True)
    path = tmp_path / "ann.pem"
    assert shop.say("key", "new", str(path), "--pkcs8").code == 0
    assert person_key(path)
    assert [(one["hide_input"], one["confirmation_prompt"]) for one in asked] == [(True, True), (True, False)]


def test_what_is_typed_at_a_terminal_is_not_shown(command: Any, tmp_path: Path) -> None:
    start, environment = command
    child, terminal = pty.fork()
    if child == 0:
        os.execve(start[0], [*start, "key", "new", str(tmp_path / "ann.pem"), "--pkcs8"], environment)
    shown, prompts, idle = b"", [b"New passphrase: ", b"confirmation: "], 0
    while idle < 30:
        if not select.select([terminal], [], [], 1)[0]:
            idle += 1
            continue
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
        if prompts and prompts[0] in shown:
            # The terminal is silent from the blank behind the colon on; what is typed earlier is thrown away.
            prompts.pop(0)
            os.write(terminal, b"correct horse\n")
    if idle == 30:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"correct horse" not in shown
    assert b"public_key" in shown
