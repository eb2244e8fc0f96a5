"""`docs/first-decision.md`: its commands, typed by nobody but this test, in one bash session in an empty directory."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import time
from pathlib import Path

import pytest

from contextos.cli import run_command_line
from tests.docs.pages import ROOT, Typed, as_shown, blocks, make_shim, typed

PAGE = (ROOT / "docs" / "first-decision.md").read_text("utf-8")
CONCEPTS = ["tool", "pack", "policy", "approval", "run"]
MOST_LINES = 120
PATIENCE_S = 240

PROMPT = re.compile(r"\[y/N\]: $")
ANSWER = re.compile(r"\[y/N\]: (?P<typed>\w+)$", re.MULTILINE)
MARK = "\x1e"
"""Written after each command, around its exit code."""


def commands() -> list[Typed]:
    return [one for block in blocks(PAGE) if block.language == "console" for one in typed(block.text)]


def play(found: list[Typed], folder: Path, environment: dict[str, str]) -> list[tuple[int, str]]:
    """Run the commands in one bash on a terminal; exit code and what the terminal shows of each. Where a command asks,
    what the page types there is typed."""
    script = folder.parent / "session.sh"
    script.write_text("".join(f"{one.command}\nprintf '{MARK}%s{MARK}' $?\n" for one in found), "utf-8")
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve("/bin/bash", ["bash", "--noprofile", "--norc", str(script)], environment)
    shown, answered, until = "", 0, time.monotonic() + PATIENCE_S
    answers = [said["typed"] for one in found for said in ANSWER.finditer("\n".join(one.shown))]
    while True:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            read = os.read(terminal, 65_536)
        except OSError:
            break
        shown += read.decode()
        if not read:
            break
        if PROMPT.search(shown):
            assert answered < len(answers), f"the page does not answer\n{shown[-2000:]}"
            os.write(terminal, f"{answers[answered]}\n".encode())
            answered += 1
            shown += "\x00"
    os.waitpid(child, 0)
    os.close(terminal)
    parts = shown.replace("\x00", "").replace("\r\n", "\n").split(MARK)
    return [(int(code), said) for said, code in zip(parts[0::2], parts[1::2], strict=False)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Typed], list[tuple[int, str]], Path]:
    place = tmp_path_factory.mktemp("reader")
    (place / "empty").mkdir()
    shim = make_shim(place / "bin")
    environment = {
        "PATH": f"{shim}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
    }
    found = commands()
    return found, play(found, place / "empty", environment), place / "empty" / "shop"


def test_every_command_ends_and_says_what_the_page_shows(session) -> None:
    found, said, _ = session
    for one, (code, shown) in zip(found, said, strict=False):
        assert code == one.exit_code, f"`{one.command}` ended with {code}\n{shown}"
        assert not one.shown or as_shown(one.shown, shown), f"`{one.command}` says\n{shown}"
    assert len(said) == len(found), f"the session ended after `{found[len(said)].command}`"


def test_a_reader_sees_a_question_an_approval_a_record_and_an_equal_replay(
    session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same from the store that the session left, past the page."""
    _, _, shop = session
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.parent.parent / ".local" / "state"))
    monkeypatch.chdir(shop)

    def told(*words: str):
        assert run_command_line([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    gated = told("runs", "show", "s2")
    kinds = [entry["kind"] for entry in gated["entries"]]
    dispatched = [place for place, kind in enumerate(kinds) if kind == "tool.dispatching"]
    assert len(dispatched) == 3
    assert dispatched[1] < kinds.index("approval.asked") < kinds.index("approval.answered") < dispatched[2]
    assert gated["record"]["status"] == "DECIDED"
    [approval] = gated["record"]["approvals"]
    assert (approval["approver"], approval["assertion"]) == ("olga", "jws")
    assert told("runs", "show", "s1")["record"]["approvals"] == []
    denied = told("runs", "show", "s3")["record"]
    assert (denied["status"], denied["outcome"]) == ("REJECTED", "denied")
    assert told("replay", "s2")["replayed"][0]["record_hash"] == gated["record"]["record_hash"]
    cluster = json.loads((shop / "cluster.json").read_text("utf-8"))
    live = {name: one["live"]["prod"] for name, one in cluster["services"].items()}
    assert live == {"checkout": "b41", "newsletter": "b6", "payroll": "b9"}
    assert len(cluster["done"]) == 2, "each rollback happened once"


def test_the_page_needs_few_lines_and_five_concepts(capsys: pytest.CaptureFixture[str]) -> None:
    table = PAGE.split("## Five concepts")[1].split("\n## ")[0]
    concepts = re.findall(r"^\| \*\*(\w+)\*\* \|", table, re.MULTILINE)
    example = ROOT / "examples" / "deploy_rollback"
    written = {
        name: sum(bool(line.strip()) for line in (example / name).read_text("utf-8").splitlines())
        for name in ("deploy.py", "packs/deploy.yaml", "agent.py", "contextos.toml")
    }
    with capsys.disabled():
        told = ", ".join(f"{name} {count}" for name, count in written.items())
        print(f"\nfirst decision: {len(commands())} commands, {sum(written.values())} lines ({told}), ", end="")
        print(f"{len(concepts)} concepts ({', '.join(concepts)})")
    assert concepts == CONCEPTS
    assert sum(written.values()) <= MOST_LINES
