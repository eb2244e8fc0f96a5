"""`slots lint` finds the agents below a directory and says in which file a fault is."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from contextos.cli import run_command_line
from contextos_agentspec import agents
from tests.agentspec.planted import EXAMPLE

ROOT = Path(__file__).resolve().parents[4]
VOICE = ROOT / "tests" / "agentspec" / "good" / "voice_writer"
SELECTION = ROOT / "agentspec" / "contextos_agentspec" / "selection_agent.json"


@pytest.mark.parametrize("words", [["lint", str(EXAMPLE)], ["agent"], ["agent", "--json"]], ids=" ".join)
def test_without_the_extra_the_command_says_what_to_install(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "contextos_agentspec"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "contextos_agentspec", None)
    assert run_command_line(["slots", *words]) == 2
    said = capsys.readouterr()
    assert re.search(r"`contextos-agentspec` is not installed", said.err + said.out)
    assert "pip install ./agentspec" in said.err + said.out


def test_a_broken_installation_is_not_taken_for_a_missing_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "contextos_agentspec"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "contextos.context.slots.oas", None)
    assert run_command_line(["slots", "lint", str(EXAMPLE)]) == 70
    said = capsys.readouterr()
    assert "unexpected `ModuleNotFoundError`" in said.err
    assert "pip install" not in said.err + said.out


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two agents that are wired well, and what is no agent of this repository."""
    shutil.copytree(EXAMPLE, tmp_path / "extensions" / "outreach")
    shutil.copytree(VOICE, tmp_path / "extensions" / "voice")
    (tmp_path / "node_modules" / "agent" / "cinatra").mkdir(parents=True)
    (tmp_path / "node_modules" / "agent" / "cinatra" / "oas.json").write_text("{", encoding="utf-8")
    return tmp_path


def found(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    code = run_command_line(["slots", "lint", *map(str, paths), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == (2 if said["problems"] else 0)
    return [(Path(one["file"]).name, one["code"]) for one in said["problems"]]


def test_every_agent_below_a_directory_is_linted(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["slots", "lint", str(repository)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("/")[2] for line in lines] == ["oas.json: fine", "oas.yaml: fine"]


def test_a_pipe_that_is_named_like_an_agent_keeps_nobody_waiting(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(repository / "oas.json")
    (repository / "oas.yaml").mkdir()
    (repository / "oas.yml").symlink_to("nowhere")
    read = agents.read_file

    def no_pipe(path: Path) -> bytes:
        assert not path.is_fifo(), "reading it waits for a writer"
        return read(path)

    monkeypatch.setattr(agents, "read_file", no_pipe)
    assert found([repository], capsys) == [("oas.yml", "unreadable")]


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


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_selection_agent_is_printed_as_it_is_published(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["slots", "agent", *more]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(SELECTION.read_text("utf-8"))
    Path("agent.json").write_text(printed, encoding="utf-8")
    assert found([Path("agent.json")], capsys) == []


def test_a_file_that_is_no_agent_or_missing_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.md").write_text("# A note\n", encoding="utf-8")
    paths = [tmp_path / "empty", tmp_path / "note.md", tmp_path / "nowhere.json", EXAMPLE / "package.json"]
    assert found(paths, capsys) == [
        ("empty", "no_agent"),
        ("note.md", "not_an_agent"),
        ("nowhere.json", "unreadable"),
        ("package.json", "not_an_agent"),
    ]


def test_hidden_characters_are_shown_as_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {"component_type": "Flow", "metadata": {"cinatra": {"contextSlots": [{"slotId": "a\u202eb\x1b[2J"}]}}}
    (tmp_path / "oas.json").write_text(json.dumps(document), encoding="utf-8")
    assert run_command_line(["slots", "lint", str(tmp_path)]) == 2
    assert not {"\u202e", "\x1b"} & set(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["a\u202eb\x1b[2Jc", os.fsdecode(b"caf\xe9")])
def test_a_path_is_shown_as_it_may_be_shown(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(EXAMPLE, tmp_path / name)
    for code, paths in ((0, [tmp_path]), (2, [tmp_path / name / "nowhere"]), (2, [tmp_path / name / "README.md"])):
        assert run_command_line(["slots", "lint", *map(str, paths)]) == code
        said = capsys.readouterr()
        assert said.out
        assert said.err == ""
        assert not {"\u202e", "\x1b", "\udce9"} & set(said.out)
    assert found([tmp_path / name / "README.md"], capsys) == [("README.md", "syntax")]


def test_a_named_agent_is_linted_wherever_its_file_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "node_modules" / "outreach")
    assert found([tmp_path / "node_modules" / "outreach"], capsys) == []
    assert found([tmp_path], capsys) == [(tmp_path.name, "no_agent")]


BOMB = "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: [*b, *b, *b, *b]\n"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "not_an_agent"),
        (b"  \n\t\n", "syntax"),
        (b"\n\n", "not_an_agent"),
        (b"# a comment", "not_an_agent"),
        (b"[]", "not_an_agent"),
        (b"- a\n- b", "not_an_agent"),
        (b"null", "not_an_agent"),
        (b'"Flow"', "not_an_agent"),
        (b"{}", "not_an_agent"),
        (b'{"component_type": 1}', "not_an_agent"),
        (b'{"a": NaN}', "number_not_finite"),
        (b"[-Infinity]", "number_not_finite"),
        (b"a: .nan", "number_not_finite"),
        (b"a: 1.0e+999", "number_not_finite"),
        (b'{"a": 1e999}', "number_out_of_range"),
        (b'{"a": 1, "a": 1}', "duplicate_key"),
        (b"a: 1\na: 1", "duplicate_key"),
        (b"{a: 1, a: 2}", "syntax"),
        (BOMB.encode(), "alias"),
        (b"a: &a\n  b: *a", "alias"),
        (b"<<: {a: 1}", "merge_key"),
        (b"[" * 50_000, "too_deep"),
        (b'{"a":' * 40_000, "too_deep"),
        (b"- " * 100_000, "too_deep"),
        (b"a: " + b"{a: " * 100_000, "too_deep"),
        (b"? " * 100_000, "not_text"),
        (b"[" + b"1," * 200_000 + b"1]", "too_many_nodes"),
        (b"- 1\n" * 200_000, "too_many_nodes"),
        (b'{"a": "' + b"x" * (2 << 20) + b'"}', "too_large"),
        (b"a: " + b"x" * (2 << 20), "too_large"),
        (b'{"a": "\\ud800"}', "lone_surrogate"),
        (b'a: "\\ud800"', "syntax"),
        (b"\xff\xfea\x00", "not_utf8"),
        (b'{"a": "\xff"}', "not_utf8"),
        (b"\x00", "syntax"),
        (b"a: !!python/name:os.system", "tag"),
        (b"%", "syntax"),
        (b"a: " + b"9" * 5000, "number_too_long"),
        (b'{"a": ' + b"9" * 5000 + b"}", "integer_too_large"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_a_malformed_document_is_one_typed_answer(
    raw: bytes, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("oas.json", "oas.yaml"):
        (tmp_path / name).write_bytes(raw)
        assert found([tmp_path / name], capsys) == [(name, code)]
    shutil.copy(EXAMPLE / "cinatra" / "oas.json", tmp_path / "oas.json")
    (tmp_path / "package.json").write_bytes(raw)
    expected = "not_an_object" if code == "not_an_agent" else code
    if raw[:1] == b"{" and code == "not_an_agent":
        expected = "missing_dependency"
    assert found([tmp_path / "oas.json"], capsys) == [("package.json", expected)]


def test_a_file_of_a_hundred_megabytes_is_not_read_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "oas.json").open("wb") as file:
        file.truncate(100 << 20)
    assert found([tmp_path], capsys) == [("oas.json", "too_large")]
