"""A tag is found among those that a request states."""

from __future__ import annotations

from contextos.server.shared.pages import is_unchanged, unchanged


def test_a_tag_is_found_among_those_that_are_stated() -> None:
    assert is_unchanged('"a"', '"b", "a"')
    assert is_unchanged('"a"', "*")
    assert is_unchanged('"a"', 'W/"b", W/"a"')
    assert not is_unchanged('"a"', '"b"')
    assert not is_unchanged('"a"', None)
    assert (unchanged('"a"').status_code, unchanged('"a"').headers["etag"]) == (304, '"a"')
