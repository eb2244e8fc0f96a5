"""What an adapter may declare and answer: a cost that can be counted, and a capability that is what it says."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from contextos.contracts.envelopes.policy import APPROVAL_MODES
from contextos.contracts.envelopes.tool import AdapterReply, CapabilityDefinition, RiskLevel, ToolResultEnvelope

READ: dict[str, Any] = {
    "name": "look",
    "kind": "read",
    "risk_level": "read",
    "approval_mode": "read_only",
    "input_schema": {},
    "output_schema": {},
    "idempotency": {"strategy": "none"},
}


@pytest.mark.parametrize("cost", [1e300, math.nan, math.inf, -1, 0.1234567, True, "1"])
def test_a_cost_that_no_record_can_hold_is_refused_where_it_enters(cost: Any) -> None:
    with pytest.raises(ValidationError, match="cost_cents"):
        AdapterReply(output={}, cost_cents=cost)
    with pytest.raises(ValidationError, match="cost_cents"):
        CapabilityDefinition.model_validate(READ | {"cost_cents": cost})


@pytest.mark.parametrize("cost", [0, 3, 0.31, 0.0001])
def test_a_cost_in_cents_is_kept_as_given(cost: float) -> None:
    assert AdapterReply(output={}, cost_cents=cost).cost_cents == cost
    assert CapabilityDefinition.model_validate(READ | {"cost_cents": cost}).cost_cents == cost


READERS: dict[str, Any] = {
    "repeats": {"output_repeats": {"a": "/a"}},
    "destinations": {"destinations": ["a"]},
    "secrets": {"secrets": ["a"]},
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("side", ["input_schema", "output_schema"])
@pytest.mark.parametrize("schema", [{"properties": 1.5}, {"properties": ["a"]}, {"required": 7}, {"required": "a"}])
def test_a_schema_of_another_form_is_refused_whatever_reads_it(schema: Any, side: str, reader: str) -> None:
    write = READ | {"kind": "write", "risk_level": "write_irreversible", "approval_mode": "destructive"}
    whole = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    schemas = {"input_schema": whole, "output_schema": whole}
    CapabilityDefinition.model_validate(write | schemas | READERS[reader])
    with pytest.raises(ValidationError, match="`properties` of a schema are an object"):
        CapabilityDefinition.model_validate(write | schemas | {side: whole | schema} | READERS[reader])


def test_an_argument_whose_schema_is_a_boolean_is_no_secret_text() -> None:
    write = READ | {"kind": "write", "risk_level": "write_irreversible", "approval_mode": "destructive"}
    with pytest.raises(ValidationError, match="not an argument of type `string`"):
        CapabilityDefinition.model_validate(write | {"input_schema": {"properties": {"a": True}}, "secrets": ["a"]})


def declared(kind: str) -> set[tuple[str, str]]:
    """Every (risk, mode) that a capability of this kind may declare."""
    found = set()
    for risk, mode in product(get_args(RiskLevel), APPROVAL_MODES):
        try:
            CapabilityDefinition.model_validate(READ | {"kind": kind, "risk_level": risk, "approval_mode": mode})
        except ValidationError as error:
            assert "declare" in str(error)
        else:
            found.add((risk, mode))
    return found


def test_a_write_can_never_pass_for_a_read() -> None:
    modes = {"local_write", "network", "delegated", "destructive"}
    assert declared("write") == set(product(("write_reversible", "write_irreversible"), modes))


def test_a_read_never_reaches_what_only_a_write_does() -> None:
    assert declared("read") == set(product(("read",), ("read_only", "network", "delegated")))


def test_a_result_is_of_the_run_whose_journal_states_it() -> None:
    stated = {
        "tool_call_id": "tool_00000000000000aa",
        "capability_id": "mail.send",
        "status": "completed",
        "citations": (),
        "latency_ms": 1,
    }
    other = {"run_id": "run_00000000000000ff", "trace_id": "f" * 32, "session_id": "sess_of_others"}
    run = "run_00000000000000aa", "a" * 32, None
    made = ToolResultEnvelope.of_run(*run, {**stated, **other})
    assert (made.run_id, made.trace_id, made.session_id) == run
    assert made.to_json()["mutations"] == made.to_json()["artifacts"] == []
