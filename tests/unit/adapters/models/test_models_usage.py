"""What providers say that they bill, read by each wire and settled to the unit of an invoice that a person worked out.

Each file of `usage/` is one answer, made after the documentation of its provider. `stream` has the events of a streamed
one. `counts` and `tier` are what is read of it. `invoice` has for each kind the count, the price in US dollars of a
million tokens or of one request, and the amount; without one the reserve of the call counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from contextos.action.models.prices import settled_units
from contextos.adapters.models.anthropic_answer import StreamedMessage, messages_usage
from contextos.adapters.models.openai_wire import keep_usage
from contextos.adapters.models.transport import Answer
from contextos.contracts.envelopes.models import ModelPrices
from contextos.contracts.ports.models import ModelUsage

BODIES = sorted((Path(__file__).parent / "usage").glob("*.json"))


def openai_usage(body: dict[str, Any], *totals: str) -> ModelUsage | None:
    answer = Answer(None)
    keep_usage(answer, body.get("usage"), body.get("service_tier"), (totals[0], totals[1]))
    return answer.usage


WIRES: dict[str, Callable[[Any], ModelUsage | None]] = {
    "anthropic": messages_usage,
    "openai": lambda body: openai_usage(body, "prompt_tokens", "completion_tokens"),
    "openai_responses": lambda body: openai_usage(body, "input_tokens", "output_tokens"),
}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))  # type: ignore[no-any-return]


def usage_in(recorded: dict[str, Any]) -> ModelUsage | None:
    if "stream" not in recorded:
        return WIRES[recorded["wire"]](recorded["body"])
    message = StreamedMessage()
    for event in recorded["stream"]:
        message.add(event)
    assert message.ended
    return messages_usage(message.whole())


def tokens(usage: ModelUsage) -> dict[str, int]:
    return {kind: count for kind, count in usage.counts.items() if kind != "requests"}


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_usage_settles_to_the_unit_of_the_invoice(path: Path) -> None:
    recorded = read(path)
    usage = usage_in(recorded)
    if "counts" in recorded or "invoice" not in recorded:
        expected = (recorded["counts"], recorded["tier"]) if "counts" in recorded else None
        assert (usage and (tokens(usage), usage.tier)) == expected
    prices = ModelPrices(currency="USD", as_of="2026-11-30", prices=recorded["prices"], tiers=recorded.get("tiers", {}))
    assert (usage and settled_units(usage, prices)) == recorded.get("units")
    if usage is not None:
        stated = recorded["body"]["usage"] if "body" in recorded else None
        assert stated is None or usage.reported == stated


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_the_invoice_itself_adds_up(path: Path) -> None:
    recorded = read(path)
    lines = [
        (kind, Decimal(count), Decimal(price), Decimal(usd)) for kind, count, price, usd in recorded.get("invoice", ())
    ]
    for kind, count, price, usd in lines:
        assert usd == count * price / (1 if kind in ("requests", "tool_requests") else 1_000_000)
    if lines:
        total = sum(usd for *_, usd in lines) * Decimal(recorded["factor"])
        assert total == Decimal(recorded["usd"])
        assert abs(Decimal(recorded["units"]) - total * 1_000_000) <= Decimal("0.5")


def test_there_are_bodies_of_each_wire_and_of_each_kind() -> None:
    recorded = [read(path) for path in BODIES]
    assert len(recorded) >= 40
    assert {one["wire"] for one in recorded} == {"anthropic", "openai", "openai_responses"}
    billed = {line[0] for one in recorded for line in one.get("invoice", ())}
    assert billed == {
        "input",
        "cached_input",
        "cache_write",
        "cache_write_1h",
        "output",
        "reasoning",
        "requests",
        "tool_requests",
    }
