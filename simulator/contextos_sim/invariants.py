"""The invariants that hold after every commit and every effect, whatever faults strike.

The checker observes what the store made durable and what the payments service paid, never what the runtime believes.
It decodes the journal itself and knows the scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

import orjson

from contextos.contracts.documents.operations import APPROVALS, DENIALS, bound_denial, denial_key
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import Batch, Entry, genesis, header_hash
from contextos.contracts.ports.models import ModelCall
from contextos.runtime import state_machine
from contextos_sim import example
from contextos_sim.faults import MAX_AHEAD_US
from contextos_sim.models import MODELS, units_of
from contextos_sim.payments import Effect, Shop
from contextos_sim.scenario import BOUND_INR, Scenario
from contextos_sim.scheduler import Scheduler


class ObservedWorld(Protocol):
    """What the invariant checker reads of the simulated world.
    `changed_at_us` and `cancelled` hold the true time of each change, in Unix µs.
    """

    seed: int
    scenario: Scenario
    scheduler: Scheduler
    shop: Shop
    verified: frozenset[str]
    changed_at_us: dict[str, int]
    cancelled: dict[str, int]


GATED_ABOVE_INR: Final = 3000
REFUND_ROLES: Final = ("support_agent", "support_lead")
MAX_JOURNAL: Final = 600
"""The most journal entries that a run of this workload can need."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant: the seed, the step, the invariant and what was observed."""

    seed: int
    step: int
    invariant: str
    detail: str

    def __str__(self) -> str:
        return f"seed {self.seed}, step {self.step}: {self.invariant}: {self.detail}"


@dataclass(slots=True)
class RunObservation:
    """What the store has durably of one run, as the checker sees it."""

    run_id: str
    head: str
    count: int = 0
    state: str = state_machine.START
    request: dict[str, Any] = field(default_factory=dict)
    pinned_us: int = 0
    budget: int = 0
    max_cost_cents: float = 0
    cost_cents: float = 0
    deadline_us: int | None = None
    dispatches: int = 0
    dispatched: dict[str, dict[str, Any]] = field(default_factory=dict)
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    redeemed_us: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    unsettled: str | None = None
    no_record: bool = False
    open_question: str | None = None
    garbled: bool = False
    kinds: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    asks: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    tool_units: dict[str, int] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Return whether the run has ended."""
        return self.state in state_machine.ENDS

    @property
    def refund(self) -> dict[str, Any] | None:
        """Return the body of the last `tool.dispatching` entry of a refund, or None."""
        return next((one for one in reversed(self.dispatched.values()) if one["envelope"].get("idempotency_key")), None)

    @property
    def units(self) -> int:
        """Return what the run has spent, in 1/10,000 US cent. A call of a model counts as reserved until it is
        answered.
        """
        reserved = {key: one["reserved_units"] for key, one in self.asks.items()}
        settled = {key: one["cost_units"] for key, one in self.models.items()}
        units: int = sum((reserved | settled).values()) + sum(self.tool_units.values())
        return units


class InvariantChecker:
    """Collects violations of invariants. The world calls `committed` after each commit and `paid` after
    each payment.
    """

    def __init__(self, world: ObservedWorld) -> None:
        self.runs: dict[str, RunObservation] = {}
        self.violations: list[Violation] = []
        self.consumed: Counter[str] = Counter()
        self.denied: dict[str, str] = {}
        self.model_calls: Counter[str] = Counter()
        self._world = world

    def violated(self, invariant: str, detail: str) -> None:
        """Record a violation at the current step."""
        self.violations.append(Violation(self._world.seed, self._world.scheduler.steps, invariant, detail))

    def effect_identity(self, run_id: str, args: Mapping[str, Any]) -> str:
        """Return a key that two calls share if they are the same refund, computed from the scenario and not from the
        runtime.
        """
        scope = run_id if self._world.scenario.scope == "run" else example.EXAMPLE_TENANT
        return f"{scope}/{args['order_id']}/{args['amount_inr']}/{args['currency']}"

    def committed(self, owner: str, batch: Batch) -> None:
        """Check a durable batch of the process `owner`: entries continue their run, fit its state, and have allowed
        bodies.
        """
        self._world.scheduler.trace("durable", batch.run, [entry.hash for entry in batch.entries])
        for key, approval in APPROVALS.written(batch.writes):
            if approval.state == "consumed":
                self.consumed[key] += 1
                if self.consumed[key] > 1:
                    self.violated("approval_consumed_once", f"`{key}` was consumed again by `{owner}`")
        for key, _ in DENIALS.written(batch.writes):
            self.denied.setdefault(key.partition("#")[0], batch.run)
        for entry in batch.entries:
            self._check_body(batch.run, entry.kind, entry.body)
            self._observe_entry(entry)
        for stream, draft in batch.shared:
            self._check_body(stream, draft.kind, draft.body)

    def _check_body(self, stream: str, kind: str, body: bytes | None) -> None:
        fault = body_fault(stream, kind, body or b"")
        if fault:
            self.violated("bodies_have_their_type", f"`{kind}` of `{stream}`: {fault}")

    def _observe_entry(self, entry: Entry) -> None:
        run = self.runs.setdefault(entry.run, RunObservation(entry.run, genesis(entry.tenant, entry.run)))
        body = orjson.loads(entry.body or b"{}")
        content = body["answer"] if KINDS[entry.kind].recorded else body
        if (entry.seq, entry.prev_hash, header_hash(entry)) != (run.count + 1, run.head, entry.hash):
            self.violated("journal_chains", f"`{entry.run}` entry {entry.seq} does not continue entry {run.count}")
        state = state_machine.step(run.state, state_machine.event_of(entry.kind, content))
        if state is None:
            self.violated("run_table", f"`{entry.run}` entry {entry.seq} `{entry.kind}` is illegal in `{run.state}`")
        run.count, run.head, run.state = entry.seq, entry.hash, state or run.state
        run.kinds[entry.kind] += 1
        if run.count == MAX_JOURNAL:
            detail = f"`{entry.run}` has {MAX_JOURNAL} entries, {run.kinds['run.resumed']} of them `run.resumed`"
            self.violated("journal_is_bounded", detail)
        observe = _OBSERVERS.get(entry.kind)
        if observe:
            observe(self, run, entry, content)

    def _received(self, run: RunObservation, entry: Entry, body: dict[str, Any]) -> None:
        run.request = body["request"]
        run.deadline_us = entry.at_us + run.request["runtime"]["max_session_duration_ms"] * 1_000

    def _pinned(self, run: RunObservation, _: Entry, __: dict[str, Any]) -> None:
        run.pinned_us = self._world.scheduler.now_us

    def _context(self, run: RunObservation, _: Entry, body: dict[str, Any]) -> None:
        run.budget = body["run_budget"]["max_tool_calls"]
        run.max_cost_cents = body["run_budget"]["max_cost_cents"]

    def _identity(self, run: RunObservation, entry: Entry, _: dict[str, Any]) -> None:
        if entry.key.startswith("redeem/"):
            run.redeemed_us = entry.at_us

    def _opened(self, run: RunObservation, _: Entry, body: dict[str, Any]) -> None:
        run.deadline_us = body["deadline_us"]

    def _call_asked(self, run: RunObservation, entry: Entry, _: dict[str, Any]) -> None:
        run.calls[entry.key] += 1
        if run.calls[entry.key] > 1:
            self.violated("a_call_is_recorded_once", f"`{run.run_id}` has the agent's call `{entry.key}` again")

    def _dispatching(self, run: RunObservation, entry: Entry, body: dict[str, Any]) -> None:
        envelope, write = body["envelope"], body["envelope"].get("idempotency_key") is not None
        run.dispatches += 1
        if run.dispatches > run.budget:
            detail = f"`{run.run_id}` dispatches {run.dispatches} calls, `max_tool_calls` is {run.budget}"
            self.violated("budget", detail)
        if run.asks and run.units > run.max_cost_cents * 10_000:
            detail = f"`{run.run_id}` dispatches `{entry.key}` after its models used up its budget"
            self.violated("budget", detail)
        first = envelope["tool_call_id"] not in run.dispatched
        run.dispatched.setdefault(envelope["tool_call_id"], body)
        if first and run.deadline_us is not None and entry.at_us >= run.deadline_us:
            self.violated("session_is_bounded", f"`{run.run_id}` dispatches `{entry.key}` after its deadline")
        definition = envelope["metadata"]["definition_digest"]
        denial = denial_key(envelope["capability_id"], definition, envelope.get("idempotency_key"))
        if write and first and denial in self.denied:
            self.violated("denial_is_final", f"`{run.run_id}` dispatches what was denied in `{self.denied[denial]}`")
        if write and first and run.run_id in self._world.cancelled:
            detail = f"`{run.run_id}` dispatches `{entry.key}` after its cancellation was acknowledged"
            self.violated("cancel_is_final", detail)

    def _returned(self, run: RunObservation, entry: Entry, answer: dict[str, Any]) -> None:
        write = run.dispatched[answer["envelope"]["tool_call_id"]]["envelope"].get("idempotency_key") is not None
        run.cost_cents += answer["cost_cents"]
        # Sent again under its key it is the same call.
        run.tool_units[answer["envelope"]["tool_call_id"]] = round(answer["cost_cents"] * 10_000)
        run.unsettled = entry.key if write and answer["outcome"] == "unknown" else None
        run.no_record = answer.get("no_record", False)
        run.garbled = run.garbled or ("withheld" in answer["envelope"] and answer["happened"])

    def _retried(self, run: RunObservation, _: Entry, __: dict[str, Any]) -> None:
        # Sent again under its key it is the same call.
        run.dispatches -= 1

    def _settled(self, run: RunObservation, _: Entry, __: dict[str, Any]) -> None:
        run.unsettled = None

    def _asked(self, run: RunObservation, _: Entry, question: dict[str, Any]) -> None:
        run.questions[question["approval_id"]] = question
        run.open_question = question["approval_id"]

    def _answered(self, run: RunObservation, _: Entry, answer: dict[str, Any]) -> None:
        if run.open_question is not None:
            run.answers[run.open_question] = answer
        run.open_question = None

    def _voided(self, run: RunObservation, _: Entry, body: dict[str, Any]) -> None:
        denial = bound_denial(run.questions[body["approval_id"]]["binding"])
        if self.denied.get(denial) == run.run_id:
            del self.denied[denial]

    def _closed(self, run: RunObservation, _: Entry, __: dict[str, Any]) -> None:
        run.open_question = None

    def _revised(self, run: RunObservation, entry: Entry, record: dict[str, Any]) -> None:
        run.record = record
        # A cancel request is durable before its client has the answer. Such runs are checked once the world is quiet.
        if entry.key.startswith("uncertain/") and not self._world.scenario.cancels:
            self.check_needs_somebody(run)

    def check_needs_somebody(self, run: RunObservation) -> None:
        """Check a run that asks a person what became of a payment: it must not be one that can be sent again."""
        world = self._world
        in_time = run.deadline_us is None or world.scheduler.now_us < run.deadline_us
        again = run.unsettled and not run.no_record and in_time
        if again and world.scenario.strategy == "keyed" and not (world.cancelled or world.changed_at_us):
            detail = f"`{run.run_id}` asks a person about a payment that could be sent again under its key"
            self.violated("an_outage_needs_nobody", detail)

    def _model_asked(self, run: RunObservation, entry: Entry, body: dict[str, Any]) -> None:
        run.asks[entry.key] = body
        if run.units > run.max_cost_cents * 10_000:
            detail = f"`{run.run_id}` reserves {run.units} units with `{entry.key}`, above {run.max_cost_cents} cents"
            self.violated("budget_of_models", detail)

    def _model_answered(self, run: RunObservation, entry: Entry, answer: dict[str, Any]) -> None:
        if entry.key not in run.asks or entry.key in run.models:
            self.violated("a_model_is_answered_once", f"`{run.run_id}` answers `{entry.key}`, which is not open")
        run.models[entry.key] = answer
        reserved, usage = run.asks[entry.key]["reserved_units"], answer.get("usage")
        true_cost = reserved if answer.get("unpriced") else 0
        if usage is not None and not answer.get("unpriced"):
            true_cost = min(
                (units_of(model, usage["counts"]) for model in MODELS),
                key=lambda units: abs(units - answer["cost_units"]),
            )
        if answer["cost_units"] != true_cost or (answer["outcome"] == "lost" and not answer.get("unpriced")):
            detail = f"`{run.run_id}` settles `{entry.key}` at {answer['cost_units']} units, and it cost {true_cost}"
            self.violated("usage_is_settled", detail)

    def model_called(self, call: ModelCall) -> None:
        """Check a call that arrives at a provider: it is on record, and no answer to it is."""
        said = [
            {"role": one.role, "text": one.text}
            | ({"calls": [asdict(call) for call in one.calls]} if one.calls else {})
            | ({"call_id": one.call_id} if one.call_id else {})
            for one in call.messages
        ]
        tools = [asdict(one) for one in call.tools]
        digest = content_address({"messages": said, "tools": tools, "output_schema": call.output_schema})
        self._world.scheduler.trace("model", digest)
        all_asks = ((run, key, one) for run in self.runs.values() for key, one in run.asks.items())
        asks = [(run, key) for run, key, one in all_asks if one["request_digest"] == digest]
        self.model_calls[digest] += 1
        if not asks:
            self.violated("a_model_is_asked_on_record", "a call arrived at a provider that no journal has")
        elif self.model_calls[digest] > len(asks):
            self.violated("each_call_of_a_model_is_reserved", f"`{asks[-1][0].run_id}` sends `{asks[-1][1]}` again")
        elif all(run.models.get(key, {"outcome": "lost"})["outcome"] != "lost" for run, key in asks):
            self.violated("no_answer_is_asked_for_again", f"`{asks[-1][0].run_id}` asks `{asks[-1][1]}` again")

    def paid(self, effect: Effect) -> None:
        """Check a payment: its call was recorded durably before, was allowed and approved where needed, and is the
        first one.
        """
        self._world.scheduler.trace("paid", effect.key, effect.run_id)
        act = self.effect_identity(effect.run_id, effect.args)
        same = [one for one in self._world.shop.effects if self.effect_identity(one.run_id, one.args) == act]
        if len(same) > 1:
            detail = f"`{act}` was paid {len(same)} times, by {[one.run_id for one in same]}"
            self.violated("one_effect_per_act", detail)
        run = self.runs.get(effect.run_id)
        dispatch = run.dispatched.get(effect.tool_call_id) if run else None
        if run is None or dispatch is None:
            return self.violated("dispatch_is_durable_first", f"`{effect.run_id}` paid without a durable dispatch")
        envelope = dispatch["envelope"]
        if (envelope["args"], envelope.get("idempotency_key")) != (dict(effect.args), effect.key):
            detail = f"`{effect.run_id}` paid {dict(effect.args)}, dispatched {envelope['args']}"
            self.violated("effect_is_what_was_dispatched", detail)
        if run.ended:
            self.violated("no_effect_after_the_end", f"`{effect.run_id}` ended as `{run.state}` and then paid")
        if envelope["approval_mode_requested"] != envelope["approval_mode_highest"]:
            detail = f"`{effect.run_id}` paid by a step in mode `{envelope['approval_mode_requested']}`"
            self.violated("plan_was_verified", detail)
        reason = self._why_forbidden(run, effect)
        if reason:
            self.violated("forbidden_effect", f"`{effect.run_id}` paid {dict(effect.args)}: {reason}")
        if effect.args["amount_inr"] > GATED_ABOVE_INR or self._has_control(run, "gate"):
            self._check_approval(run, effect, dispatch)
        return None

    def _why_forbidden(self, run: RunObservation, effect: Effect) -> str | None:
        """Return why the scenario forbids this effect, or None."""
        user = example.people()[0][run.request["user"]["user_id"]]
        requested = run.request["input"]["context"]
        order = self._world.shop.orders[effect.args["order_id"]]
        if self._world.scenario.hostile:
            return f"the plan was hostile: {self._world.scenario.hostile}"
        if user.role not in REFUND_ROLES or not user.delegation_live:
            return f"`{user.user_id}` is not allowed to refund"
        if (requested["order_id"], requested["refund_amount"]) != (order.order_id, effect.args["amount_inr"]):
            return "the request asks for another refund"
        if order.customer_id not in self._world.verified:
            return f"the identity of `{order.customer_id}` is not verified"
        if effect.args["amount_inr"] > BOUND_INR and self._has_control(run, "bound"):
            return f"the tenant's policy allows at most {BOUND_INR}"
        return None

    def _has_control(self, run: RunObservation, control: str) -> bool:
        """Return whether the tenant's policy with this control was in force when the run was pinned."""
        policy, since_us = self._world.scenario.policy, self._world.changed_at_us.get("policy")
        return policy is not None and policy.control == control and since_us is not None and since_us < run.pinned_us

    def _check_approval(self, run: RunObservation, effect: Effect, dispatch: dict[str, Any]) -> None:
        """Check that this call consumed an approval by an allowed approver, whose bound inputs did not change."""
        approval_id = dispatch.get("approval_id", "")
        question, answer = run.questions.get(approval_id), run.answers.get(approval_id)
        if not question or not answer or answer.get("verdict") != "approved" or self.consumed[approval_id] != 1:
            detail = f"`{effect.run_id}` paid {effect.args['amount_inr']} without a consumed approval"
            return self.violated("gate", detail)
        bound = (question["binding"]["args_digest"], question["binding"]["tool_call_id"])
        if bound != (content_address(dict(effect.args)), effect.tool_call_id):
            self.violated("gate", f"`{approval_id}` was given for another call")
        approver = example.people()[2][answer["approver"]]
        if question["required_role"] not in approver.roles or approver.approver_id in question["barred"]:
            self.violated("gate", f"`{approver.approver_id}` is not allowed to approve")
        if not run.kinds["evidence.rechecked"]:
            self.violated("approval_still_holds", f"`{effect.run_id}` paid and nothing was checked again at redemption")
        order = self._world.shop.orders[effect.args["order_id"]]
        touching = {approver.approver_id, order.customer_id, "definitions", "pack", "policy"}
        for name, at_us in self._world.changed_at_us.items():
            since = at_us > run.pinned_us or name == approver.approver_id
            if name in touching and since and at_us < run.redeemed_us - MAX_AHEAD_US:
                detail = f"`{effect.run_id}` paid although `{name}` changed before the approval was redeemed"
                self.violated("approval_still_holds", detail)
        return None


_Observer = Callable[[InvariantChecker, RunObservation, Entry, dict[str, Any]], None]

_OBSERVERS: Final[dict[str, _Observer]] = {
    "run.received": InvariantChecker._received,
    "run.pinned": InvariantChecker._pinned,
    "run.context": InvariantChecker._context,
    "identity.resolved": InvariantChecker._identity,
    "session.opened": InvariantChecker._opened,
    "call.asked": InvariantChecker._call_asked,
    "model.asked": InvariantChecker._model_asked,
    "model.answered": InvariantChecker._model_answered,
    "tool.dispatching": InvariantChecker._dispatching,
    "tool.returned": InvariantChecker._returned,
    "tool.retry_scheduled": InvariantChecker._retried,
    "effect.settled": InvariantChecker._settled,
    "approval.asked": InvariantChecker._asked,
    "approval.answered": InvariantChecker._answered,
    "approval.expired": InvariantChecker._closed,
    "approval.reasked": InvariantChecker._closed,
    "approval.voided": InvariantChecker._voided,
    "run.cancel_requested": InvariantChecker._closed,
    "record.revised": InvariantChecker._revised,
}
