"""The simulated shop: orders, a payments service that is the ground truth of effects, and the adapters to it.

The service knows nothing of ContextOS. Its strategies: `keyed` pays once per key; `lookup` refuses calls after their
`not_after` and answers lookups; `lookup_weak` answers lookups and refuses nothing; `none` pays every call. Money is in
whole rupees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, ToolError
from contextos.errors import LostReply, Unavailable
from contextos_sim.faults import OUTAGES_US, Faults
from contextos_sim.scheduler import Scheduler, pause

REFUNDABLE = ("delivered", "returned")
DEAR_CENTS = 99
"""Above the 25 cents that the directory allows the example's agent in one run."""


SERVICE_DEFAULTS: Final = {"speed": "standard"}
"""What the simulated payment service takes for an argument that is left out, as its schema says."""


@dataclass(frozen=True, slots=True)
class ShopOrder:
    """An order of the simulated shop."""

    order_id: str
    customer_id: str
    total_inr: int
    currency: str
    status: str


@dataclass(frozen=True, slots=True)
class Effect:
    """A refund that was paid: its idempotency key and arguments, and the run and call that caused it."""

    number: int
    key: str
    args: Mapping[str, Any]
    run_id: str
    tool_call_id: str
    at_us: int

    @property
    def output(self) -> dict[str, Any]:
        """Return the output with which the payments service answers this refund."""
        return {
            "transaction_id": f"txn_{self.number}",
            "refund_amount_inr": self.args["amount_inr"],
            "currency": self.args["currency"],
        }


class Shop:
    """The simulated shop: its orders, and every refund that was paid. Each refund is passed to `on_effect` at once.

    `in_flight` counts the calls that can still pay: in a stalled process, or on the network. Until `away_until_us` the
    payments service is away.
    """

    def __init__(
        self,
        orders: Mapping[str, ShopOrder],
        strategy: str,
        now_us: Callable[[], int],
        on_effect: Callable[[Effect], None],
        *,
        dear: bool = False,
    ) -> None:
        """`dear`: a payment costs more than any run is allowed to spend, which only its reply says."""
        self.orders, self.strategy = dict(orders), strategy
        self.effects: list[Effect] = []
        self.in_flight = 0
        self.away_until_us = 0
        self._now_us, self._on_effect = now_us, on_effect
        self._cost_cents = DEAR_CENTS if dear else 0.31

    def refundable(self, order_id: str) -> int:
        """Return the rupees of an order that can still be refunded."""
        order = self.orders[order_id]
        paid: int = sum(effect.args["amount_inr"] for effect in self.effects if effect.args["order_id"] == order_id)
        return order.total_inr - paid if order.status in REFUNDABLE else 0

    def by_key(self, key: str) -> Effect | None:
        """Return the first refund that was paid under this idempotency key, or None."""
        return next((effect for effect in self.effects if effect.key == key), None)

    def pay(self, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        """Handle a refund request that has arrived at the service, whether or not its caller still waits."""
        key = context.idempotency_key or context.tool_call_id
        if self.strategy == "lookup" and self._now_us() > context.not_after_us:
            return _refused("too_late", "the call came after its `not_after`; nothing was paid")
        earlier = self.by_key(key) if self.strategy == "keyed" else None
        if earlier is not None:
            return self.paid(earlier)
        if args["order_id"] not in self.orders or not 0 < args["amount_inr"] <= self.refundable(args["order_id"]):
            return _refused("not_refundable", "the order has not that much left to refund")
        args = {**SERVICE_DEFAULTS, **args}
        effect = Effect(len(self.effects) + 1, key, args, context.run_id, context.tool_call_id, self._now_us())
        self.effects.append(effect)
        self._on_effect(effect)
        return self.paid(effect)

    def paid(self, effect: Effect) -> AdapterReply:
        """Return the service's reply for a refund that was paid."""
        return AdapterReply(output=effect.output, mutations=(f"refund:{effect.number}",), cost_cents=self._cost_cents)


def _refused(code: str, message: str) -> AdapterReply:
    return AdapterReply(error=ToolError(code=code, message=message), cost_cents=0.31)


class CallingHost(Protocol):
    """The simulated process that an adapter runs in. `enter` is called at the start of each call."""

    async def enter(self, port: str) -> None: ...


@dataclass(slots=True)
class OrdersAdapter:
    """The read-only calls of the shop: `lookup` reads an order, `eval` evaluates the returns policy for it."""

    definition: Callable[[], AdapterDefinition]
    shop: Shop
    faults: Faults
    host: CallingHost

    def describe(self) -> AdapterDefinition:
        return self.definition()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        assert context.idempotency_key is None, "a read has no key"
        await self.host.enter(capability)
        if self.faults.strikes("adapter_unavailable"):
            raise Unavailable("orders", "the simulated shop is away")
        if self.faults.strikes("reply_lost"):
            raise LostReply("the simulated answer of a read was lost; read again")
        if self.faults.strikes("slow"):
            await pause(self.faults.between(1, 15) * 1_000_000)
        order = self.shop.orders.get(args["order_id"])
        if order is None:
            return _refused("order_not_found", "there is no such order")
        if capability == "lookup":
            return AdapterReply(
                output={
                    "order_id": order.order_id,
                    "customer_id": order.customer_id,
                    "total_inr": order.total_inr,
                    "currency": order.currency,
                    "status": order.status,
                },
                cost_cents=0.1,
            )
        left = self.shop.refundable(order.order_id)
        answer = {"eligible": 0 < args["amount_inr"] <= left, "refundable_inr": left, "policy_version": "returns-4"}
        return AdapterReply(output=answer, cost_cents=0.1)

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        raise LostReply(f"`{capability}` is a read of `{context.run_id}`; there is no `{idempotency_key}` to look up")


@dataclass(slots=True)
class PaymentsAdapter:
    """The connection to the payments service, which loses, duplicates and delays requests and replies."""

    definition: Callable[[], AdapterDefinition]
    shop: Shop
    faults: Faults
    host: CallingHost
    scheduler: Scheduler

    def describe(self) -> AdapterDefinition:
        return self.definition()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        assert capability == "issue_refund", "the shop has one way to pay"
        self.shop.in_flight += 1
        try:
            return await self._call(args, context)
        finally:
            self.shop.in_flight -= 1

    async def _call(self, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        await self.host.enter("payments.call")
        strikes = self.faults.strikes
        self._refuse_while_away()
        # A call that was certainly not sent is only sent again where the effect is keyed.
        if strikes("adapter_unavailable") or self.faults.strikes_at("away at", f"payments.call {self.shop.strategy}"):
            raise Unavailable("payments", "the simulated service is away")
        if strikes("request_lost"):
            raise LostReply("the simulated request was lost on the way; look it up")
        if strikes("late_delivery"):
            self._later(args, context)
            raise LostReply("the simulated request is still on its way; look it up")
        if strikes("slow"):
            await pause(self.faults.between(1, 25) * 1_000_000)
        reply = self.shop.pay(args, context)
        if self.shop.strategy == "keyed" and strikes("duplicate"):
            self._later(args, context)
        await self.host.enter("payments.reply")
        if strikes("reply_lost"):
            raise LostReply("the simulated reply was lost; look it up")
        if reply.output is not None and strikes("garbled"):
            return AdapterReply(output={"transaction_id": 7}, mutations=reply.mutations, cost_cents=0.31)
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        assert context.idempotency_key == idempotency_key, f"`{capability}` is looked up by its own key"
        await self.host.enter("payments.lookup")
        self._refuse_while_away()
        if self.faults.strikes("adapter_unavailable"):
            raise Unavailable("payments", "the simulated service is away")
        if self.faults.strikes("reply_lost"):
            raise LostReply("the simulated answer of a lookup was lost; look again")
        effect = self.shop.by_key(idempotency_key)
        await self.host.enter("payments.looked_up")
        return None if effect is None else self.shop.paid(effect)

    def _refuse_while_away(self) -> None:
        """Begin an outage if one strikes. During it half of the requests are refused, and half are never heard of."""
        now_us = self.scheduler.now_us
        if self.faults.strikes("outage"):
            self.shop.away_until_us = now_us + OUTAGES_US[self.faults.between(0, len(OUTAGES_US) - 1)]
        if self.faults.on and now_us < self.shop.away_until_us:
            if self.faults.likely(0.5):
                raise Unavailable("payments", "the simulated service is away")
            raise LostReply("the simulated service does not answer")

    def _later(self, args: Mapping[str, Any], context: CallContext) -> None:
        """The network delivers the request later; the process that sent it can be gone by then."""

        async def deliver() -> None:
            self.shop.pay(args, context)
            self.shop.in_flight -= 1

        self.shop.in_flight += 1
        self.scheduler.spawn("network", deliver(), delay_us=self.faults.between(1, 60_000_000))
