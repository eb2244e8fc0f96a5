"""What a policy decision about a call is given, and the gate that asks about an untrusted destination."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.deciding import _call_facts, _origin_facts, _untrusted_gate
from contextos.action.gateway.idempotency import _fingerprint
from contextos.contracts.controls import KnownFacts
from contextos.contracts.documents.operations import args_fingerprint
from contextos.contracts.encoding.redacted import secret_argument_mark
from contextos.contracts.ports.calls import ToolCall
from tests.unit.action.gateway.origin_calls import TRACED, call, context


@pytest.mark.parametrize(
    ("gates", "asked"),
    [({"GATE_B": "lead", "GATE_A": "lead"}, ("GATE_A",)), ({"GATE_A": "lead", "GATE_B": "owner"}, ()), ({}, ())],
)
def test_the_gate_that_asks_is_chosen_only_if_all_ask_one_role(gates: dict[str, str], asked: tuple[str, ...]) -> None:
    assert _untrusted_gate(context(**gates), call()) == asked
    assert _untrusted_gate(context(**gates), call(destinations=("cents",))) == ()


def test_rules_read_the_origin_the_integrity_and_the_classification() -> None:
    assert _origin_facts({}) == {}
    assert _origin_facts({"to": TRACED["to"]}) == {
        "origin": {"to": "tool:mail.read"},
        "integrity": {"to": "untrusted"},
        "classification": {"to": "PUBLIC"},
    }


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"to": "a@b", "cents": 1.5, "idempotency_key": "k"},
        {"to": "a@b", "password": secret_argument_mark(b"0" * 16)},
        {"to": "[redacted:pan]"},
    ],
)
def test_what_is_kept_of_the_arguments_of_a_call_is_what_is_made_anew(args: dict[str, Any]) -> None:
    step: Any = None
    made = ToolCall("1/a", step, args, {}, ())
    made.evidence = {}
    of_run: Any = SimpleNamespace(scope=SimpleNamespace(facts=KnownFacts({"run": {"intent": "x"}})))
    facts = _call_facts(of_run, made)
    assert facts["args"] == {name: value for name, value in args.items() if name != "password"}
    assert facts.digest() == KnownFacts(dict(facts)).digest()
    assert _fingerprint(made) == args_fingerprint(args)
