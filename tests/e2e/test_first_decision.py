"""`docs/first-decision.md`: its commands, typed by nobody but this test, in one bash session in an empty directory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from contextos.cli import run_command_line
from tests.docs.pages import ROOT, Typed, blocks, make_shim, typed
from tests.terminal import check_session, play

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "first-decision.md").read_text("utf-8")
CONCEPTS = ["tool", "pack", "policy", "approval", "run"]
MOST_LINES = 120
INSTALLED = "## Make a workspace"
"""Here begins what is typed once `contextos` is on the PATH; `test_installed_wheel.py` types what is before it too."""


def commands() -> list[Typed]:
    return [
        one
        for block in blocks(PAGE.partition(INSTALLED)[2])
        if block.language == "console"
        for one in typed(block.text)
    ]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Typed], list[tuple[int, str]], Path]:
    place = tmp_path_factory.mktemp("reader")
    (place / "empty").mkdir()
    found = commands()
    return found, play(found, place / "empty", [make_shim(place / "bin")]), place / "empty" / "shop"


def test_every_command_ends_and_says_what_the_page_shows(session) -> None:
    found, said, _ = session
    check_session(found, said)


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
