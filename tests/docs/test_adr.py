"""Architecture decisions: numbered without gaps, in one form, and all of them in the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
FILE = re.compile(r"(?P<number>\d{4})-[a-z0-9]+(-[a-z0-9]+)*\.md")
INDEXED = re.compile(r"^- \[(?P<text>[^\]]+)\]\((?P<file>[^)]+)\)$", re.MULTILINE)
SECTIONS = ["Context", "Options", "Choice", "Cost"]


def findings(folder: Path) -> Iterator[str]:
    """Everything that is wrong with the folder, as sentences."""
    files = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    for number, path in enumerate(files, 1):
        match = FILE.fullmatch(path.name)
        if not match:
            yield f"`{path.name}` is not named `NNNN-title-in-words.md`"
        elif int(match["number"]) != number:
            yield f"`{path.name}` should have the number {number:04}; numbers have no gaps and no doubles"
        yield from form(path)
    expected = [f"- [{path.name[:4]} {title(path)}]({path.name})" for path in files]
    listed = [match.group() for match in INDEXED.finditer((folder / "README.md").read_text(encoding="utf-8"))]
    if listed != expected:
        yield "the index of `README.md` should read:\n" + "\n".join(expected)


def title(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[0].removeprefix("# ") if lines and lines[0].startswith("# ") else ""


def form(path: Path) -> Iterator[str]:
    if not title(path):
        yield f"`{path.name}` does not begin with `# Title`"
    parts = re.split(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if [heading.strip() for heading in parts[1::2]] != SECTIONS:
        yield f"`{path.name}` needs exactly the sections {SECTIONS}"
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        if not text.strip():
            yield f"`{path.name}` says nothing under `{heading}`"


def test_decisions_are_numbered_formed_and_indexed() -> None:
    found = list(findings(FOLDER))
    assert not found, "\n".join(found)


PAGE = "# One loop\n\n" + "\n".join(f"## {section}\n\nText.\n" for section in SECTIONS)
INDEX = "## Index\n\n- [0001 One loop](0001-one-loop.md)\n"


def write(folder: Path, name: str = "0001-one-loop.md", page: str = PAGE, index: str = INDEX) -> Path:
    (folder / name).write_text(page, encoding="utf-8")
    (folder / "README.md").write_text(index, encoding="utf-8")
    return folder


def test_a_page_in_order_is_left_alone(tmp_path: Path) -> None:
    assert list(findings(write(tmp_path))) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "0002-one-loop.md"}, "the number 0001"),
        ({"name": "0001_OneLoop.md"}, "is not named"),
        ({"index": "## Index\n"}, "should read"),
        ({"index": INDEX.replace("One loop", "Two loops")}, "should read"),
        ({"index": INDEX + "- [0002 Gone](0002-gone.md)\n"}, "should read"),
        ({"page": PAGE.removeprefix("# ")}, "begin with"),
        ({"page": PAGE.replace("## Cost", "## Price")}, "exactly the sections"),
        ({"page": PAGE.replace("## Options\n\nText.", "## Options\n")}, "says nothing under `Options`"),
        ({"page": ""}, "begin with"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, change: dict[str, str], said: str) -> None:
    assert said in "\n".join(findings(write(tmp_path, **change)))


def test_a_double_number_is_found(tmp_path: Path) -> None:
    write(write(tmp_path), name="0001-two-loops.md")
    assert "the number 0002" in "\n".join(findings(tmp_path))
