"""Whatever code and docs cite is in this repository: files, headings and decisions.

A citation is a path below a folder of the repository, a page named alone (`security.md`), a heading behind one
(`docs/design/contracts.md, "Run"`), or a decision (`ADR 0004`).
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = "docs|tests|src|agentspec|benchmarks|examples|schemas|requirements|shared"
PATH = re.compile(rf"(?<![\w/.*@-])(?P<path>(?:{FOLDERS})/[\w*./{{}},-]*\w)")
PAGE = re.compile(r"(?<![\w/.-])(?!NNNN-)(?P<page>[\w-]+\.md)\b")
HEADING = re.compile(r"(?P<page>docs/[\w/-]+\.md), (?P<headings>\"[^\"]+\"(?:(?:,| and) \"[^\"]+\")*)")
DECISION = re.compile(r"\bADR (?P<number>\d{4})\b")
ISSUE = re.compile(r"\bissues? (?:[A-Z]?\d+)\b")
PAGES = ("", "docs/", "docs/*/", "examples/*/")
OUTSIDE = {"../shared/bench"}
"""What a benchmark reads where it is there; `BENCH_PEERS` names another place."""


def prose(source: str) -> Iterator[str]:
    """Docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def dangling(text: str, root: Path = ROOT) -> Iterator[str]:
    """The citations in `text` that lead nowhere, as sentences."""
    for outside in OUTSIDE:
        text = text.replace(outside, "")
    for found in PATH.finditer(text):
        path = found["path"].split("::")[0]
        if not any(mark in path for mark in "*{") and not (root / path).exists():
            yield f"`{path}` is not there"
    for found in PAGE.finditer(text):
        if not any(list(root.glob(f"{folder}{found['page']}")) for folder in PAGES):
            yield f"there is no page `{found['page']}`"
    for found in HEADING.finditer(text):
        if (page := root / found["page"]).exists():
            stated = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
            for heading in re.findall(r"\"([^\"]+)\"", found["headings"]):
                if heading not in stated:
                    yield f"`{found['page']}` has no heading `{heading}`"
    for found in DECISION.finditer(text):
        if not list((root / "docs" / "adr").glob(f"{found['number']}-*.md")):
            yield f"there is no ADR {found['number']}"
    for found in ISSUE.finditer(text):
        yield f"`{found[0]}` is in a tracker that a reader of the code does not have"


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in listed.stdout.splitlines()] if listed.returncode == 0 else sorted(ROOT.rglob("*"))
    return [path for path in paths if path.suffix in {".py", ".md", ".toml"} and path.is_file()]


def test_every_citation_leads_somewhere_in_this_repository() -> None:
    found = []
    for path in files():
        text = path.read_text("utf-8")
        for part in prose(text) if path.suffix == ".py" else [text]:
            found += [f"{path.relative_to(ROOT)}: {one}" for one in dangling(part)]
    assert not found, "\n".join(sorted(set(found)))


@pytest.mark.parametrize(
    "text",
    [
        "see shared/design/journal.md",
        "Source: contextos-facts.md, section 17.",
        "tests/unit/trust/test_nothing.py proves it",
        'docs/security.md, "No such heading"',
        "ADR 0999",
        "Source: issue 3",
    ],
)
def test_a_citation_of_a_missing_file_is_found(text: str) -> None:
    assert list(dangling(text))


@pytest.mark.parametrize(
    "text", ["docs/security.md", "ADR 0001", "README.md", "tests/golden", "a/b.py", "src/contextos/*.py"]
)
def test_a_good_citation_is_left_alone(text: str) -> None:
    assert list(dangling(text)) == []
