"""Bindings: which parameters are bindings, and how they resolve."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.bindings import binding_of, resolve_params
from contextos.contracts.encoding.pointer import MISSING

SOURCES = {"request": {"input": {"order": "ord_1"}}, "evidence": {"amount": {"value": None}}}


@pytest.mark.parametrize(
    "value",
    [
        "text",
        None,
        {"from": "request"},
        {"from": "nowhere", "pointer": "/a"},
        {"from": "step", "pointer": "/a", "x": 1},
    ],
)
def test_an_object_without_exactly_a_known_source_and_a_pointer_is_a_literal(value: Any) -> None:
    assert binding_of(value) is None


def test_arguments_come_with_their_provenance_and_the_rest_is_named() -> None:
    params = {
        "order": {"from": "request", "pointer": "/input/order"},
        "reason": "damaged",
        "amount": {"from": "evidence", "pointer": "/amount/value"},
        "ticket": {"from": "step", "pointer": "/open/ticket"},
        "absent": {"from": "request", "pointer": "/input/nothing"},
    }
    args, provenance, missing = resolve_params(params, SOURCES, {})
    assert args == {"order": "ord_1", "reason": "damaged", "amount": None}, "null is a value"
    assert provenance == {"order": "request:/input/order", "reason": "literal", "amount": "evidence:/amount/value"}
    assert missing == ["absent", "ticket"]
    assert MISSING not in args.values()
