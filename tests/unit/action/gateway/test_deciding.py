"""What a policy decision about a call is given, and the gate that asks about an untrusted destination."""

from __future__ import annotations

import pytest

from contextos.action.gateway.deciding import _gate_of_untrusted, _origin_facts
from tests.unit.action.gateway.origin_calls import TRACED, call, context


@pytest.mark.parametrize(
    ("gates", "asked"),
    [({"GATE_B": "lead", "GATE_A": "lead"}, ("GATE_A",)), ({"GATE_A": "lead", "GATE_B": "owner"}, ()), ({}, ())],
)
def test_the_gate_that_asks_is_chosen_only_if_all_ask_one_role(gates: dict[str, str], asked: tuple[str, ...]) -> None:
    assert _gate_of_untrusted(context(**gates), call()) == asked
    assert _gate_of_untrusted(context(**gates), call(destinations=("cents",))) == ()


def test_rules_read_the_origin_the_integrity_and_the_classification() -> None:
    assert _origin_facts({}) == {}
    assert _origin_facts({"to": TRACED["to"]}) == {
        "origin": {"to": "tool:mail.read"},
        "integrity": {"to": "untrusted"},
        "classification": {"to": "PUBLIC"},
    }
