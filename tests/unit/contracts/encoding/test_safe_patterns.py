"""A pattern that others write is RE2 and bounded, or it is none."""

import time

import pytest

from contextos.contracts.encoding.safe_patterns import safe_pattern


@pytest.mark.parametrize("pattern", ["(?=a)", "(a)\\1", "(", "a{1000}{1000}", "\ud800"])
def test_what_is_not_re2_or_too_large_is_no_pattern(pattern: str) -> None:
    assert safe_pattern(pattern) is None


def test_a_pattern_that_others_never_end_ends() -> None:
    compiled = safe_pattern("(a+)+$")
    assert compiled is not None
    began = time.monotonic()
    assert compiled.search("a" * 50_000 + "b") is None
    assert time.monotonic() - began < 1
