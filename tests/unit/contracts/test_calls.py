"""What a gate takes as a call: here and over HTTP the same, so that an agent reads a refusal and is not ended by it."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.ports.gates import MAX_ARGS_BYTES, MAX_TOOL_CHARS, checked_call
from contextos.errors import InvalidInput

NO_CALLS: dict[str, tuple[Any, Any, Any, str]] = {
    "an integer that JSON has not": ("a.b", {"n": 2**63}, "c", "/args"),
    "not a number": ("a.b", {"n": float("nan")}, "c", "/args"),
    "half a character": ("a.b", {"n": "\ud800"}, "c", "/args"),
    "a key that is no text": ("a.b", {None: 1}, "c", "/args"),
    "bytes": ("a.b", {"n": b"x"}, "c", "/args"),
    "too large": ("a.b", {"n": "x" * MAX_ARGS_BYTES}, "c", "/args"),
    "larger than a request": ("a.b", {"n": "x" * 3_000_000}, "c", "/args"),
    "a list": ("a.b", [], "c", "/args"),
    "no tool": (5, {}, "c", "/name"),
    "a long tool": ("x" * (MAX_TOOL_CHARS + 1), {}, "c", "/name"),
    "half a character in a tool": ("\ud800", {}, "c", "/name"),
    "no call id": ("a.b", {}, None, "/call_id"),
    "another alphabet": ("a.b", {}, "é", "/call_id"),
    "half a character in a call id": ("a.b", {}, "\ud800", "/call_id"),
}


@pytest.mark.parametrize(("name", "args", "call_id", "at"), NO_CALLS.values(), ids=NO_CALLS)
def test_what_is_no_call_is_refused_at_its_place(name: Any, args: Any, call_id: Any, at: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_call(name, args, call_id)
    assert [one.pointer for one in refused.value.problems] == [at]


def test_a_call_is_taken_as_it_is() -> None:
    assert checked_call("a.b", {"n": [1, "é"]}, "c1") == ("a.b", {"n": [1, "é"]})
