"""Both gates, that of this process and that of a server, are what a framework needs; and a refusal can be read."""

from __future__ import annotations

import inspect

import pytest

from contextos.client.sessions import ClientGate
from contextos.contracts.ports.gates import Reason, Refused, ToolGate
from contextos.operations.gate.gate import Gate

MEMBERS = {"session", "tools", "described_tools", "call"}


@pytest.mark.parametrize("gate", [Gate, ClientGate])
def test_a_gate_has_what_a_framework_uses(gate: type) -> None:
    assert {name for name in vars(ToolGate) if not name.startswith("_")} == MEMBERS
    assert {*vars(gate), *gate.__dataclass_fields__} >= MEMBERS  # type: ignore[attr-defined]
    asked = list(inspect.signature(ToolGate.call).parameters)
    taken = inspect.signature(gate.call).parameters  # type: ignore[attr-defined]
    assert list(taken)[: len(asked)] == asked
    assert all(one.default is not one.empty for one in list(taken.values())[len(asked) :]), "what is added is optional"


def test_a_refusal_says_why_and_what_to_do() -> None:
    frozen = Reason("policy_denied", "policy denies it", "take another way", because=("billing is frozen",))
    assert str(Refused("c", (frozen,))) == "refused: policy denies it (billing is frozen); take another way"
