"""The README keeps its word: a newcomer's five hops hold, its links lead somewhere, and its table is the journal's."""

from __future__ import annotations

import ast
import json
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.kinds import KINDS
from tests.docs.pages import ROOT, blocks, play, written

README = (ROOT / "README.md").read_text("utf-8")
PACKAGE = ROOT / "src" / "contextos"
PLANES = ("intelligence", "context", "decision", "action", "trust", "control")

LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)#\s]+)[^)]*\)")
HOP = re.compile(r"^(?P<number>\d)\. (?P<text>.+)$", re.MULTILINE)
TEST_PATH = re.compile(r"`(?P<path>tests/[\w/]+(?:\.py)?)`")
TEST_NAME = re.compile(r"`(?P<name>test_\w+\.py)`")
ROW = re.compile(
    r"^\| `(?P<line>[^|]+)` \| `(?P<kind>[a-z._]+)` \| (?P<ledger>\S+) \| (?P<source>\w+) \|$", re.MULTILINE
)


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def hops() -> list[str]:
    return [found["text"] for found in HOP.finditer(README.split("five hops:", 1)[1])]


def test_the_readme_describes_the_project_in_five_lines() -> None:
    said = README.split("\n\n")[1].splitlines()
    assert len(said) == 5
    assert all(line.endswith(".") for line in said)


def test_the_two_commands_are_the_first_that_a_reader_types() -> None:
    first = next(block for block in blocks(README) if block.language == "console")
    assert first.text == "$ make demo\n$ make test\n"


def test_five_hops_lead_from_the_readme_to_a_test() -> None:
    links = [[ROOT / found["target"] for found in LINK.finditer(hop)] for hop in hops()]
    assert len(links) == 5
    (_, [runtime], [contracts], [plane], [test]) = links
    assert "START HERE" in docstring(runtime)
    nouns = re.findall(r"^from contextos\.(contracts)\.", runtime.read_text("utf-8"), re.MULTILINE)
    assert contracts.parent.name in nouns, "the order leads to the nouns"
    assert f"from contextos.{plane.parent.name}" in runtime.read_text("utf-8"), "the order leads to the plane"
    assert str(test.relative_to(ROOT)) in docstring(plane), "the plane leads to its test"
    assert "def test_" in test.read_text("utf-8")


@pytest.mark.parametrize("plane", PLANES)
def test_each_plane_lists_its_responsibilities_and_the_tests_that_prove_them(plane: str) -> None:
    said = docstring(PACKAGE / plane / "__init__.py")
    assert "Owns" in said
    assert re.search(r"does not own", said, re.IGNORECASE)
    assert "Invariants" in said
    paths = [found["path"] for found in TEST_PATH.finditer(said)]
    assert paths, f"`{plane}` names no test"
    folders = {(ROOT / path).parent if path.endswith(".py") else ROOT / path for path in paths}
    for path in paths:
        assert (ROOT / path).exists(), f"`{plane}` names `{path}`, which is not there"
    for found in TEST_NAME.finditer(said):
        assert any((folder / found["name"]).exists() for folder in folders), f"`{plane}` names `{found['name']}`"


@pytest.mark.parametrize(
    "page", [*written(), *sorted((ROOT / "docs" / "adr").glob("*.md"))], ids=lambda page: page.name
)
def test_every_link_between_pages_and_files_leads_somewhere(page: Path) -> None:
    for found in LINK.finditer(page.read_text("utf-8")):
        target = found["target"]
        assert target.startswith("https://") or (page.parent / target).exists(), f"`{page.name}` links to `{target}`"


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    docs = ROOT / "docs"
    folders = (docs, docs / "reference", docs / "design")
    there = {str(path.relative_to(docs)) for folder in folders for path in folder.glob("*.md")}
    assert listed == there | {"adr/README.md"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The refund that the README explains, as `contextos runs show --json` reports it."""
    kept = tmp_path_factory.mktemp("demo") / "workspace"
    assert play(f"contextos demo --yes --keep {kept}", kept)[0] == 0
    with chdir(kept):
        code, said = play("contextos runs show req_large --workspace . --json", kept)
    assert code == 0
    shown: dict[str, Any] = json.loads(said)
    return shown


def test_each_line_of_the_story_is_of_the_entry_kind_that_the_readme_says(large: dict[str, Any]) -> None:
    rows = list(ROW.finditer(README))
    assert len(rows) >= 12
    story = " \n ".join(moment["text"] for moments in large["story"].values() for moment in moments)
    recorded = [entry["kind"] for entry in large["entries"]]
    for row in rows:
        assert row["line"] in story, f"the story has no line `{row['line']}`"
        assert row["kind"] in recorded, f"the run has no entry `{row['kind']}`"
        kind = KINDS[row["kind"]]
        assert row["ledger"] == kind.ledger.replace("none", "–")
        assert row["source"] == ("recorded" if kind.recorded else "derived")


def test_the_table_of_kinds_has_the_order_of_the_journal(large: dict[str, Any]) -> None:
    recorded = iter(entry["kind"] for entry in large["entries"])
    for row in ROW.finditer(README):
        assert row["kind"] in recorded, f"`{row['kind']}` stands too late in the table"
