"""A condition that cannot be typed, or that is too large, is refused when it is compiled."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.trust.policy.conditions import analyse_condition
from tests.policies import var

N = var("args.n")


def nested(depth: int) -> Any:
    node: Any = True
    for _ in range(depth):
        node = {"!": [node]}
    return node


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ({"vr": "user.role"}, "unknown_operator"),
        ({"exists": ["user", "role"]}, "unknown_operator"),
        ({"val": ["user", "role"]}, "unknown_operator"),
        ({"cat": ["a", "b"]}, "unknown_operator"),
        ({"a": 1, "b": 2}, "not_an_operation"),
        ({}, "not_an_operation"),
        ({"some": [var("user.roles"), {"==": [var(""), "x"]}]}, "iterator"),
        ({"reduce": [var("user.roles"), True, 0]}, "iterator"),
        (var({"if": [True, "user.role", "user.tier"]}), "computed_path"),
        (var([]), "argument_count"),
        (var(1), "computed_path"),
        (var(""), "unknown_fact"),
        (var("user..role"), "unknown_fact"),
        (var("mood.name"), "unknown_fact"),
        ({"missing": ["user.role"]}, "not_a_condition"),
        ({"!": [{"missing": [N]}]}, "computed_path"),
        ({"!": [{"missing_some": ["user.role"]}]}, "argument_count"),
        ({"==": [N, var("args.m")]}, "type_not_derivable"),
        ({"==": [N, None]}, "type_not_derivable"),
        ({"==": ["1", 1]}, "type_not_derivable"),
        ({"==": [N, [1]]}, "type_not_derivable"),
        ({"==": [N, 1, 1]}, "argument_count"),
        ({"in": [var("user.role"), var("user.roles")]}, "type_not_derivable"),
        ({"in": [var("user.role"), "agent,lead"]}, "type_not_derivable"),
        ({"in": [var("user.role"), []]}, "type_not_derivable"),
        ({"in": [var("user.role")]}, "argument_count"),
        ({"==": [{}, 1]}, "not_an_operation"),
        ({"in": [var("user.role"), ["a", 1]]}, "type_not_derivable"),
        ({">": [N, "3000"]}, "type_mismatch"),
        ({">": [N]}, "argument_count"),
        ({"and": []}, "argument_count"),
        ({"and": [3, True]}, "type_mismatch"),
        ({"and": [{"+": [N, 1]}, True]}, "type_mismatch"),
        ({"and": [N, {">": [N, 1]}]}, "type_mismatch"),
        ({"<": [var(["args.n", "0"]), 3]}, "type_mismatch"),
        ({"<": [var(["args.n", None]), 3]}, "type_mismatch"),
        ({"if": [True, True]}, "argument_count"),
        ({"if": [True, 1, False]}, "type_mismatch"),
        ("yes", "type_mismatch"),
        (1, "type_mismatch"),
        (None, "not_a_literal"),
        ([True], "not_a_literal"),
        ({">": [N, float("nan")]}, "not_a_literal"),
        ({">": [N, 2**60]}, "not_a_literal"),
        ({">": [{"/": [N, 0]}, 1]}, "divisor"),
        ({">": [{"%": [N, N]}, 1]}, "divisor"),
        ({">": [{"*": [N] * 20}, 1]}, "overflow"),
        ({">": [{"/": [N, 5e-324]}, 1]}, "overflow"),
        (nested(21), "condition_too_large"),
        (nested(2000), "condition_too_large"),
        ({"in": [N, list(range(600))]}, "condition_too_large"),
    ],
)
def test_a_condition_that_could_fail_open_does_not_lint(condition, code):
    assert code in [problem.code for problem in analyse_condition(condition).problems]


def test_reads_name_every_fact_with_its_type():
    condition = {
        "and": [
            {"in": ["lead", var("user.roles")]},
            {"in": ["refund", var("request.message")]},
            {"<": [var(["args.n", 0]), 3]},
            {"!": [{"missing": ["args.note"]}]},
            var("evidence.ok"),
            {"==": [var("user.a"), var("user.b")]},
            {"if": [{"missing_some": [1, ["args.m"]]}, True, False]},
        ]
    }
    found = analyse_condition(condition, {"user.roles": "array", "request.message": "string", "user.a": "number"})
    assert found.problems == ()
    assert found.reads == {
        "user.roles": "array<string>",
        "request.message": "string",
        "args.n": "number",
        "args.note": None,
        "evidence.ok": "boolean",
        "user.a": "number",
        "user.b": "number",
        "args.m": None,
    }
    assert {fact.path for fact in found.facts if not fact.required} == {"args.n", "args.note", "args.m"}


def test_the_type_of_a_branch_applies_to_the_value_it_is_compared_with():
    choice = {"if": [var("user.lead"), var("user.limit"), 100]}
    assert analyse_condition({"==": [var("args.n"), choice]}).reads == {
        "args.n": "number",
        "user.lead": "boolean",
        "user.limit": "number",
    }
    assert analyse_condition({"==": [var("args.n"), {"+": [var("args.m"), 1]}]}).reads == {
        "args.n": "number",
        "args.m": "number",
    }
