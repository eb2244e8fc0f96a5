"""Compute the cost of a call of a model: the worst cost before it is sent, and the cost by its usage afterwards.

A cost is a whole number of units of 1/10,000 US cent (`UNITS_PER_CENT`). A token at a price of 1 US dollar per million
tokens costs 1 unit. The sum of a call is exact and is rounded once: to the nearest unit, half to even, when it is
settled, and up when it is reserved.
Source: Runtime Architecture, "AI Gateway / LLM Router"; API Contracts, "run_budget".
"""

from __future__ import annotations

from typing import Final

from contextos.contracts.envelopes.models import ModelPrices, ModelProfile, TokenKind, billionths
from contextos.contracts.model import MAX_COUNT, UNITS_PER_CENT
from contextos.contracts.ports.models import ModelUsage

_UNIT: Final = 10**24 // (100 * UNITS_PER_CENT)
"""A unit in 10^-24 US dollars, in which prices (10^-15) times factors (10^-9) are summed."""
BASE_TIERS: Final = frozenset({"", "standard", "default"})
"""The names of the service tier whose prices a profile states, for profiles whose `tiers` does not list it."""
_PROMPT: Final[tuple[TokenKind, ...]] = ("input", "cached_input", "cache_write", "cache_write_1h")
_ANSWER: Final[tuple[TokenKind, ...]] = ("output", "reasoning")


def settled_units(usage: ModelUsage, prices: ModelPrices) -> int | None:
    """Return the cost of a call by its usage, in units. Return None if a kind that was used or the tier has no price,
    or if the sum is too large to be recorded.

    A call counts as one request even if its usage does not count it. Requests without a price cost nothing.

    >>> prices = ModelPrices(currency="USD", as_of="2026-11-30", prices={"input": "3", "output": "15"})
    >>> settled_units(ModelUsage({"input": 1_200, "output": 80}), prices)
    4800
    """
    factor = _factor(usage.tier, prices)
    counts = {"requests": 1, **usage.counts}
    if factor is None or any(count < 0 for count in counts.values()):
        return None
    total = 0
    for kind, count in counts.items():
        price = prices.price(kind)
        if count and price is None:
            return None
        total += (price or 0) * count
    units, remainder = divmod(total * factor, _UNIT)
    units += remainder * 2 > _UNIT - units % 2
    return units if units <= MAX_COUNT else None


def worst_case_units(profile: ModelProfile, input_tokens: int, max_output_tokens: int) -> int:
    """Return the most that a call can cost, in units: each token of the prompt and of the answer at the highest price
    of its kinds, one request, and the dearest tier. Requests of the provider's own tools are not included, because the
    runtime asks for none.

    `input_tokens` is the most tokens of the prompt, and `max_output_tokens` the most tokens of the answer.
    """
    prices = profile.prices
    total = _highest_price(prices, _PROMPT) * input_tokens + _highest_price(prices, _ANSWER) * max_output_tokens
    total += prices.price("requests") or 0
    return -(-total * max(map(billionths, ("1", *prices.tiers.values()))) // _UNIT)


def _highest_price(prices: ModelPrices, kinds: tuple[TokenKind, ...]) -> int:
    """Return the highest price of one token among these kinds."""
    return max(prices.price(kind) or 0 for kind in kinds)


def _factor(tier: str, prices: ModelPrices) -> int | None:
    """Return the factor by which a tier multiplies every price, in billionths; None if the prices of the tier are not
    known.
    """
    factor = prices.tiers.get(tier, "1" if tier in BASE_TIERS else None)
    return None if factor is None else billionths(factor)
