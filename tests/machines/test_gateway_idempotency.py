"""One act happens at most once, whatever the replies, retries, runs and people do; and what a record says is true.

Random requests for few acts, with replies that are lost before or after the money moved, an outside that is down or
refuses, people who settle by what the shop's own database says, and operators who cancel.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, ToolError
from contextos.deployment import operator
from contextos.errors import ApprovalRefused, Conflict, LostReply, Unavailable
from tests.world import APPROVER, OPERATOR, TENANT, TestWorld, open_world, request

FAULTS: tuple[tuple[str, ...], ...] = (
    (),
    ("lost_after",),
    ("lost_before",),
    ("down",),
    ("lost_after",) * 3,
    ("lost_before",) * 3,
    ("down",) * 3,
    ("down", "lost_after"),
    ("lost_after", "down", "down"),
    ("lost_before", "lost_after", "lost_before"),
    ("refused",),
    ("lost_after", "refused"),
    ("lost_before", "refused"),
)
AMOUNTS = (700, 3100)
ENDS = frozenset({"completed", "rejected", "refused", "escalated", "exhausted", "cancelled"})


class Faulty:
    """The payments of the shop behind a connection that fails as the test says, once per fault."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.faults: list[str] = []

    def describe(self) -> AdapterDefinition:
        return self.inner.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "down":
            raise Unavailable("adp_payments", "it is down")
        if fault == "lost_before":
            raise LostReply("the request was lost on the way")
        if fault == "refused":
            return AdapterReply(error=ToolError(code="http_401", message="the token is not valid"))
        reply = await self.inner.call(capability, args, context)
        if fault == "lost_after":
            raise LostReply("the reply was lost on the way")
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        if self.faults and self.faults.pop(0) != "none":
            raise LostReply("the look-up was lost on the way")
        return await self.inner.lookup(capability, idempotency_key, context)


class Gateway(RuleBasedStateMachine):
    """Runs of the real runtime over the real shop; the model is the shop's own database."""

    @initialize(payments=st.sampled_from(["keyed", "none"]))
    def open(self, payments: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.world: TestWorld = self.drive(open_world(Path(self.folder.name), payments=payments))
        self.line = Faulty(self.world.adapters["adp_payments"])
        self.world.adapters["adp_payments"] = self.line  # type: ignore[assignment]
        self.number = 0
        self.states: dict[str, str] = {}
        self.amounts: dict[str, int] = {}

    def drive(self, made: Any) -> Any:
        return self.loop.run_until_complete(made)

    def seen(self, run_id: str) -> None:
        view = self.drive(self.world.deployment.view(TENANT, run_id))
        before = self.states.get(run_id)
        assert before not in ENDS or before == view.state, "an end is final"
        self.states[run_id] = view.state

    @rule(amount=st.sampled_from(AMOUNTS), faults=st.sampled_from(FAULTS))
    def ask(self, amount: int, faults: tuple[str, ...]) -> None:
        self.number += 1
        self.line.faults = list(faults)
        try:
            view = self.drive(self.world.invoke(request(amount, f"req_{self.number}")))
        except Unavailable:
            return
        self.amounts[view.run_id] = amount
        self.seen(view.run_id)

    def waiting(self, what: str) -> list[str]:
        found = []
        for run_id, state in self.states.items():
            if state == "waiting":
                view = self.drive(self.world.deployment.view(TENANT, run_id))
                if view.waiting and view.waiting["for"] == what:
                    found.append(run_id)
        return found

    @precondition(lambda self: self.waiting("approval"))
    @rule(verdict=st.sampled_from(["approved", "denied"]), faults=st.sampled_from(FAULTS))
    def answer(self, verdict: str, faults: tuple[str, ...]) -> None:
        for run_id in self.waiting("approval")[:1]:
            self.line.faults = list(faults)
            try:
                self.drive(self.world.approve(run_id, verdict, approver=APPROVER))
            except ApprovalRefused:
                # An earlier answer, or a cancellation, was first: the run only has to be driven.
                self.drive(self.world.deployment.advance(TENANT, run_id))
            self.seen(run_id)

    @precondition(lambda self: self.waiting("settlement"))
    @rule()
    def settle(self) -> None:
        """A person looks into the shop and says what is true."""
        for run_id in self.waiting("settlement")[:1]:
            paid = [one for one in self.world.refunds() if one["amount_inr"] == self.amounts[run_id]]
            output = (
                {
                    "transaction_id": paid[0]["transaction_id"],
                    "refund_amount_inr": paid[0]["amount_inr"],
                    "currency": "INR",
                }
                if paid
                else None
            )
            settlement = operator.SettlementInput(
                bool(paid),
                OPERATOR,
                "kg:order:ord_881#snapshot_kg_1",
                output,
                (f"refund:{paid[0]['transaction_id']}",) if paid else (),
            )
            self.drive(self.world.settle(run_id, settlement))
            self.seen(run_id)

    @precondition(lambda self: "waiting" in self.states.values())
    @rule()
    def cancel(self) -> None:
        for run_id in [name for name, state in self.states.items() if state == "waiting"][:1]:
            try:
                self.drive(
                    operator.request_cancel(self.world.deployment, TENANT, run_id, by=self.world.actor(), reason="x")
                )
            except (ApprovalRefused, Conflict):
                return
            self.drive(self.world.deployment.advance(TENANT, run_id))
            self.seen(run_id)

    @precondition(lambda self: self.states.keys() and not ENDS.issuperset(self.states.values()))
    @rule(later_s=st.sampled_from([0, 1, 60]))
    def drive_all(self, later_s: int) -> None:
        self.world.clock.at_us += later_s * 1_000_000
        for run_id, state in list(self.states.items()):
            if state not in ENDS:
                self.drive(self.world.deployment.advance(TENANT, run_id))
                self.seen(run_id)

    @invariant()
    def one_act_happens_once(self) -> None:
        paid = Counter(refund["amount_inr"] for refund in self.world.refunds())
        assert all(times == 1 for times in paid.values()), paid

    @invariant()
    def what_a_record_says_is_true(self) -> None:
        paid = {refund["amount_inr"] for refund in self.world.refunds()}
        for run_id, state in self.states.items():
            if state == "completed":
                assert self.amounts[run_id] in paid

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.drive(verify.verify_tenant(self.world.stores.tenant(TENANT), TENANT, self.world.keys))
            for run_id, state in self.states.items():
                if state in ENDS:
                    self.drive(replay(self.world.deployment, TENANT, run_id))
            self.world.close()
            self.loop.close()
            self.folder.cleanup()


@pytest.mark.requirement("A-SAME-ACT", "A-NO-BLIND-RETRY")
class TestGateway(Gateway.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=settings().max_examples // 6, stateful_step_count=16)
