"""The invariants: what must hold after every commit and every effect, whatever went wrong.

The judge stands beside the store and the payments service and sees what became durable and what was paid, never what
the runtime believes. It reads the journal by its own eyes and knows the scenario's truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from contextos.contracts.documents.operations import APPROVALS, DENIALS, denial_key
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.journal import KINDS, Batch, Entry, genesis, header_hash
from contextos.runtime import state_machine
from contextos.sim import example
from contextos.sim.faults import MAX_AHEAD_US
from contextos.sim.payments import Effect, Shop
from contextos.sim.scenario import Scenario
from contextos.sim.scheduler import Scheduler


class ObservedWorld(Protocol):
    """What the judge looks at. `meddled` and `cancelled` say what was changed when, in true time."""

    seed: int
    scenario: Scenario
    scheduler: Scheduler
    shop: Shop
    verified: frozenset[str]
    meddled: dict[str, int]
    cancelled: dict[str, int]


GATED_ABOVE_INR: Final = 3000
MAY_REFUND: Final = ("support_agent", "support_lead")
MAX_JOURNAL: Final = 600
"""No run of this workload has any reason to write more entries."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold: at which step of which seed, and what was seen."""

    seed: int
    step: int
    invariant: str
    detail: str

    def __str__(self) -> str:
        return f"seed {self.seed}, step {self.step}: {self.invariant}: {self.detail}"


@dataclass(slots=True)
class RunObservation:
    """What became durable of one run."""

    run_id: str
    head: str
    count: int = 0
    state: str = state_machine.START
    request: dict[str, Any] = field(default_factory=dict)
    pinned_us: int = 0
    budget: int = 0
    deadline_us: int | None = None
    dispatches: int = 0
    dispatched: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    answered: dict[str, dict[str, Any]] = field(default_factory=dict)
    redeemed_us: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    unsettled: str | None = None
    open_question: str | None = None
    garbled: bool = False
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def ended(self) -> bool:
        """Whether the run came to an end."""
        return self.state in state_machine.ENDS

    @property
    def refund(self) -> dict[str, Any] | None:
        """The last dispatch of a refund, if there was one."""
        return next((one for one in reversed(self.dispatched.values()) if one["envelope"]["idempotency_key"]), None)


class InvariantChecker:
    """Collects violations. `committed` and `paid` are told what happened; `end` judges what is left in the end."""

    def __init__(self, world: ObservedWorld) -> None:
        self.runs: dict[str, RunObservation] = {}
        self.violations: list[Violation] = []
        self.consumed: Counter[str] = Counter()
        self.denied: dict[str, str] = {}
        self._world = world

    def violated(self, invariant: str, detail: str) -> None:
        """Note a violation at the present step."""
        self.violations.append(Violation(self._world.seed, self._world.scheduler.steps, invariant, detail))

    def act_of(self, run_id: str, args: Mapping[str, Any]) -> str:
        """What makes two effects the same act, by the scenario's truth and not by anybody's key."""
        whose = run_id if self._world.scenario.scope == "run" else example.EXAMPLE_TENANT
        return f"{whose}/{args['order_id']}/{args['amount_inr']}/{args['currency']}"

    def committed(self, owner: str, batch: Batch) -> None:
        """A batch is durable: each entry continues its run, legally, and what it says is allowed."""
        self._world.scheduler.trace("durable", batch.run, [entry.hash for entry in batch.entries])
        for key, approval in APPROVALS.written(batch.writes):
            if approval.state == "consumed":
                self.consumed[key] += 1
                if self.consumed[key] > 1:
                    self.violated("approval_consumed_once", f"`{key}` was consumed again by `{owner}`")
        for key, _ in DENIALS.written(batch.writes):
            self.denied.setdefault(key, batch.run)
        for entry in batch.entries:
            self._typed(batch.run, entry.kind, entry.body)
            self._entry(entry)
        for stream, draft in batch.shared:
            self._typed(stream, draft.kind, draft.body)

    def _typed(self, stream: str, kind: str, body: bytes | None) -> None:
        fault = body_fault(stream, kind, body or b"")
        if fault:
            self.violated("bodies_have_their_type", f"`{kind}` of `{stream}`: {fault}")

    def _entry(self, entry: Entry) -> None:
        seen = self.runs.setdefault(entry.run, RunObservation(entry.run, genesis(entry.tenant, entry.run)))
        body = orjson.loads(entry.body or b"{}")
        told = body["answer"] if KINDS[entry.kind].recorded else body
        if (entry.seq, entry.prev_hash, header_hash(entry)) != (seen.count + 1, seen.head, entry.hash):
            self.violated("journal_chains", f"`{entry.run}` entry {entry.seq} does not continue entry {seen.count}")
        state = state_machine.step(seen.state, state_machine.event_of(entry.kind, told))
        if state is None:
            self.violated("run_table", f"`{entry.run}` entry {entry.seq} `{entry.kind}` is illegal in `{seen.state}`")
        seen.count, seen.head, seen.state = entry.seq, entry.hash, state or seen.state
        seen.kinds[entry.kind] += 1
        if seen.count == MAX_JOURNAL:
            detail = f"`{entry.run}` has {MAX_JOURNAL} entries, {seen.kinds['run.resumed']} of them `run.resumed`"
            self.violated("journal_is_bounded", detail)
        watch = _WATCHED.get(entry.kind)
        if watch:
            watch(self, seen, entry, told)

    def _received(self, seen: RunObservation, entry: Entry, told: dict[str, Any]) -> None:
        seen.request = told["request"]
        if seen.request["mode"] == "long_running":
            seen.deadline_us = entry.at_us + seen.request["runtime"]["max_session_duration_ms"] * 1_000

    def _pinned(self, seen: RunObservation, _: Entry, __: dict[str, Any]) -> None:
        seen.pinned_us = self._world.scheduler.now_us

    def _context(self, seen: RunObservation, _: Entry, told: dict[str, Any]) -> None:
        seen.budget = told["run_budget"]["max_tool_calls"]

    def _identity(self, seen: RunObservation, entry: Entry, _: dict[str, Any]) -> None:
        if entry.key.startswith("redeem/"):
            seen.redeemed_us = entry.at_us

    def _dispatching(self, seen: RunObservation, entry: Entry, told: dict[str, Any]) -> None:
        envelope, write = told["envelope"], told["envelope"]["idempotency_key"] is not None
        seen.dispatches += 1
        if seen.dispatches > seen.budget:
            detail = f"`{seen.run_id}` dispatches {seen.dispatches} calls, `max_tool_calls` is {seen.budget}"
            self.violated("budget", detail)
        first = envelope["tool_call_id"] not in seen.dispatched
        seen.dispatched.setdefault(envelope["tool_call_id"], told)
        if first and seen.deadline_us is not None and entry.at_us >= seen.deadline_us:
            self.violated("session_is_bounded", f"`{seen.run_id}` dispatches `{entry.key}` after its deadline")
        denial = denial_key(envelope["capability_id"], told["definition_digest"], envelope["idempotency_key"])
        if write and first and denial in self.denied:
            self.violated("denial_is_final", f"`{seen.run_id}` dispatches what was denied in `{self.denied[denial]}`")
        if write and first and seen.run_id in self._world.cancelled:
            detail = f"`{seen.run_id}` dispatches `{entry.key}` after its cancellation was acknowledged"
            self.violated("cancel_is_final", detail)

    def _returned(self, seen: RunObservation, entry: Entry, told: dict[str, Any]) -> None:
        write = seen.dispatched[told["envelope"]["tool_call_id"]]["envelope"]["idempotency_key"] is not None
        seen.unsettled = entry.key if write and told["outcome"] == "unknown" else None
        seen.garbled = seen.garbled or (told["envelope"]["status"] == "failed" and bool(told["envelope"]["mutations"]))

    def _settled(self, seen: RunObservation, _: Entry, __: dict[str, Any]) -> None:
        seen.unsettled = None

    def _asked(self, seen: RunObservation, _: Entry, told: dict[str, Any]) -> None:
        seen.asked[told["approval_id"]] = told
        seen.open_question = told["approval_id"]

    def _answered(self, seen: RunObservation, _: Entry, told: dict[str, Any]) -> None:
        if seen.open_question is not None:
            seen.answered[seen.open_question] = told
        seen.open_question = None

    def _closed(self, seen: RunObservation, _: Entry, __: dict[str, Any]) -> None:
        seen.open_question = None

    def _revised(self, seen: RunObservation, _: Entry, told: dict[str, Any]) -> None:
        seen.record = told

    def paid(self, effect: Effect) -> None:
        """Money moved: it was dispatched durably, for the first time, allowed, and agreed to where a gate stands."""
        self._world.scheduler.trace("paid", effect.key, effect.run_id)
        act = self.act_of(effect.run_id, effect.args)
        same = [one for one in self._world.shop.effects if self.act_of(one.run_id, one.args) == act]
        if len(same) > 1:
            detail = f"`{act}` was paid {len(same)} times, by {[one.run_id for one in same]}"
            self.violated("one_effect_per_act", detail)
        seen = self.runs.get(effect.run_id)
        dispatch = seen.dispatched.get(effect.tool_call_id) if seen else None
        if seen is None or dispatch is None:
            return self.violated("dispatch_is_durable_first", f"`{effect.run_id}` paid without a durable dispatch")
        envelope = dispatch["envelope"]
        if (envelope["args"], envelope["idempotency_key"]) != (dict(effect.args), effect.key):
            detail = f"`{effect.run_id}` paid {dict(effect.args)}, dispatched {envelope['args']}"
            self.violated("effect_is_what_was_dispatched", detail)
        if seen.ended:
            self.violated("no_effect_after_the_end", f"`{effect.run_id}` ended as `{seen.state}` and then paid")
        if envelope["approval_mode_requested"] != envelope["approval_mode_highest"]:
            detail = f"`{effect.run_id}` paid by a step that says `{envelope['approval_mode_requested']}`"
            self.violated("plan_was_verified", detail)
        why = self._forbidden(seen, effect)
        if why:
            self.violated("forbidden_effect", f"`{effect.run_id}` paid {dict(effect.args)}: {why}")
        if effect.args["amount_inr"] > GATED_ABOVE_INR:
            self._gated(seen, effect, dispatch)
        return None

    def _forbidden(self, seen: RunObservation, effect: Effect) -> str | None:
        """Why this may never be paid, by the scenario's truth."""
        user = example.people()[0][seen.request["user"]["user_id"]]
        asked = seen.request["input"]["context"]
        order = self._world.shop.orders[effect.args["order_id"]]
        if self._world.scenario.hostile:
            return f"the plan was hostile: {self._world.scenario.hostile}"
        if user.role not in MAY_REFUND or not user.delegation_live:
            return f"`{user.user_id}` may not refund"
        if (asked["order_id"], asked["refund_amount"]) != (order.order_id, effect.args["amount_inr"]):
            return "it is not what was asked"
        if order.customer_id not in self._world.verified:
            return f"the identity of `{order.customer_id}` is not verified"
        return None

    def _gated(self, seen: RunObservation, effect: Effect, dispatch: dict[str, Any]) -> None:
        """A durable approval, consumed by exactly this call, by somebody who may, of what still holds."""
        approval_id = dispatch["approval_id"]
        asked, answer = seen.asked.get(approval_id or ""), seen.answered.get(approval_id or "")
        if not asked or not answer or answer.get("verdict") != "approved" or self.consumed[approval_id] != 1:
            detail = f"`{effect.run_id}` paid {effect.args['amount_inr']} without a consumed approval"
            return self.violated("gate", detail)
        bound = (asked["binding"]["args_digest"], asked["binding"]["tool_call_id"])
        if bound != (content_address(dict(effect.args)), effect.tool_call_id):
            self.violated("gate", f"`{approval_id}` was given for another call")
        approver = example.people()[2][answer["approver"]]
        if asked["required_role"] not in approver.roles or approver.approver_id in asked["barred"]:
            self.violated("gate", f"`{approver.approver_id}` may not approve")
        if not seen.kinds["evidence.rechecked"]:
            self.violated("approval_still_holds", f"`{effect.run_id}` paid and nothing was asked again at redemption")
        order = self._world.shop.orders[effect.args["order_id"]]
        touching = {approver.approver_id, order.customer_id, "definitions", "pack"}
        for name, at_us in self._world.meddled.items():
            since = at_us > seen.pinned_us or name == approver.approver_id
            if name in touching and since and at_us < seen.redeemed_us - MAX_AHEAD_US:
                detail = f"`{effect.run_id}` paid although `{name}` changed before it was redeemed"
                self.violated("approval_still_holds", detail)
        return None


_Watch = Callable[[InvariantChecker, RunObservation, Entry, dict[str, Any]], None]

_WATCHED: Final[dict[str, _Watch]] = {
    "run.received": InvariantChecker._received,
    "run.pinned": InvariantChecker._pinned,
    "run.context": InvariantChecker._context,
    "identity.resolved": InvariantChecker._identity,
    "tool.dispatching": InvariantChecker._dispatching,
    "tool.returned": InvariantChecker._returned,
    "effect.settled": InvariantChecker._settled,
    "approval.asked": InvariantChecker._asked,
    "approval.answered": InvariantChecker._answered,
    "approval.expired": InvariantChecker._closed,
    "run.cancel_requested": InvariantChecker._closed,
    "record.revised": InvariantChecker._revised,
}
