"""Both gates, that of this process and that of a server, are what a framework needs; and a refusal can be read."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from contextos.client.sessions import ClientGate
from contextos.contracts.ports.gates import (
    MAX_ARGS_BYTES,
    MAX_TOOL_CHARS,
    REFUSED_ARGS,
    Reason,
    Refused,
    ToolGate,
    checked_call,
    refused_call,
)
from contextos.deployment.gate.gate import Gate
from contextos.errors import InvalidInput, Problem

MEMBERS = {"session", "tools", "described_tools", "call"}


@pytest.mark.parametrize("gate", [Gate, ClientGate])
def test_a_gate_has_what_a_framework_uses(gate: type) -> None:
    assert {name for name in vars(ToolGate) if not name.startswith("_")} == MEMBERS
    assert {*dir(gate), *gate.__dataclass_fields__} >= MEMBERS  # type: ignore[attr-defined]
    asked = list(inspect.signature(ToolGate.call).parameters)
    taken = inspect.signature(gate.call).parameters  # type: ignore[attr-defined]
    assert list(taken)[: len(asked)] == asked
    assert all(one.default is not one.empty for one in list(taken.values())[len(asked) :]), "what is added is optional"


def test_a_refusal_says_why_and_what_to_do() -> None:
    frozen = Reason("policy_denied", "policy denies it", "take another way", because=("billing is frozen",))
    assert str(Refused("c", (frozen,))) == "refused: policy denies it (billing is frozen); take another way"


NO_CALLS: dict[str, tuple[Any, Any, Any, str]] = {
    "an integer that JSON has not": ("a.b", {"n": 2**63}, "c", "/args/n"),
    "not a number": ("a.b", {"n": float("nan")}, "c", "/args/n"),
    "half a character": ("a.b", {"n": "\ud800"}, "c", "/args/n"),
    "a key that is not a text": ("a.b", {None: 1}, "c", "/args"),
    "bytes": ("a.b", {"n": b"x"}, "c", "/args/n"),
    "too large": ("a.b", {"n": "x" * MAX_ARGS_BYTES}, "c", "/args"),
    "larger than a request": ("a.b", {"n": "x" * 3_000_000}, "c", "/args"),
    "a list": ("a.b", [], "c", "/args"),
    "a text that ends early": ("a.b", '{"order"', "c", "/args"),
    "a text with a member twice": ("a.b", '{"a": 1, "a": 2}', "c", "/args/a"),
    "a text with no number": ("a.b", '{"a": NaN}', "c", "/args/a"),
    "a deep text": ("a.b", "[" * 5000, "c", "/args"),
    "a text with half a character": ("a.b", '{"a": "\\ud800"}', "c", "/args/a"),
    "a text of a list": ("a.b", "[]", "c", "/args"),
    "a text of a number": ("a.b", "7", "c", "/args"),
    "nothing": ("a.b", None, "c", "/args"),
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
    assert checked_call("a.b", '{"n": [1, "é"]}', "c1") == ("a.b", {"n": [1, "é"]})
    assert checked_call("a.b", " ", "c1") == ("a.b", {})


def test_what_is_recorded_of_a_call_that_no_gate_takes_has_nothing_of_its_arguments() -> None:
    fault = InvalidInput(Problem("/args", "no_json", "at `/IGNORE`: odd"))
    assert refused_call("a.b", fault) == {"tool": "a.b", "args": {REFUSED_ARGS: "no_json"}}
    with pytest.raises(InvalidInput) as raised:
        refused_call("\ud800", fault)
    assert raised.value is fault
