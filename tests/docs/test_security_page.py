"""`docs/security.md` names every attack test, and no test that does not exist."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

NAMED = set(re.findall(r"tests/[\w/]+\.py", (ROOT / "docs" / "security.md").read_text("utf-8")))


def test_every_attack_test_is_named_on_the_page() -> None:
    attacks = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert attacks
    assert attacks - NAMED == set(), "add a row to the table of promises"


def test_every_test_that_the_page_names_exists() -> None:
    assert NAMED
    assert [name for name in sorted(NAMED) if not (ROOT / name).is_file()] == []
