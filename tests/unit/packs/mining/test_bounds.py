"""Bounds from seen values: each seen value fits, a wrong one that is near does not, and no text breaks a pattern."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.packs.mining.bounds import MAX_LISTED_VALUES, bound_of
from contextos.trust.policy.constraints import check_args, lint_constraint

JSON = st.recursive(
    st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def fits(bound: Any, value: Any) -> bool:
    return not check_args({"x": (bound,)}, {"x": value}, approved=False)


@given(st.lists(JSON, min_size=1, max_size=40) | st.lists(st.text(max_size=60), min_size=13, max_size=40))
def test_each_value_that_was_seen_fits_its_bound(values: list[Any]) -> None:
    bound = bound_of(values)
    if bound is not None:
        assert lint_constraint(bound, "") == ()
        assert all(fits(bound, value) for value in values)


@given(st.lists(st.text(max_size=40), min_size=MAX_LISTED_VALUES + 1, max_size=30, unique=True))
def test_a_text_far_longer_than_any_fits_no_bound(texts: list[str]) -> None:
    bound = bound_of(texts)
    if bound is not None:
        assert not fits(bound, max(texts, key=len) + "x" * 41)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_each_number_that_was_seen_fits_its_bound(values: list[float]) -> None:
    bound = bound_of(values)
    assert bound is None or all(fits(bound, value) for value in values)


def many(text: str) -> list[str]:
    return [text.format(number) for number in range(100, 130)]


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (many("https://a.example/in/{}"), ["https://b.example/in/100", "https://a.example.b.example/in/100"]),
        (many("https://a.example/in/{}"), ["https://a.example@b.example/in/1", "http://a.example/in/100"]),
        (many("https://a.example/in/{}"), ["https://a.example:81/in/100", "https://a.example", "//a.example/in/100"]),
        ([*many("https://a.example/{}"), "https://a.example"], ["https://a.example/", "https://a.exampleX"]),
        (many("user{}@acme.example"), ["user100@evil.example", "user100@acme.example.evil.example"]),
        (many("a.b+c[{}]$"), ["aXb+c[100]$", "a.bbc[100]$", "a.b+c[100]"]),
        (many("x-{}^"), ["x-100]", "x_100^", "x-100\\"]),
        (many("{}\nadmin: true"), ["100\radmin: true", "100\\nadmin: true"]),
        (many("é{}"), ["e100", "É100"]),
        ([*many("https://a.example/in/{}"), "no address"], ["https://b.example/in/100", "no addresses"]),
        ([*many("user{}@a.example"), "https://a.example/in"], ["user100@b.example", "https://b.example/in"]),
        ([1, 2, 3], [0, 4, True, "2"]),
        ([False, False], [True, 0]),
        ([["a"], ["a", "b"]], [["b"], [], ["b", "a"], "a"]),
        ([{"n": 1}], [{"n": 2}, {"n": 1, "m": 1}, {}]),
    ],
    ids=[
        "hosts",
        "user names in addresses",
        "ports and missing paths",
        "addresses without a path",
        "mail domains",
        "special characters",
        "characters of a class",
        "line breaks",
        "other letters",
        "a text among addresses",
        "an address among mails",
        "numbers",
        "flags",
        "lists",
        "objects",
    ],
)
def test_a_value_like_the_seen_ones_but_wrong_does_not_fit(seen: list[Any], wrong: list[Any]) -> None:
    bound = bound_of(seen)
    assert bound is not None
    assert [value for value in wrong if fits(bound, value)] == []


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None],
        ["a", None],
        [1, 1e300],
        [1, -1e300],
        ["x" * 1_001 + str(one) for one in range(20)],
        [[one] for one in range(20)],
    ],
    ids=["none", "null", "null among others", "a huge number", "a huge number below zero", "too long", "many lists"],
)
def test_what_no_bound_can_describe_has_none(values: list[Any]) -> None:
    assert bound_of(values) is None
