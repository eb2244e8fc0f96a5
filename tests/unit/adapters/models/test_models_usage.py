"""What providers say that they bill, read by each wire and settled to the unit of an invoice that a person worked out.

Each file of `usage/` is one answer, made after the documentation of its provider. `stream` has the events of a streamed
one. `counts` and `tier` are what is read of it. `invoice` has for each kind the count, the price in US dollars of a
million tokens or of one request, and the amount; without one the reserve of the call counts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from contextos.action.models.prices import settled_units
from contextos.adapters.models.anthropic_answer import StreamedMessage, messages_usage
from contextos.adapters.models.openai_chat import OpenAIChat
from contextos.adapters.models.openai_responses import OpenAIResponses
from contextos.adapters.models.openai_wire import keep_usage
from contextos.adapters.models.transport import Answer
from contextos.contracts.envelopes.models import ModelPrices, ModelWire
from contextos.contracts.ports.models import ModelUsage
from tests.model_servers import Served, event, model_call, model_server

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
    if recorded["wire"] != "anthropic":
        return asyncio.run(streamed_usage(recorded["wire"], recorded["stream"]))
    message = StreamedMessage()
    for one in recorded["stream"]:
        message.add(one)
    assert message.ended
    return messages_usage(message.whole())


async def streamed_usage(wire: ModelWire, stream: list[Any]) -> ModelUsage | None:
    """The usage in a stream of OpenAI, as its SDK splits it."""
    parts = [event(one) for one in (*stream, *(["[DONE]"] if wire == "openai" else ()))]
    make = OpenAIChat if wire == "openai" else OpenAIResponses
    async with model_server(Served(parts)) as server:
        return (await make(server.client()).complete(model_call(server, wire))).usage


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


def test_at_least_forty_invoices_of_each_wire_and_of_each_kind_were_worked_out() -> None:
    recorded = [one for path in BODIES if "invoice" in (one := read(path))]
    assert len(recorded) >= 40
    kinds = {"input", "cached_input", "cache_write", "output", "reasoning"}
    own = {"anthropic": {"cache_write_1h", "requests", "tool_requests"}}
    for wire in WIRES:
        of_wire = [one for one in recorded if one["wire"] == wire]
        assert {line[0] for one in of_wire for line in one["invoice"]} == kinds | own.get(wire, set())
        assert {"stream" in one for one in of_wire} == {True, False}, "streamed and not"
        assert "batch" in {one.get("tier") for one in of_wire}
