"""What is not I-JSON is read as far as it is JSON."""

from __future__ import annotations

import pytest

from contextos.adapters.foreign.refused_json import is_whole, read_refused, says_twice
from contextos.contracts.encoding.pointer import MISSING
from contextos.errors import Problem


def test_what_is_json_is_read_whatever_its_values_are() -> None:
    assert read_refused(b'{"id":5,"a":1234567890123456789,"b":1e400}') == {
        "id": 5,
        "a": float("inf"),
        "b": float("inf"),
    }
    assert read_refused(b'\xef\xbb\xbf{"a":"\xff"}') == {"a": "\ufffd"}
    assert read_refused(b'{"a":') is MISSING


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (b'{"a":1,"a":2}', True),
        (b"[" * 100_000 + b"]" * 100_000, True),
        (b"[" * 100_000, False),
        (b'{"a":', False),
        (b"<html>", False),
        (b"", False),
    ],
)
def test_a_text_that_was_cut_is_not_whole(text: bytes, whole: bool) -> None:
    assert is_whole(text) is whole


def test_a_member_twice_matters_where_it_says_what_happened() -> None:
    outer, inner = Problem("/result", "duplicate_key", ""), Problem("/result/content/0/x", "duplicate_key", "")
    assert says_twice([inner, outer], 2)
    assert not says_twice([inner, Problem("/result", "integer_too_large", "")], 2)
