"""What evidence is about is among the arguments of the call that needs it, or the pack says what else is compared."""

from __future__ import annotations

from typing import Any

from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import merge
from contextos.control.lint.evidence import lint_evidence
from contextos.control.lint.graph import binding_targets
from tests.unit.control.example import adapters, pack

STATED = "/tooling_layer/permissions/2/evidence_args"


def found(changes: dict[str, Any], **lookup: Any) -> list[tuple[str, str]]:
    known = adapters()
    if lookup:
        body = known["adp_orders"].to_json()
        body["capabilities"][0].update(lookup)
        known["adp_orders"] = AdapterDefinition.model_validate(body)
    merged = merge(pack(changes))
    problems = lint_evidence(merged, binding_targets(merged, known, complete=True))
    return [(problem.pointer, problem.code) for problem in problems]


def test_the_example_has_no_finding() -> None:
    assert found({}) == []


def test_a_step_without_an_argument_that_its_evidence_is_about_is_found_unless_the_pack_says_what_counts() -> None:
    schema = {"type": "object", "properties": {"customer": {"type": "string"}}, "required": ["customer"]}
    assert found({}, input_schema=schema) == [("/tooling_layer/permissions", "evidence_unbound")]
    assert found({STATED: {"order_lookup": {"customer": "order_id"}}}, input_schema=schema) == []
    assert found({STATED: {"order_lookup": {}}}, input_schema=schema) == []


def test_a_name_that_does_not_exist_is_found() -> None:
    assert found({STATED: {"order_lokup": {}}}) == [(f"{STATED}/order_lokup", "unknown_edge")]
    assert found({STATED: {"policy.eval": {"order_id": "oder_id"}}}) == [(f"{STATED}/policy.eval", "unknown_edge")]


def test_a_consent_that_no_evidence_can_give_is_found_and_one_about_other_arguments() -> None:
    consent = "/tooling_layer/permissions/2/consent"
    assert found({consent: "memory_consent"}) == []
    assert found({consent: "consent_of_nobody"}) == [(consent, "unknown_edge")]
    schema = {"type": "object", "properties": {"customer": {"type": "string"}}, "required": ["customer"]}
    needed = found({consent: "order_lookup"}, input_schema=schema)
    assert set(needed) == {("/tooling_layer/permissions", "evidence_unbound")}
