"""A pattern that others write is RE2 and bounded, or it is none."""

import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.safe_patterns import pattern_example, safe_pattern


@pytest.mark.parametrize("pattern", ["(?=a)", "(a)\\1", "(", "a{1000}{1000}", "\ud800"])
def test_what_is_not_re2_or_too_large_is_no_pattern(pattern: str) -> None:
    assert safe_pattern(pattern) is None


def test_a_pattern_that_others_never_end_ends() -> None:
    compiled = safe_pattern("(a+)+$")
    assert compiled is not None
    began = time.monotonic()
    assert compiled.search("a" * 50_000 + "b") is None
    assert time.monotonic() - began < 1


EXAMPLES = {
    "[;,]": ";",
    "[#$]": "#",
    "[éè]": "é",
    "[^a-z]": "1",
    "[^…]": "a",
    "[α-ω]": "α",
    "[^\\w\\W]": None,
    "[[:alpha:]]": "a]",
    "[a&&b]": "a",
    "\\pN": None,
    "(?i)[;]": ";",
    "\\x{41}": None,
    "a{9999999999999}": None,
}


@pytest.mark.parametrize("pattern", EXAMPLES)
def test_an_example_fits_or_there_is_none(pattern: str) -> None:
    with warnings.catch_warnings(action="error"):
        assert pattern_example(pattern) == EXAMPLES[pattern]


@given(st.from_regex(r"[\[\]^$;,éa-z0-9\\{}()|*+?.-]{0,12}", fullmatch=True))
def test_no_pattern_ends_what_says_its_example(pattern: str) -> None:
    example, compiled = pattern_example(pattern), safe_pattern(pattern)
    assert example is None or (compiled is not None and compiled.search(example))
