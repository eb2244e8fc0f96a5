"""The payments of a storm, in a file of their own: every process of it runs the same code, and no question is void."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.errors import LostReply, Unavailable

PAYMENTS = "adp_payments"


class WildPayments:
    """The shop's payments: some are always away, some lose replies, all take a moment."""

    def __init__(self, inner: Any, chance: random.Random) -> None:
        self._inner, self._chance = inner, chance

    def describe(self) -> AdapterDefinition:
        definition: AdapterDefinition = self._inner.describe()
        return definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        await asyncio.sleep(self._chance.random() / 20)
        fate = args["order_id"].split("_")[1]
        if fate == "away":
            raise Unavailable(PAYMENTS, "the bank is closed")
        if fate == "lossy" and self._chance.random() < 0.3:
            raise LostReply("it may not have arrived")
        reply: AdapterReply = await self._inner.call(capability, args, context)
        await asyncio.sleep(self._chance.random() / 20)
        if fate == "lossy" and self._chance.random() < 0.3:
            raise LostReply("it arrived, and nobody heard of it")
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        raise AssertionError("keyed payments are sent again")
