"""The demo holds itself to what it promises."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from contextos.cli.demo import refunds
from tests.processes import ended


@pytest.mark.parametrize("payments", ["keyed", "lookup", "none"])
def test_the_demo_pays_each_refund_once_replays_equal_and_verifies(say, payments: str) -> None:
    said = say("demo", "--yes", "--json", "--payments", payments)
    assert said.code == 0
    summary = said.json
    assert summary["states"] == ["completed", "completed"]
    assert [one["amount_inr"] for one in summary["refunds"]] == [900, 4200]
    assert [one["equal"] for one in summary["replayed"]] == [True, True]
    assert summary["verified"]["streams"] == 4


def test_the_story_has_knowledge_permissions_effects_approvals_and_the_replay_command(say) -> None:
    said = say("demo")
    assert said.code == 0, "without a terminal the demo answers by itself"
    for title in ("What it knew", "What it was allowed", "What it did", "Who approved", "How to replay it"):
        assert f"\n{title}\n" in said.out
    assert "user_finance_lead_77 approved: the demo's answer; signed with their key" in " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 80
    assert "\x1b" not in said.out


def test_a_kept_workspace_has_the_books_that_the_demo_printed(kept: Path) -> None:
    with closing(sqlite3.connect(kept / "shop.db")) as books:
        assert books.execute("SELECT amount_inr FROM refunds ORDER BY number").fetchall() == [(900,), (4200,)]


def test_a_refund_that_moves_twice_makes_the_demo_fail(say, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = refunds._refunds
    monkeypatch.setattr(refunds, "_refunds", lambda workspace: (found := honest(workspace)) + found[1:])
    said = say("demo", "--json")
    assert said.code == 3
    assert "each refund moves once" in said.json["error"]["detail"]


def test_a_demo_whose_small_refund_is_gated_fails(say, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = refunds.make_workspace

    def make(path: Path, payments: str, *, witness: str):
        made = honest(path, payments, witness=witness)
        made.requests["small"] = {**made.requests["large"], "request_id": "req_small"}
        return made

    monkeypatch.setattr(refunds, "make_workspace", make)
    assert say("demo", "--json").code == 3


def test_a_directory_that_is_not_empty_is_left_alone(say, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert say("demo", "--yes", "--keep", str(tmp_path)).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("typed", "code", "found"), [("n\n", 1, "REJECTED"), ("y\n", 0, "DECIDED"), ("\x03", 130, "[y/n]")]
)
def test_on_a_terminal_the_person_is_asked(command, typed: str, code: int, found: str) -> None:
    start, environment = command
    child, terminal = pty.fork()
    if child == 0:
        # Where the tests run in the background, an interrupt is ignored, and that is inherited.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(start[0], [*start, "demo"], environment | {"TERM": "xterm"})
    shown = b""
    typed_already, patience = False, 30
    while True:
        if not select.select([terminal], [], [], 2)[0]:
            patience -= 1
            if patience == 0:
                os.kill(child, signal.SIGKILL)
            elif typed_already and typed == "\x03":
                # Readline shows its prompt before it waits, and an interrupt between the two only counts with the next
                # key. A person presses it again.
                os.write(terminal, typed.encode())
            continue
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
        if not typed_already and b"Approve it?" in shown:
            typed_already = True
            os.write(terminal, typed.encode())
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == code
    assert found in shown.decode()


def test_the_end_says_how_a_browser_shows_both_runs(say) -> None:
    assert "See both runs at http://localhost:8765/console: contextos demo --serve" in say("demo").out


def test_a_port_that_is_taken_is_refused_before_anything_runs(say, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = say("demo", "--serve", "--port", str(taken.getsockname()[1]), "--keep", str(tmp_path / "w"))
    assert (said.code, "address already in use" in said.err, (tmp_path / "w").exists()) == (2, True, False)


def test_one_command_serves_a_console_that_shows_both_runs_to_who_logs_in(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "contextos.cli", "demo", "--yes", "--json", "--serve", "--port", "0"]
    folders = {"XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    served = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **folders}
    )
    with ended(served) as process:
        assert process.stderr is not None
        address = person = token = ""
        while not token:
            said = process.stderr.readline()
            assert said, "it ended before it served"
            address = re.search(r"http://localhost:\d+/console", said)[0] if "console is at" in said else address
            person = re.search(r"token of (\w+)", said)[1] if "token of" in said else person
            token = said.split()[2] if person and said.split()[1:2] == [person] else ""
        origin = address.removesuffix("/console")
        with httpx.Client(base_url=origin, follow_redirects=True, headers={"Origin": origin}) as browser:
            page = browser.post("/console/login", data={"token": token, "to": "/console/runs"})
        process.terminate()
        runs = json.loads(process.communicate(timeout=60)[0])["runs"]
    assert (process.returncode, page.url.path) == (0, "/console/runs")
    assert [run in page.text for run in runs] == [True, True]
    assert list(tmp_path.glob("contextos-demo-*")) == [], "the workspace is removed"
