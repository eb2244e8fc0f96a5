"""A condition prints as the text that gives it back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.packs.expressions import compile_condition
from contextos.packs.printing import print_condition
from contextos.trust.policy.conditions import analyse_condition

NUMBERS = st.integers(-50, 50) | st.floats(-100, 100, allow_nan=False).map(lambda one: round(one, 3))
NUMBER_FACTS = st.sampled_from(["args.n", "evidence.ci.count", "evidence.c-i.class"]).map(lambda path: {"var": path})
TEXTS = st.text(max_size=6)
TEXT_FACTS = st.sampled_from(["args.env", "user.role", "evidence.ci.é name"]).map(lambda path: {"var": path})


def calculations(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pair = st.tuples(inner, inner).map(list)
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*"]), pair).map(lambda two: {two[0]: two[1]}),
        st.tuples(st.sampled_from(["/", "%"]), inner, st.sampled_from([2, 7])).map(lambda t: {t[0]: [t[1], t[2]]}),
        st.tuples(st.sampled_from(["min", "max"]), pair).map(lambda two: {two[0]: two[1]}),
        NUMBER_FACTS.map(lambda fact: {"-": [fact]}),
        st.tuples(NUMBER_FACTS, NUMBERS).map(lambda two: {"var": [two[0]["var"], two[1]]}),
    )


AMOUNTS = st.recursive(NUMBERS | NUMBER_FACTS, calculations, max_leaves=5)
COMPARED = st.one_of(
    st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), AMOUNTS, AMOUNTS).map(
        lambda t: {t[0]: [t[1], t[2]]}
    ),
    st.tuples(st.sampled_from(["<", "<="]), AMOUNTS, AMOUNTS, AMOUNTS).map(lambda t: {t[0]: list(t[1:])}),
    st.tuples(st.sampled_from(["==", "!="]), TEXT_FACTS, TEXTS).map(lambda t: {t[0]: [t[1], t[2]]}),
    st.tuples(TEXT_FACTS, st.lists(TEXTS, min_size=1, max_size=3)).map(lambda t: {"in": list(t)}),
    st.just({"var": "evidence.ci.green"}),
    st.lists(st.sampled_from(["args.n", "args.env"]), min_size=1, max_size=2).map(lambda p: {"!!": [{"missing": p}]}),
    st.just({"!": [{"missing_some": [1, ["args.n", "args.env"]]}]}),
)


def conditions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        several.map(lambda parts: {"and": parts}),
        several.map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"!": part.get("!!", [part])}),
        st.tuples(inner, inner, inner).map(
            lambda t: {"if": [t[0], t[1], *(t[2]["if"] if isinstance(t[2], dict) and "if" in t[2] else [t[2]])]}
        ),
    )


CONDITIONS = st.recursive(COMPARED, conditions, max_leaves=6)


@given(CONDITIONS)
def test_text_and_jsonlogic_give_each_other(condition: Any) -> None:
    assert compile_condition(print_condition(condition)) == condition


@given(CONDITIONS)
def test_the_text_reads_the_same_facts(condition: Any) -> None:
    again = compile_condition(print_condition(condition))
    assert analyse_condition(again).reads == analyse_condition(condition).reads


@pytest.mark.parametrize(
    ("logic", "text"),
    [
        ({"===": [{"var": "args.a"}, 1]}, "args.a == 1"),
        ({"!==": [{"var": "args.a"}, 1]}, "args.a != 1"),
        ({"!!": {"var": "args.a"}}, "args.a"),
        ({"and": [{"var": "args.a"}]}, "args.a"),
        ({"+": [{"var": "args.a"}]}, "args.a"),
        ({"missing": "args.a"}, "missing(args.a)"),
    ],
    ids=["strict equality", "strict inequality", "double negation", "and of one", "sum of one", "missing of one"],
)
def test_what_others_wrote_prints_too(logic: Any, text: str) -> None:
    assert print_condition(logic) == text
