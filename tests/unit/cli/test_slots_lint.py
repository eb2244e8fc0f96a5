"""`slots lint` finds the agents below a directory and says in which file a fault is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from contextos.cli import run
from tests.unit.slots.planted import EXAMPLE

VOICE = Path(__file__).resolve().parents[1] / "slots" / "good" / "voice_writer"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two agents that are wired well, and what is no agent of this repository."""
    shutil.copytree(EXAMPLE, tmp_path / "extensions" / "outreach")
    shutil.copytree(VOICE, tmp_path / "extensions" / "voice")
    (tmp_path / "node_modules" / "agent" / "cinatra").mkdir(parents=True)
    (tmp_path / "node_modules" / "agent" / "cinatra" / "oas.json").write_text("{", encoding="utf-8")
    return tmp_path


def found(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    code = run(["slots", "lint", *map(str, paths), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == (2 if said["problems"] else 0)
    return [(Path(one["file"]).name, one["code"]) for one in said["problems"]]


def test_every_agent_below_a_directory_is_judged(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["slots", "lint", str(repository)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("/")[2] for line in lines] == ["oas.json: fine", "oas.yaml: fine"]


def test_a_fault_names_the_file_that_it_is_in(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outreach, voice = repository / "extensions" / "outreach", repository / "extensions" / "voice"
    (outreach / "package.json").write_text("{", encoding="utf-8")
    (voice / "package.json").unlink()
    assert found([repository], capsys) == [("package.json", "syntax"), ("oas.yaml", "no_package")]


def test_a_package_may_lie_beside_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(EXAMPLE / "cinatra" / "oas.json", tmp_path / "agent.json")
    assert found([tmp_path / "agent.json"], capsys) == [("agent.json", "no_package")]
    shutil.copy(EXAMPLE / "package.json", tmp_path)
    assert found([tmp_path / "agent.json"], capsys) == []


def test_a_package_further_up_is_somebody_elses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    shutil.copy(EXAMPLE / "package.json", tmp_path)
    shutil.copy(EXAMPLE / "cinatra" / "oas.json", tmp_path / "deep" / "oas.json")
    assert found([tmp_path], capsys) == [("oas.json", "no_package")]


def test_what_is_no_agent_or_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.md").write_text("# A note\n", encoding="utf-8")
    paths = [tmp_path / "empty", tmp_path / "note.md", tmp_path / "nowhere.json", EXAMPLE / "package.json"]
    assert found(paths, capsys) == [
        ("empty", "no_agent"), ("note.md", "not_an_agent"), ("nowhere.json", "unreadable"),
        ("package.json", "not_an_agent"),
    ]  # fmt: skip


def test_hidden_characters_are_shown_as_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {"component_type": "Flow", "metadata": {"cinatra": {"contextSlots": [{"slotId": "a\u202eb\x1b[2J"}]}}}
    (tmp_path / "oas.json").write_text(json.dumps(document), encoding="utf-8")
    assert run(["slots", "lint", str(tmp_path)]) == 2
    assert not {"\u202e", "\x1b"} & set(capsys.readouterr().out)
