"""The closed list of operators: types are known before a condition runs, and its size and numbers are bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.jcs import MAX_INT
from contextos.trust.policy.operators import (
    ITERATORS,
    KNOWN,
    MAX_CONDITION_DEPTH,
    MAX_CONDITION_NODES,
    compatible,
    literal_type,
    magnitude,
    operands_of,
    oversized,
    result_type,
    value_type,
)


def test_no_operator_iterates_or_converts_types() -> None:
    assert not KNOWN & (ITERATORS | {"cat", "substr", "merge", "log"})
    assert (result_type("=="), result_type("+"), result_type("if")) == ("boolean", "number", None)


@pytest.mark.parametrize(
    ("node", "kind"),
    [(True, "boolean"), ("x", "string"), (1, "number"), (1.5, "number"), (None, None), ({}, None), (MAX_INT + 1, None)],
)
def test_a_literal_has_a_type_unless_a_reader_could_round_it(node: Any, kind: str | None) -> None:
    assert literal_type(node) == kind


@pytest.mark.parametrize(
    ("node", "kind"), [([], "array"), ([1, 2], "array<number>"), ([1, "a"], None), ([True, 1], None), ("a", "string")]
)
def test_a_list_has_one_type_or_none(node: Any, kind: str | None) -> None:
    assert value_type(node) == kind


def test_a_plain_array_fits_every_typed_one_and_no_scalar() -> None:
    assert compatible("array", "array<string>")
    assert not compatible("array<number>", "array<string>")
    assert not compatible("array", "string")
    assert operands_of(7) == [7]


def nested(depth: int) -> Any:
    return {"!": [nested(depth - 1)]} if depth else True


def test_a_condition_over_its_limits_is_named() -> None:
    assert oversized(nested(4)) == ""
    assert "deeper" in oversized(nested(MAX_CONDITION_DEPTH + 1))
    assert "nodes" in oversized({"and": [True] * (MAX_CONDITION_NODES + 1)})


@given(
    st.recursive(
        st.integers(-1000, 1000),
        lambda inner: st.builds(
            lambda name, operands: {name: operands},
            st.sampled_from(["+", "*", "-"]),
            st.lists(inner, min_size=2, max_size=2),
        ),
        max_leaves=8,
    )
)
def test_no_result_exceeds_its_computed_magnitude(node: Any) -> None:
    def value(one: Any) -> float:
        if not isinstance(one, dict):
            return one
        ((name, (left, right)),) = one.items()
        a, b = value(left), value(right)
        return a + b if name == "+" else a - b if name == "-" else a * b

    overflows: list[Any] = []
    assert abs(value(node)) <= magnitude(node, (), overflows)
    assert overflows == []


def test_a_product_that_could_overflow_is_pointed_at() -> None:
    overflows: list[Any] = []
    magnitude({"*": [{"var": "args.n"}] * 20}, ("if",), overflows)
    assert overflows == [("if", "*")]
