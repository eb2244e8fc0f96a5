"""A shop whose agent is observed: its tools, and 500 calls that the agent makes of them in ten sessions.

The calls follow from their numbers alone. `world` holds everything that the writes change. Beside it lies
`wrong_calls.json`: calls that a pack mined from this recording must not let through. It was written before the miner.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from contextos import Key, read, toolset, write
from contextos.contracts.ports.outside import Adapter

SESSIONS, CALLS_OF_SESSION = 10, 50
WRONG_CALLS = Path(__file__).with_name("wrong_calls.json")

OrderId = Annotated[str, Field(min_length=1, max_length=200)]
Region = Literal["eu", "us", "in", "br"]
Currency = Literal["EUR", "USD", "INR", "GBP"]
Column = Literal["name", "city", "orders", "email"]
Url = Annotated[str, Field(min_length=1, max_length=2_000)]
Message = Annotated[str, Field(max_length=8_000)]


class Order(BaseModel):
    """An order."""

    order_id: str
    region: str
    total: int


class Filter(BaseModel):
    """Which customers are counted."""

    country: Annotated[str, Field(max_length=40)]
    min_spend: Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class World:
    """What the writes of the tools change: one line for each effect."""

    effects: list[str]

    def did(self, *what: Any) -> str:
        self.effects.append(json.dumps(what))
        return f"done {len(self.effects)}"


def tools_of(world: World) -> Adapter:
    """The tools of the shop over one world."""

    @read(integrity="trusted", produces="order")
    def find_order(order_id: OrderId, region: Region) -> Order:
        """The order of this id."""
        return Order(order_id=order_id, region=region, total=len(order_id) * 10)

    @read(integrity="trusted")
    def search_tickets(
        text: Annotated[str, Field(max_length=4_000)],
        limit: Annotated[int, Field(ge=1, le=1_000)],
        include_deleted: bool = False,
    ) -> int:
        """The number of tickets that have this text."""
        return limit if include_deleted else limit // 2

    @read(integrity="trusted")
    def count_customers(filter: Filter, columns: Annotated[list[Column], Field(min_length=1, max_length=4)]) -> int:
        """The number of customers, by what is known of them."""
        return filter.min_spend * len(columns)

    @write(integrity="trusted", risk="reversible", idempotency="keyed")
    def tag_order(order_id: OrderId, tag: Annotated[str, Field(max_length=200)], note: Message, key: Key) -> str:
        """Tag an order."""
        return world.did("tag", order_id, tag, note)

    @write(integrity="trusted", risk="reversible", idempotency="keyed")
    def set_stock(sku: OrderId, warehouse: Annotated[str, Field(max_length=40)], quantity: int, key: Key) -> str:
        """Set the quantity of an article in a warehouse."""
        return world.did("stock", sku, warehouse, quantity)

    @write(integrity="trusted", risk="reversible", idempotency="keyed")
    def notify(url: Url, message: Message, key: Key, urgent: bool = False) -> str:
        """Send a message to the hook of a partner."""
        return world.did("notify", url, message, urgent)

    @write(integrity="trusted", risk="irreversible", idempotency="keyed")
    def refund(order_id: OrderId, amount: int, currency: Currency, key: Key) -> str:
        """Pay money back."""
        return world.did("refund", order_id, amount, currency)

    @write(integrity="trusted", risk="irreversible", idempotency="keyed")
    def delete_customer(customer_id: OrderId, key: Key) -> str:
        """Delete a customer for ever."""
        return world.did("delete", customer_id)

    listed = [find_order, search_tickets, count_customers, tag_order, set_stock, notify, refund, delete_customer]
    return toolset("shop", listed)


class RecordedCall(NamedTuple):
    """One call that the agent makes: in which session, under which id, of which tool, with which arguments."""

    session: str
    call_id: str
    tool: str
    args: dict[str, Any]


def recorded_calls() -> Iterator[RecordedCall]:
    """Yield the 500 calls of the recording, in order."""
    for number in range(SESSIONS * CALLS_OF_SESSION):
        session, place = divmod(number, CALLS_OF_SESSION)
        tool, args = _CALLS[place % len(_CALLS)](number + place // len(_CALLS))
        yield RecordedCall(f"watch_{session}", f"call_{place}", f"shop.{tool}", args)


def _order(number: int) -> str:
    return f"ord_{10_000 + number * 37 % 9_000}"


def _find(number: int) -> tuple[str, dict[str, Any]]:
    return "find_order", {"order_id": _order(number), "region": ("eu", "us", "in")[number % 3]}


def _search(number: int) -> tuple[str, dict[str, Any]]:
    words = ("parcel lost", "refund please", "wrong size", "box broken", "no invoice")
    return "search_tickets", {"text": f"{words[number % 5]} {number}", "limit": 5 + number % 21}


def _count(number: int) -> tuple[str, dict[str, Any]]:
    columns = (["city"], ["city", "orders"], ["name", "city"])[number % 3]
    country = ("Germany", "India")[number % 2]
    return "count_customers", {"filter": {"country": country, "min_spend": 100 * (1 + number % 3)}, "columns": columns}


def _tag(number: int) -> tuple[str, dict[str, Any]]:
    tag = ("late", "vip", "fragile", "gift")[number % 4]
    return "tag_order", {"order_id": _order(number), "tag": tag, "note": f"seen by the agent, case {number}"}


def _stock(number: int) -> tuple[str, dict[str, Any]]:
    return "set_stock", {
        "sku": f"SKU-{100 + number % 83}-{'ABCDE'[number % 5]}",
        "warehouse": ("wh_1", "wh_2", "wh_5")[number % 3],
        "quantity": number * 7 % 240,
    }


def _notify(number: int) -> tuple[str, dict[str, Any]]:
    host = ("hooks.acme.example", "partner.parcel.example")[number % 2]
    told = {"url": f"https://{host}/in/{number}", "message": f"order {_order(number)} has news"}
    return "notify", {**told, "urgent": False} if number % 4 else told


def _refund(number: int) -> tuple[str, dict[str, Any]]:
    currency = ("EUR", "USD", "INR")[number % 3]
    return "refund", {"order_id": _order(number), "amount": 5 + number * 11 % 476, "currency": currency}


_CALLS = (_find, _search, _tag, _find, _stock, _notify, _count, _find, _refund, _search)
