"""G87: a value that a mail tells in disguise needs a person, and the page promises of the search what is measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.disguises import OTHERS, RECOGNISED, VALUES, look, measure, picked, summary

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("disguise", [*RECOGNISED, *OTHERS])
def test_every_disguised_value_is_asked_about(disguise: str) -> None:
    hide = {**RECOGNISED, **OTHERS}[disguise]
    for value in VALUES:
        integrity, asked = look(hide(value), value)
        assert asked == [True, True], value
        assert integrity == "untrusted" or disguise in OTHERS, value


def test_the_pages_quote_what_is_measured() -> None:
    measured = summary(measure())
    for page in ("security.md", "design/benchmarks.md"):
        assert measured in (DOCS / page).read_text("utf-8")
    assert picked() == 0
    assert not re.search(r"however (the value was|it was) (copied|encoded)", (DOCS / "security.md").read_text("utf-8"))
