"""Bindings: which parameters are bindings, and how they resolve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.contracts.bindings import (
    binding_of,
    known_steps,
    parsed_steps,
    plan_with_defaults,
    resolve_params,
    steps_of_plan,
)
from contextos.contracts.encoding.defaults import MAX_FILLED_BYTES
from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.envelopes.plan import Plan, PlanStep

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


def capability(**properties: Any) -> Any:
    return SimpleNamespace(definition=SimpleNamespace(input_schema={"properties": properties}))


def step(name: str, **params: Any) -> PlanStep:
    return PlanStep(id=name, tool="crm.read", params=params, approval_mode="read_only")


def test_a_step_that_a_plan_takes_over_has_the_arguments_that_were_announced() -> None:
    tools = {"crm.read": capability(limit={"default": 5})}
    template = step("a", order={"from": "request", "pointer": "/input/order"}, limit=5)
    (announced,) = known_steps(parsed_steps((template,), tools), SOURCES)
    assert announced.args == {"order": "ord_1", "limit": 5}
    (known,) = steps_of_plan(plan_of(template.model_copy(update={"requires": ("GATE_X",)})), tools, {}, (announced,))
    assert known.args is announced.args
    assert known.step.requires == ("GATE_X",)


@pytest.mark.parametrize("given", [True, 1.0, "1"])
def test_an_argument_of_a_planner_is_what_it_proposed_whatever_equals_it_in_the_template(given: Any) -> None:
    tools = {"crm.read": capability()}
    announced = known_steps(parsed_steps((step("a", limit=1),), tools), SOURCES)
    (known,) = steps_of_plan(plan_of(step("a", limit=given)), tools, SOURCES, announced)
    assert type(known.args["limit"]) is type(given)


def test_the_same_parameters_for_another_tool_are_resolved_anew() -> None:
    tools = {"crm.read": capability(limit={"default": 5}), "crm.pay": capability(limit={"default": 7})}
    template = step("a")
    announced = known_steps(parsed_steps((template,), tools), SOURCES)
    other = template.model_copy(update={"tool": "crm.pay"})
    plan = plan_with_defaults(plan_of(other), tools, announced)
    (known,) = steps_of_plan(plan, tools, SOURCES, announced)
    assert (known.args, plan.steps[0].params) == ({"limit": 7}, {"limit": 7})


@pytest.mark.parametrize(
    ("binding", "final"),
    [
        ({"from": "request", "pointer": "/input/order"}, True),
        ({"from": "parameter", "pointer": "/order"}, True),
        ({"from": "evidence", "pointer": "/amount/value"}, False),
        ({"from": "step", "pointer": "/open/ticket"}, False),
        ({"from": "elsewhere", "pointer": "/a"}, True),
    ],
)
def test_what_a_step_of_the_plan_can_change_is_resolved_again(binding: Any, final: bool) -> None:
    (known,) = known_steps(parsed_steps((step("a", value=binding),), {"crm.read": capability()}), SOURCES)
    assert known.is_final is final


def test_arguments_whose_defaults_are_too_large_are_not_final() -> None:
    tools = {"crm.read": capability(note={"default": "x" * MAX_FILLED_BYTES})}
    (known,) = known_steps(parsed_steps((step("a"),), tools), SOURCES)
    assert (known.args, known.is_final, known.is_filled, known.parsed.has_defaults) == ({}, False, False, False)


def plan_of(*steps: PlanStep) -> Plan:
    return Plan(plan_id="plan_0f1e2d3c4b5a6978", intent="support.refund", steps=steps, planner="x@1", template_id="t@1")
