"""What every `Adapter` does. A subclass gives the fixture `world`: the payments of the refund example, reads and a
write with keys, behind whatever the adapter is of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.ports.outside import Adapter
from contextos.errors import LostReply, Unavailable

REFUND = {"order_id": "ord_881", "amount_inr": 900, "currency": "INR"}


@dataclass(frozen=True)
class AdapterWorld:
    """`make` gives the adapter of a definition, `orders` or `payments`; `paid` are the refunds in the books."""

    make: Callable[[AdapterDefinition], Any]
    orders: AdapterDefinition
    payments: AdapterDefinition
    paid: Callable[[], list[Mapping[str, Any]]]


def context(*, key: str | None = None, late: bool = False) -> CallContext:
    return CallContext("tenant_acme_prod", "run_1", "tool_1", key, 2**52, 20_000, is_late=lambda: late)


def called(adapter: Adapter, capability: str, args: Mapping[str, Any], how: CallContext) -> AdapterReply:
    """Call an adapter as the Tool Gateway does, which gives it the endpoints of its own list."""
    return asyncio.run(adapter.call(capability, args, replace(how, egress=adapter.describe().egress)))


class AdapterSuite:
    """The promises of the port that do not depend on what is behind it."""

    @pytest.fixture
    def world(self) -> Any:
        raise NotImplementedError

    def test_it_describes_itself_with_the_same_object(self, world: AdapterWorld) -> None:
        adapter = world.make(world.orders)
        assert adapter.describe() is adapter.describe()
        assert [one.name for one in adapter.describe().capabilities] == ["lookup"]

    def test_a_read_answers_an_object(self, world: AdapterWorld) -> None:
        reply = called(world.make(world.orders), "lookup", {"order_id": "ord_881"}, context())
        assert (reply.output or {})["total_inr"] == 9900
        assert (reply.error, reply.cost_cents) == (None, 0.1)
        canonical(reply.to_json())

    def test_a_business_error_is_a_reply(self, world: AdapterWorld) -> None:
        reply = called(world.make(world.orders), "lookup", {"order_id": "ord_nobody"}, context())
        assert reply.output is None
        assert reply.error is not None
        assert (bool(reply.error.code), bool(reply.error.message)) == (True, True)

    def test_an_unknown_capability_never_happens(self, world: AdapterWorld) -> None:
        with pytest.raises(Unavailable):
            called(world.make(world.orders), "nothing", {}, context())

    def test_a_key_pays_once_and_gives_the_same_answer_again(self, world: AdapterWorld) -> None:
        adapter = world.make(world.payments)
        first = called(adapter, "issue_refund", REFUND, context(key="key_1"))
        again = called(adapter, "issue_refund", REFUND, context(key="key_1"))
        assert first.output == again.output
        assert [one["key"] for one in world.paid()] == ["key_1"]

    def test_a_call_that_waited_too_long_is_not_sent(self, world: AdapterWorld) -> None:
        with pytest.raises(Unavailable):
            called(world.make(world.payments), "issue_refund", REFUND, context(key="key_1", late=True))
        assert world.paid() == []

    def test_a_lookup_that_it_does_not_have_stays_unknown(self, world: AdapterWorld) -> None:
        with pytest.raises(LostReply):
            asyncio.run(world.make(world.payments).lookup("issue_refund", "key_1", context()))

    def test_it_is_used_from_several_loops_and_closed_from_none(self, world: AdapterWorld) -> None:
        adapter = world.make(world.orders)
        for _ in range(2):
            assert called(adapter, "lookup", {"order_id": "ord_882"}, context()).error is None
        for _ in range(2):
            if hasattr(adapter, "close"):
                adapter.close()
