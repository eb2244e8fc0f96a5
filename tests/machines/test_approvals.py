"""No payment without a valid approval: by a person with the right, in time, while everything it covers is unchanged.

People answer, deny, cancel, come too late, hold the wrong key; the clock moves, the process restarts, and what an
approval is bound to changes and changes back. The model is a table of what is true of each run that asked.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment import operator
from contextos.deployment.deployment import Deployment, DeploymentConfig
from contextos.errors import ApprovalRefused
from contextos.trust.seal import seal
from tests.e2e.test_approvals import OWNER_KEY, SECOND, SECOND_KEY, STRANGER_KEY, edge, with_keys
from tests.e2e.test_verdicts import Wrapped, edited
from tests.world import APPROVER, APPROVER_KEY, OPERATOR, TENANT, TestWorld, example, open_world, request

pytestmark = pytest.mark.slow

ORDER, CUSTOMER, PAYMENTS = "ord_895", "customer:cus_79", "adp_payments"
AMOUNTS = (3100, 3200, 3300, 3400)
PEOPLE: dict[str, tuple[str, bytes, str | None]] = {
    "an approver": (APPROVER, APPROVER_KEY, None),
    "another approver": (SECOND, SECOND_KEY, None),
    "who asked": ("usr_771", OWNER_KEY, "self_approval"),
    "the agent's owner": ("usr_owner_1", OWNER_KEY, "self_approval"),
    "another role": ("user_support_lead_5", SECOND_KEY, "not_approver"),
    "a stranger": ("user_nobody", STRANGER_KEY, "not_approver"),
    "the wrong key": (APPROVER, STRANGER_KEY, "assertion_invalid"),
}
"""Who answers, with which key, and why it does not count; None where it does."""
WHO = st.sampled_from([*PEOPLE, *["an approver"] * 6, "another approver"])
EVENTS = "restart restart wait deadline deadline cancel role role role delegation evidence definition pack"
EVENT = st.sampled_from(EVENTS.split())
FIRST, YES = st.sampled_from([0, *AMOUNTS]), st.sampled_from([True, True, False])
VERDICT, PICK = st.sampled_from([*["approved"] * 3, "denied"]), st.sampled_from([0, 0, 0, 1, 2, 3])
ENDS = frozenset({"completed", "rejected", "refused", "escalated", "exhausted", "cancelled"})


@dataclass(frozen=True)
class Bound:
    """The outside as far as an approval is bound to it. Whatever is put back counts as never changed."""

    pack: str = "ctxpack.support@5.2.0"
    definition: int = 0
    paid: int = 0
    delegation: bool = True
    evidence: bool = True


@dataclass
class Asked:
    """What the model knows of one run that asked for an approval."""

    amount: int
    deadline_us: int
    bound: Bound
    question: str = "open"
    approver: str = ""
    wish: bool = False
    state: str = "waiting"


class Approvals(RuleBasedStateMachine):
    """The real runtime over the real shop, beside the table."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.world: TestWorld = self.drive(open_world(Path(self.folder.name)))
        self.world.edit_directory(with_keys)
        self.world.know("usr_771")
        self.payments = self.world.adapters[PAYMENTS]
        self.now, self.has_role, self.doubt, self.number = Bound(), True, "", 0
        self.runs: dict[str, Asked] = {}
        self.paid: list[int] = []
        self.denied: set[tuple[int, int]] = set()
        self.ask(AMOUNTS[0], repaired=True)

    def drive(self, made: Any) -> Any:
        return self.loop.run_until_complete(made)

    def picked(self, ago: int) -> tuple[str, Asked]:
        return sorted(self.runs.items(), key=lambda one: one[1].state not in ENDS)[-1 - ago % len(self.runs)]

    def refusal_of(self, made: Any) -> str | None:
        try:
            self.drive(made)
        except ApprovalRefused as refused:
            return refused.reason
        return None

    @precondition(lambda self: [asked.state for asked in self.runs.values()].count("waiting") < 4)
    @rule(amount=st.sampled_from(AMOUNTS), repaired=YES)
    def ask(self, amount: int, repaired: bool) -> None:
        fine = {"role": self.has_role, "delegation": self.now.delegation, "evidence": self.now.evidence}
        for wrong in [name for name in fine if repaired and not fine[name]]:
            getattr(self, wrong)()
        self.number += 1
        body = request(amount, f"req_{self.number}", order_id=ORDER) | {"context_pack_refs": [self.now.pack]}
        view = self.drive(self.world.invoke(body))
        known = amount in self.paid or (self.now.definition, amount) in self.denied
        if self.now.delegation and self.now.evidence and not known:
            assert view.state == "waiting", view.record
        if view.state == "waiting":
            self.runs[view.run_id] = Asked(amount, view.waiting["deadline_us"], self.now)

    @rule(first=FIRST, pick=PICK, who=WHO, verdict=VERDICT, meanwhile=EVENT, driven=YES)
    def answer(self, first: int, pick: int, who: str, verdict: str, meanwhile: str, driven: bool) -> None:
        """Somebody answers (mostly a new question), something happens, and the run goes on, or does not yet."""
        if first:
            self.ask(first, repaired=True)
        run_id, asked = self.picked(pick)
        approver, seed, why = PEOPLE[who]
        if approver == APPROVER and not self.has_role:
            why = "not_approver"
        if asked.question != "open":
            why = "expired" if asked.question == "expired" else "already_answered"
        elif why is None and self.world.clock.at_us > asked.deadline_us:
            why = "expired"
        elif why is None and verdict == "approved" and asked.bound != self.now:
            why = "approval_void"  # the question stays open: it can be denied, and holds again once all is put back
        before = self.drive(self.world.kinds(run_id))
        assert self.refusal_of(self.world.answer(run_id, verdict, approver=approver, seed=seed)) == why
        assert self.drive(self.world.kinds(run_id)) == [*before, *(["approval.answered"] if why is None else [])]
        if why is None:
            asked.question, asked.approver = verdict, approver
            if verdict == "denied":
                self.denied.add((asked.bound.definition, asked.amount))
        self.happens(meanwhile, pick)
        if driven:
            self.advance(pick)

    @rule(what=EVENT, pick=PICK)
    def happens(self, what: str, pick: int) -> None:
        getattr(self, what)(*self.picked(pick))

    def restart(self, *_of: Any) -> None:
        """Everything that was only in memory is gone, suspended loops too."""
        old = self.world.deployment
        self.world.deployment = Deployment(old.ports, DeploymentConfig(old.config.limits, old.config.runtime_version))

    def wait(self, *_of: Any) -> None:
        self.world.clock.at_us += 1_700_000_000  # two of these fit into the gate's hour, and three do not

    def deadline(self, _run_id: str, asked: Asked) -> None:
        self.world.clock.at_us = max(self.world.clock.at_us, asked.deadline_us + 1_000_000)

    def cancel(self, run_id: str, asked: Asked) -> None:
        by = (OPERATOR, "usr_771", "user_nobody")[self.number % 3]
        why = "not_waiting" if asked.state in ENDS else "unknown_actor" if by == "user_nobody" else None
        assert (
            self.refusal_of(
                operator.request_cancel(
                    self.world.deployment, TENANT, run_id, by=self.world.actor(by), reason="a mistake"
                )
            )
            == why
        )
        if why is None and asked.question == "open":
            asked.question = "cancelled"
        asked.wish |= why is None

    def role(self, *_of: Any) -> None:
        self.has_role = not self.has_role
        self.world.edit_directory(edited("approvers", 0, "roles", to=["finance_lead"] if self.has_role else []))

    def delegation(self, *_of: Any) -> None:
        self.now = replace(self.now, delegation=not self.now.delegation)
        self.world.edit_directory(edited("users", 0, "delegation_live", to=self.now.delegation))

    def evidence(self, *_of: Any) -> None:
        """A second statement about the customer, which contradicts the first; or its withdrawal."""
        self.now = replace(self.now, evidence=not self.now.evidence)
        said = {"retracts": self.doubt, "evidence_ref": "artifact:cleared#rev_1"}
        if not self.now.evidence:
            self.number += 1
            self.doubt = f"edge_doubt_{self.number}"
            said = edge("identity_verified", f"check:{self.number}", value=False, src=CUSTOMER, edge_id=self.doubt)
        self.drive(self.world.put_facts([said]))

    def definition(self, *_of: Any) -> None:
        self.now = replace(self.now, definition=1 - self.now.definition)
        definition = self.payments.describe()
        first = definition.capabilities[0].model_copy(update={"description": "It does something else now."})
        other = Wrapped(self.payments, definition=definition.model_copy(update={"capabilities": (first,)}))
        self.world.adapters[PAYMENTS] = other if self.now.definition else self.payments  # type: ignore[assignment]

    def pack(self, *_of: Any) -> None:
        self.number += 1
        old, self.now = self.now.pack, replace(self.now, pack=f"ctxpack.support@5.3.{self.number}")
        body = example("pack.json")
        body["pack_meta"]["pack_version"] = self.now.pack.partition("@")[2]
        envelope = seal(PACK_TYPE, canonical(body), self.world.keys, "pack")
        self.drive(self.world.pin_pack(self.drive(self.world.publish(envelope))))
        self.drive(self.world.withdraw(old))

    @rule(pick=PICK)
    def advance(self, pick: int) -> None:
        run_id, asked = self.picked(pick)
        late = self.world.clock.at_us > asked.deadline_us
        holds = asked.bound == self.now and (self.has_role or asked.approver != APPROVER)
        hindered = asked.wish or (self.now.definition, asked.amount) in self.denied or asked.amount in self.paid
        state = self.drive(self.world.deployment.advance(TENANT, run_id)).state
        if asked.state in ENDS:
            assert state == asked.state, "an end is final"
        elif asked.question == "open":
            assert state == ("escalated" if late else "waiting")
            asked.question = "expired" if late else "open"
        elif asked.question == "cancelled":
            assert state == "cancelled"
        elif asked.question == "denied":
            # A denial rests on no fact, but its approver still has the role; else a person decides.
            assert state == ("rejected" if self.has_role or asked.approver != APPROVER else "escalated")
        elif holds and not late and not hindered:
            assert state == "completed"
            asked.question = "consumed"
            self.paid.append(asked.amount)
            self.now = replace(self.now, paid=self.now.paid + 1)
        else:
            assert state in ENDS - {"completed"}, "an approval that does not hold ends the run, and pays nothing"
        asked.state = state

    @invariant()
    def what_was_paid_is_what_was_approved_and_once(self) -> None:
        assert [refund["amount_inr"] for refund in self.world.refunds()] == self.paid
        assert len(set(self.paid)) == len(self.paid)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        store = self.world.stores.tenant(TENANT)
        self.drive(verify.verify_tenant(store, TENANT, self.world.keys))
        for run_id, asked in self.runs.items():
            entries = self.drive(store.read(run_id))
            asks = next(orjson.loads(entry.body) for entry in entries if entry.kind == "approval.asked")
            (document,) = self.drive(store.scan("approvals", key=asks["approval_id"]))
            assert orjson.loads(document.body)["state"] == asked.question
            if asked.state in ENDS:
                record = self.drive(self.world.deployment.view(TENANT, run_id)).record
                replayed = self.drive(replay(self.world.deployment, TENANT, run_id))
                assert replayed.record_hash == record["record_hash"]
        for opened in (self.world.close, self.loop.close, self.folder.cleanup):
            opened()


@pytest.mark.requirement("T-APPROVAL-BOUND", "T-APPROVAL-ONCE", "T-APPROVAL-DEADLINE", "T-APPROVAL-NOT-SELF")
class TestApprovals(Approvals.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=20)
