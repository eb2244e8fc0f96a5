"""Lint of limits: the side of the schema counts unless every whole number is within it."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.jcs import MAX_INT
from contextos.contracts.envelopes.policy import ArgConstraint, PolicyBundle
from contextos.control.lint.bounds import lint_bounds
from tests.unit.control.example import adapters

REFUND = "adp_payments.issue_refund"


def bundle(limits: dict[str, Any]) -> PolicyBundle:
    rule = {
        "rule_id": "R_AUTO",
        "applies_to": {"capability": REFUND},
        "if": {"==": [{"var": "user.role"}, "support_agent"]},
        "then": {"allow": True, "approval_mode": "delegated", "arg_constraints": limits},
    }
    return PolicyBundle.model_validate(
        {"bundle_id": "POLICY_A", "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
    )


@pytest.mark.parametrize(
    ("schema", "codes"),
    [({"minimum": 1}, []), ({"exclusiveMinimum": 0}, []), ({}, ["one_sided"]), ({"minimum": -MAX_INT}, ["one_sided"])],
)
def test_the_schema_of_the_tool_can_have_the_other_side(schema: dict[str, Any], codes: list[str]) -> None:
    tool = next(one for one in adapters()["adp_payments"].capabilities if one.name == "issue_refund")
    properties = {"amount_inr": {"type": "integer", **schema}}
    tool = tool.model_copy(update={"input_schema": {**tool.input_schema, "properties": properties}})
    found = [one.code for one in lint_bounds(bundle({"amount_inr": {"max": 5}}), {REFUND: tool}, {})]
    assert found == codes
    permitted = {REFUND: {"amount_inr": [ArgConstraint(min=1)]}}
    assert list(lint_bounds(bundle({"amount_inr": {"max": 5}}), {REFUND: tool}, permitted)) == []
