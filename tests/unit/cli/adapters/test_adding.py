"""`adapters add`: a draft is shown and written, never over another, and text of the server is escaped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.servers.adapters import hostile
from tests.servers.hostile_agent import hostile_agent


def command(mode: str, folder: Path) -> list[str]:
    return ["--", *hostile(mode, folder)["command"]]


def test_a_draft_is_a_table_and_a_file_and_is_not_active(shop) -> None:
    said = shop.say("adapters", "add", "mcp", "lab", "--local", *command("plain", shop.path))
    assert (said.code, said.out.splitlines()[0].split()) == (0, ["tool", "kind", "highest", "mode", "why"])
    assert "write  destructive   unknown: at its strictest" in said.out
    assert json.loads((shop.path / "adapters" / "lab.json").read_text("utf-8"))["definition"]["adapter_id"] == "lab"
    assert "lab" not in [one["adapter_id"] for one in shop.say("adapters", "list", "--json").json["adapters"]]


def test_another_draft_never_replaces_a_file(shop) -> None:
    for expected in (0, 2):
        said = shop.say("adapters", "add", "mcp", "lab", "--local", *command("plain", shop.path))
        assert said.code == expected
    assert "--out" in said.err
    out = shop.say("adapters", "add", "mcp", "lab", "--local", "--out", "new.json", *command("plain", shop.path))
    assert (out.code, (shop.path / "new.json").is_file()) == (0, True)


def test_a_server_that_does_not_answer_leaves_no_file(shop) -> None:
    said = shop.say("adapters", "add", "mcp", "lab", "--local", *command("exits_at_once", shop.path), "--json")
    assert (said.code, said.json["error"]["code"]) == (4, "unavailable")
    assert "try again" not in said.json["error"]["detail"], "a person has to act first"
    assert not (shop.path / "adapters" / "lab.json").exists()


def test_an_agent_is_drafted_from_its_card_and_no_message_is_sent(shop) -> None:
    with hostile_agent() as agent:
        said = shop.say("adapters", "add", "a2a", "lab", "--url", agent.url, "--internal", "--read", "say")
        assert (said.code, agent.asked) == (0, [])
        assert f"calls go to {agent.url}/a2a" in said.out
        assert shop.say("adapters", "publish", "adapters/lab.json").code == 0
        assert "matches" in shop.say("adapters", "list").out
        agent.mode = "description"
        changed = shop.say("adapters", "list")
        assert (changed.code, "say changed; nothing is sent to it" in changed.out) == (1, True)
        assert "IGNORE" not in changed.out + changed.err


def test_an_agent_that_cannot_be_called_leaves_no_file_and_its_reason(shop) -> None:
    with hostile_agent() as agent:
        agent.mode = "another_host"
        said = shop.say("adapters", "add", "a2a", "lab", "--url", agent.url, "--internal", "--json")
    assert (said.code, "no JSON-RPC interface" in json.dumps(said.json)) == (2, True)
    assert "evil" not in said.out + said.err
    assert not (shop.path / "adapters" / "lab.json").exists()


def test_a_draft_that_a_person_interrupts_says_so_and_nothing_else(
    shop, command: tuple[list[str], dict[str, str]], tmp_path: Path
) -> None:
    words, environment = command
    started = tmp_path / "started"
    os.mkfifo(started)
    server = f"open({str(started)!r}, 'w').close(); import sys; sys.stdin.read()"
    asked = [
        *words,
        "adapters",
        "add",
        "mcp",
        "lab",
        "--local",
        "-w",
        str(shop.path),
        "--",
        sys.executable,
        "-c",
        server,
    ]
    with subprocess.Popen(asked, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        started.read_text()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert ("Traceback" in said, "never retrieved" in said) == (False, False), said
    assert not (shop.path / "adapters" / "lab.json").exists()
