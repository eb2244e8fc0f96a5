"""Bounds on the final arguments of a call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.envelopes.policy import ArgConstraint
from contextos.trust.policy.constraints import check_args


def codes(args: dict[str, Any], *, approved: bool = False, **bound: Any) -> list[str]:
    constraint = ArgConstraint.model_validate(bound)
    return [problem.code for problem in check_args({"x": (constraint,)}, args, approved=approved)]


@pytest.mark.parametrize(
    ("bound", "good", "bad"),
    [
        ({"min": 1}, [1, 1.5, 9], [0, 0.99, "1", True, [1], float("nan")]),
        ({"max": 3000}, [3000, -1], [3000.01, "3000", False, {}, float("inf")]),
        (
            {"enum": ["INR", 1, True, [1, "a"], {"k": 1}]},
            ["INR", 1, 1.0, True, [1, "a"], {"k": 1}],
            ["inr", "1", False, 0, [1], [True, "a"], {"k": True}, {}],
        ),
        ({"enum": [1]}, [1], [True]),
        ({"pattern": "[A-Z]{3}"}, ["INR"], ["INRX", "xINR", "INR\n", 7, "", "\ud800"]),
        ({"required": True}, [0, "", False], []),
    ],
)
def test_a_bound_holds_or_is_named(bound, good, bad):
    assert not any(codes({"x": value}, **bound) for value in good)
    assert all(codes({"x": value}, **bound) for value in bad)


@pytest.mark.parametrize("bound", [{"min": 1}, {"max": 1}, {"enum": [1, None]}, {"pattern": ".*"}, {"required": True}])
def test_a_bounded_argument_that_is_absent_or_null_is_refused(bound):
    assert codes({}, **bound) == ["arg_required"]
    assert codes({"x": None}, **bound) == ["arg_required"]


def test_only_an_author_makes_a_bounded_argument_optional():
    assert codes({}, max=1, required=False) == []
    assert codes({"x": None}, max=1, required=False) == ["arg_required"]
    assert codes({"x": 2}, max=1, required=False) == ["arg_above_max"]


def test_an_approval_lifts_only_what_says_so():
    assert codes({"x": 2}, max=1, unless_approved=True) == ["arg_above_max"]
    assert codes({"x": 2}, max=1, unless_approved=True, approved=True) == []
    assert codes({"x": 2}, max=1, approved=True) == ["arg_above_max"]
    assert codes({}, max=1, required=True, unless_approved=True, approved=True) == ["arg_required"]


def test_every_constraint_on_a_name_has_to_hold():
    bounds = {"x": (ArgConstraint(max=3), ArgConstraint(max=2)), "a/b": (ArgConstraint(required=True),)}
    assert [(p.pointer, p.code) for p in check_args(bounds, {"x": 3}, approved=False)] == [
        ("/args/x", "arg_above_max"),
        ("/args/a~1b", "arg_required"),
    ]


@pytest.mark.parametrize(
    ("bound", "value", "says"),
    [
        ({"max": 5}, 6, "is above 5"),
        ({"min": 5}, 4, "is below 5"),
        ({"whole": True}, 0.5, "is not a whole number"),
        ({"max": 5}, "6", "is not a number"),
        ({"pattern": "[a-z]+"}, "7", "does not match `[a-z]+`"),
        ({"pattern": "[a-z]+"}, 7, "is not a string"),
        ({"required": True}, None, "is constrained but absent"),
        ({"enum": ["USD", 1, {"k": [True]}]}, "EUR", 'is not one of "USD", 1, {"k": [true]}'),
    ],
)
def test_each_problem_names_the_argument_and_the_limit_that_it_breaks(bound, value, says):
    limit = ArgConstraint.model_validate(bound)
    (problem,) = check_args({"a/b~": (limit,)}, {"a/b~": value}, approved=False)
    assert problem.detail == f"`a/b~` {says}"


def test_a_long_list_of_values_is_cut():
    (problem,) = check_args({"x": (ArgConstraint(enum=["v" * 50] * 99),)}, {"x": "w"}, approved=False)
    assert len(problem.detail) < 1_100
    assert problem.detail.endswith("…")


def test_a_hostile_pattern_stays_linear():
    assert codes({"x": "a" * 50_000 + "!"}, pattern="(a+)+$") == ["arg_pattern_mismatch"]


def test_a_pattern_that_lint_would_refuse_matches_nothing():
    assert codes({"x": "a"}, pattern="(?=a)a") == ["arg_pattern_mismatch"]


@given(st.floats(allow_nan=False) | st.integers(), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_number_passes_exactly_within_its_range(value, low, high):
    assert (codes({"x": value}, min=low, max=high) == []) == (low <= value <= high)
