"""D26, files: pipes, unreadable and over-long names, null characters. Each command refuses them and waits for nobody.

A command that opened the pipe would wait for a writer for ever. The names never reach a store.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Shop

LONG = "x" * 5_000


@pytest.fixture
def names(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Names of files that cannot be read, each for another reason."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "to_pipe").symlink_to(tmp_path / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        bound.bind(str(tmp_path / "socket"))
        yield {
            "pipe": str(tmp_path / "pipe"),
            "a link to a pipe": str(tmp_path / "to_pipe"),
            "folder": str(tmp_path / "folder"),
            "loop": str(tmp_path / "loop"),
            "socket": str(tmp_path / "socket"),
            "missing": str(tmp_path / "missing"),
            "over-long name": str(tmp_path / LONG),
            "over-long path": "/".join([str(tmp_path), *["y" * 200] * 30]),
            "through a file": "/etc/hostname/below",
            "null": str(tmp_path / "a\0b"),
        }


COMMANDS = {
    "invoke": ["invoke", "{}"],
    "compile": ["compile", "{}"],
    "lint": ["pack", "lint", "{}"],
    "verify": ["verify", "{}"],
    "verify with a key": ["verify", "{}", "--trusted-key", "00" * 32],
    "verify with a witness": ["verify", "--witness", "{}"],
    "replay": ["replay", "{}"],
    "approve": ["approvals", "approve", "req_deny", "--as", "user_finance_lead_77", "--key", "{}"],
    "settle": ["runs", "settle", "req_deny", "--happened", "--evidence=a", "--as=user_operator_5", "--output", "@{}"],
    "slots lint": ["slots", "lint", "{}"],
    "slots resolve": ["slots", "resolve", "{}", "offeringContext", "--actor", "{}"],
    "slots add-revision": ["slots", "add-revision", "icp", "--org", "org_acme", "--file", "{}", "--by", "user_ann"],
    "slots serve": ["slots", "serve", "--actor", "{}"],
    "workspace": ["runs", "list", "--workspace", "{}"],
    "schemas --check": ["schemas", "--check", "--out", "{}"],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_refuses_a_file_that_cannot_be_read(shop: Shop, names: dict[str, str], name: str) -> None:
    for why, path in names.items():
        arguments = [one.replace("{}", path) for one in COMMANDS[name]]
        if "folder" in why and ("schemas" in arguments or "lint" in arguments[:2]):
            continue  # a directory is what these read
        said = shop.say(*arguments, "--json")
        assert said.code in ((1, 2) if name == "replay" else (2,)), (why, said)
        assert said.json.get("error") or said.json.get("problems"), (why, said)


def test_a_workspace_with_pipes_in_it_is_refused_and_waits_for_nobody(shop: Shop) -> None:
    for name in ("contextos.toml", "directory.json", "shop.py", "keys/runtime.json", "packs/support.json"):
        place = shop.path / name
        kept = place.read_bytes()
        place.unlink()
        os.mkfifo(place, 0o600)
        # A start reads no packs; `init` does.
        words = ["apply", *shop.by] if name.startswith("packs/") else ["invoke", shop.request("next")]
        said = shop.say(*words, "--json")
        assert said.code in (2, 4), (name, said)
        assert said.json["error"]["code"] != "defect", (name, said)
        place.unlink()
        place.write_bytes(kept)
        place.chmod(0o600)
    assert shop.say("runs", "list", "--json").code == 0


@pytest.mark.parametrize(
    "name", ["pipe", "folder", "loop", "over-long name", "over-long path", "through a file", "null"]
)
def test_an_export_goes_to_a_new_file_or_nowhere(shop: Shop, names: dict[str, str], name: str) -> None:
    said = shop.say("runs", "export", *shop.by, "req_small", "--out", names[name], "--json")
    assert said.code == 2, said
    assert said.json["error"]["code"] != "defect"
    assert "runs.exported" not in shop.say("verify", "--json").out


def test_schemas_and_demo_refuse_what_they_cannot_write(shop: Shop, names: dict[str, str]) -> None:
    for name in ("pipe", "loop", "over-long name", "over-long path", "through a file", "null"):
        for arguments in (["schemas", "--out", names[name]], ["demo", "--yes", "--keep", names[name]]):
            said = shop.say(*arguments, "--json")
            assert said.code == 2, (arguments[0], name, said)
