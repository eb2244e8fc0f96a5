"""Prose that a stranger understands: none of the phrases that only an insider reads at the first attempt.

The list holds what earlier versions of this code were written in. It grows when a reviewer stumbles.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.test_citations import prose

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/adr/*.md",
    "docs/design/*.md",
    "docs/reference/*.md",
    "examples/*/README.md",
)

DIALECT = {
    r"of (?:so many|the latest so many)": "at most N",
    r"whoever": "the caller, the process",
    r"mend(?:s|ed|ing)?": "fix, remedy",
    r"(?:is|are|was|were|be|been) told": "is given, receives, learns",
    r"tells (?:of|it|them|who)": "reports",
    r"stands? (?:for|in|at|under|behind|beside|there|above|below|between|still)": "is, means",
    r"(?<!data )at rest": "suspended",
    r"until when": "expires at",
    r"lets? (?:it|a run|runs|the run|them) go": "releases",
    r"let go": "released",
    r"beyond all": "exceeds every",
    r"may as": "allowed as",
    r"as it is now, and": "now",
    r"a person's word": "a person's decision",
    r"bur(?:y|ied|ies)": "add to the dead letters",
    r"by now": "so far",
    r"out of reach of who": "where … cannot write",
    r"has to do with": "is about",
}
IN_CODE = DIALECT | {r"(?<!there )(?:is|are|was|were) (?-i:none)(?! of)": "is not a, is not valid"}
COMPILED = {"src/contextos/context/prompt.py"}
"""Its texts are part of every compiled context; another word there would change its hash."""
STAND_INS = re.compile(r"stand-ins?")


def dialect(text: str, phrases: Mapping[str, str] = DIALECT) -> Iterator[str]:
    """Each phrase of the list in `text`, with what is said instead."""
    for pattern, instead in phrases.items():
        for found in re.finditer(rf"\b{pattern}\b", STAND_INS.sub("", text), re.IGNORECASE):
            around = text[max(0, found.start() - 30) : found.end() + 30]
            yield f"`{found[0]}` (say: {instead}) in “{around}”"


def literals(source: str) -> Iterator[str]:
    """The texts that a module shows: strings with a space in them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield " ".join(node.value.split())


IS_NO = re.compile(r"(?<![Tt]here )\b(?:is|are) no (?!longer\b|more\b|matter\b)[`\w]+")
STILL = ("action", "adapters", "audit", "contracts", "control", "decision", "runtime", "store", "trust")
"""Packages where some messages say it still. What `action`, `decision` and `runtime` say is recorded: other words would
differ in a replay.
"""


def sentences(source: str) -> Iterator[str]:
    """The names of tests, read as sentences."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name.replace("_", " ")


def test_the_code_speaks_plain_english() -> None:
    found = []
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "agentspec").rglob("*.py")]):
        if str(path.relative_to(ROOT)) in COMPILED:
            continue
        source = path.read_text("utf-8")
        for text in {*prose(source), *literals(source)}:
            found += [f"{path.relative_to(ROOT)}: {one}" for one in dialect(text, IN_CODE)]
    assert not found, f"{len(found)} phrases\n" + "\n".join(sorted(found))


def test_a_message_says_what_is_not_a_thing() -> None:
    found = []
    for path in sorted((ROOT / "src" / "contextos").rglob("*.py")):
        at = path.relative_to(ROOT / "src" / "contextos")
        if at.parts[0] not in STILL or at.parts[:2] == ("contracts", "ports"):
            source = ast.parse(path.read_text("utf-8"))
            notes = {id(one.value) for one in ast.walk(source) if isinstance(one, ast.Expr)}
            said = [one for one in ast.walk(source) if isinstance(one, ast.Constant) and id(one) not in notes]
            found += [f"{at}: {hit[0]} (say: is not a)" for one in said if (hit := IS_NO.search(str(one.value)))]
    assert not found, "\n".join(found)


def test_the_tests_speak_plain_english() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text("utf-8")
        if path == Path(__file__).resolve():
            continue
        for text in {*prose(source), *sentences(source)}:
            found += [f"{path.relative_to(ROOT)}: {one}" for one in dialect(text)]
    assert not found, f"{len(found)} phrases\n" + "\n".join(sorted(found))


def test_the_pages_speak_plain_english() -> None:
    found = []
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            found += [f"{path.relative_to(ROOT)}: {one}" for one in dialect(" ".join(path.read_text("utf-8").split()))]
    assert not found, f"{len(found)} phrases\n" + "\n".join(sorted(found))


@pytest.mark.parametrize(
    "text", ["Of so many tenants it is kept.", "Whoever drives it beats.", "say the mend", "it is told"]
)
def test_a_phrase_of_an_insider_is_found(text: str) -> None:
    assert list(dialect(text))


@pytest.mark.parametrize("text", ["Cache size in tenants.", "a development stand-in for a key", "commend, amend"])
def test_plain_english_is_left_alone(text: str) -> None:
    assert not list(dialect(text))
