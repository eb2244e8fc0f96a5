"""JSON Pointer: the examples of RFC 6901, and pointers that lead nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.pointer import MISSING, pointer, resolve_pointer
from tests.unit.contracts.encoding.json_values import TEXT

DOCUMENT: dict[str, Any] = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
    "nil": None,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
        ("/nil", None),
    ],
)
def test_pointers_of_rfc_6901_section_5(text: str, value: Any) -> None:
    assert resolve_pointer(DOCUMENT, text) == value


@pytest.mark.parametrize(
    "text",
    [
        "foo",
        "/foo/2",
        "/foo/-",
        "/foo/-1",
        "/foo/00",
        "/foo/01",
        "/foo/1e0",
        "/foo/\u0661",
        "/foo/0/0",
        "/nope",
        "/m~n",
        "/m~2n",
        "/nil/x",
        "/foo/" + "9" * 5000,
        "/foo/0\n",
        "#/foo",
    ],
)
def test_a_pointer_at_nothing_is_missing_and_not_null(text: str) -> None:
    assert resolve_pointer(DOCUMENT, text) is MISSING
    assert not MISSING
    assert repr(MISSING) == "MISSING"
    assert MISSING is not None


@given(st.lists(TEXT, max_size=5), st.integers())
def test_a_pointer_finds_the_path_it_was_made_of(path: list[str], leaf: int) -> None:
    value: Any = leaf
    for step in reversed(path):
        value = {step: value}
    assert resolve_pointer(value, pointer(path)) == leaf
