"""A call costs at most what is reserved for it, more usage never costs less, and nothing is ever paid back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.action.models.prices import settled_units, worst_case_units
from contextos.contracts.envelopes.models import ModelPrices, ModelProfile, TokenKind
from contextos.contracts.ports.models import ModelUsage

PROMPT: tuple[TokenKind, ...] = ("input", "cached_input", "cache_write", "cache_write_1h")
ANSWER: tuple[TokenKind, ...] = ("output", "reasoning")


def stated(prices: Mapping[str, str], tiers: Mapping[str, str] | None = None) -> ModelPrices:
    return ModelPrices(currency="USD", as_of="2026-11-30", prices=dict(prices), tiers=dict(tiers or {}))


def profile(prices: ModelPrices) -> ModelProfile:
    return ModelProfile.model_validate(
        {
            "profile_id": "model",
            "version": "1.0.0",
            "tenant": "t",
            "wire": "scripted",
            "model": "m",
            "context_window": 200_000,
            "max_output_tokens": 8_000,
            "regions": ["eu"],
            "data_class": "INTERNAL",
            "retention": "none",
            "prices": prices.model_dump(),
        }
    )


def a_price(most: int = 9_999_999) -> st.SearchStrategy[str]:
    fraction = st.text("0123456789", min_size=1, max_size=9)
    return st.builds(lambda whole, rest: f"{whole}.{rest}", st.integers(0, most), fraction)


@st.composite
def a_case(draw: st.DrawFn) -> tuple[ModelPrices, dict[TokenKind, int], str]:
    optional = draw(st.sets(st.sampled_from([*PROMPT[1:], "reasoning", "requests"])))
    prices = {kind: draw(a_price()) for kind in ("input", "output", *sorted(optional))}
    tiers = draw(st.dictionaries(st.sampled_from(["batch", "priority", "standard"]), a_price(20)))
    kinds = draw(st.sets(st.sampled_from([*PROMPT, *ANSWER])))
    counts = {kind: draw(st.integers(0, 5_000_000)) for kind in sorted(kinds)}
    return stated(prices, tiers), counts, draw(st.sampled_from(["", "standard", "default", "batch", "priority"]))


@given(a_case(), st.integers(0, 1_000), st.integers(0, 1_000))
def test_no_usage_within_the_estimate_costs_more_than_the_worst_case(
    case: tuple[ModelPrices, dict[TokenKind, int], str], spare_input: int, spare_output: int
) -> None:
    prices, counts, tier = case
    cost = settled_units(ModelUsage(counts, tier), prices)
    worst = worst_case_units(
        profile(prices),
        sum(counts.get(kind, 0) for kind in PROMPT) + spare_input,
        sum(counts.get(kind, 0) for kind in ANSWER) + spare_output,
    )
    assert cost is None or 0 <= cost <= worst


@given(a_case(), st.sampled_from([*PROMPT, *ANSWER]), st.integers(1, 1_000_000))
def test_more_usage_never_costs_less(
    case: tuple[ModelPrices, dict[TokenKind, int], str], kind: TokenKind, more: int
) -> None:
    prices, counts, tier = case
    less = settled_units(ModelUsage(counts, tier), prices)
    cost = settled_units(ModelUsage({**counts, kind: counts.get(kind, 0) + more}, tier), prices)
    assert less is None or cost is None or cost >= less


@given(a_case(), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_longer_prompt_or_answer_never_lowers_the_worst_case(
    case: tuple[ModelPrices, dict[TokenKind, int], str], prompt: int, answer: int, more: int
) -> None:
    model = profile(case[0])
    worst = worst_case_units(model, prompt, answer)
    assert worst <= worst_case_units(model, prompt + more, answer)
    assert worst <= worst_case_units(model, prompt, answer + more)


@pytest.mark.parametrize(
    ("prices", "usage", "units"),
    [
        ({"input": "0.5", "output": "1"}, ModelUsage({"input": 1}), 0),
        ({"input": "0.5", "output": "1"}, ModelUsage({"input": 3}), 2),
        ({"input": "0.000000001", "output": "1"}, ModelUsage({"input": 1_500_000_000}), 2),
        ({"input": "9999999.999999999", "output": "1"}, ModelUsage({"input": 800_000_000}), 7_999_999_999_999_999),
        ({"input": "9999999.999999999", "output": "1"}, ModelUsage({"input": 10**9}), None),
        ({"input": "1", "output": "1", "requests": "0.0000005"}, ModelUsage({}), 0),
        ({"input": "1", "output": "1", "requests": "0.01"}, ModelUsage({"requests": 3}), 30_000),
        ({"input": "1", "output": "1"}, ModelUsage({"input": 5, "cached_input": 0, "tool_requests": 0}), 5),
        ({"input": "1", "output": "1"}, ModelUsage({"input": 5, "requests": 2}), 5),
    ],
)
def test_a_cost_is_exact_and_rounded_once_half_to_even(
    prices: dict[str, str], usage: ModelUsage, units: int | None
) -> None:
    assert settled_units(usage, stated(prices)) == units


@pytest.mark.parametrize(
    "usage",
    [
        ModelUsage({"input": 1, "cached_input": 1}),
        ModelUsage({"input": 1, "cache_write_1h": 1}),
        ModelUsage({"input": 1, "tool_requests": 1}),
        ModelUsage({"input": 1}, "priority"),
        ModelUsage({"input": 1}, "Standard"),
        ModelUsage({"input": 10, "output": -1}),
    ],
)
def test_what_has_no_price_is_not_settled(usage: ModelUsage) -> None:
    assert settled_units(usage, stated({"input": "1", "output": "5"}, {"batch": "0.5"})) is None


def test_a_profile_can_state_a_factor_for_the_tier_that_is_the_usual_one_elsewhere() -> None:
    prices: Any = stated({"input": "1", "output": "5"}, {"default": "2", "": "3"})
    assert settled_units(ModelUsage({"input": 10}, "default"), prices) == 20
    assert settled_units(ModelUsage({"input": 10}, "standard"), prices) == 10
