"""Bugs that the simulation can put into the runtime, each of which its checks must find. The runtime has none of
this.

A patch takes the name of a private function from the function itself, so that mypy finds a renamed target.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from contextos.action.budget import overrun_limit
from contextos.action.gateway import deciding, dispatcher, guards, idempotency, result_validation, retries, tool_gateway
from contextos.action.models import gateway
from contextos.audit import history, verify
from contextos.audit.acts import VerifiedControl
from contextos.contracts import bindings
from contextos.contracts.controls import RunControls
from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.journal import CONTROL, Batch, Entry, genesis
from contextos.contracts.model import changed
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.decision import critic
from contextos.deployment import driver, operator
from contextos.errors import InvalidSettings, Problem
from contextos.runtime import conclusion, wiring
from contextos.trust.approvals import assertion
from contextos.trust.approvals.gate_approvals import Recheck, RunApprovals
from contextos.trust.journal import chain
from contextos.trust.journal.effects import end_contradiction
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.rows import counted_effects

Mutant = Callable[[ExitStack], None]


def _skip_verify(stack: ExitStack) -> None:
    """The Critic accepts every plan."""
    stack.enter_context(
        patch.object(critic, critic.verify_plan.__name__, lambda _proposal: critic.PlanVerification("ok", ()))
    )


def _retry_uncertain(stack: ExitStack) -> None:
    """An effect with an unknown outcome is treated as not sent, and is sent again."""
    original = result_validation.AttemptOutcome.body

    def outcome(self: Any, what: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return original(self, "not_sent" if what == "unknown" else what, *args, **kwargs)

    stack.enter_context(patch.object(result_validation.AttemptOutcome, original.__name__, outcome))
    stack.enter_context(
        patch.object(
            retries, retries._retry_method.__name__, lambda _, told: None if told["outcome"] == "returned" else "send"
        )
    )


def _give_up_early(stack: ExitStack) -> None:
    """A person is asked after three attempts, however short the outage was."""
    stack.enter_context(patch.object(retries, "MAX_ATTEMPTS", 3))


def _blind_resend(stack: ExitStack) -> None:
    """After a crash, a dispatch without an outcome is sent as if for the first time."""
    original = dispatcher.Dispatcher._send

    async def send(self: Any, call: Any) -> dict[str, Any]:
        call.mode = "send"
        return await original(self, call)

    stack.enter_context(patch.object(dispatcher.Dispatcher, original.__name__, send))


def _skip_gate(stack: ExitStack) -> None:
    """The gateway skips the approval guard."""
    without_approval = tuple(guard for guard in tool_gateway.GUARDS if guard is not guards.approved)
    stack.enter_context(patch.object(tool_gateway, "GUARDS", without_approval))


def _skip_recheck(stack: ExitStack) -> None:
    """An approval is accepted although what it is bound to changed."""

    async def still_holds(*_: Any) -> tuple[None, dict[str, Any]]:
        return None, {}

    stack.enter_context(patch.object(RunApprovals, RunApprovals._void_reason.__name__, still_holds))


def _blind_recheck(stack: ExitStack) -> None:
    """The recheck at redemption returns the recorded values instead of the current ones."""

    async def recheck(_environment: Any, scope: Any, _query: Any, action: Any, _outside: Any) -> Recheck:
        recorded = {f"{fact.evidence_ref}#{fact.name}": fact for fact in action.evidence}

        async def look() -> dict[str, str | None]:
            return {**scope.pins_of(action), **{name: fact.digest for name, fact in recorded.items()}}

        return Recheck(look, [], {name: fact.value for name, fact in recorded.items()})

    stack.enter_context(patch.object(wiring, wiring._build_recheck.__name__, recheck))


def _take_any_answer(stack: ExitStack) -> None:
    """Any answer to a question is accepted, whatever its signer and signature."""
    stack.enter_context(patch.object(operator, "approval_fault", lambda *_: None))


def _believe_the_digest(stack: ExitStack) -> None:
    """What was signed is compared by its digest of the binding, and the call in clear is not computed again."""

    def same(one: Any, other: Any) -> bool:
        return one is not None and bool(one["binding_digest"] == other["binding_digest"])

    stack.enter_context(patch.object(assertion, "same_json", same))


def _forget_the_key(stack: ExitStack) -> None:
    """The idempotency key of a tenant-wide effect is made per run."""
    original = idempotency.key_for_call

    def key_of(scope: Any, rule: Any, *args: Any) -> str:
        return original(scope, rule.model_copy(update={"scope": "run"}), *args)

    stack.enter_context(patch.object(idempotency, original.__name__, key_of))


def _forget_to_wake(stack: ExitStack) -> None:
    """An operator's change to a run is committed, and nothing wakes the run."""
    original = Batch

    def batch(*args: Any, **named: Any) -> Any:
        return replace(original(*args, **named), wake_at_us=None)

    stack.enter_context(patch.object(operator, "Batch", batch))


def _look_moves_time(stack: ExitStack) -> None:
    """Reading `on_tape` skips `run.resumed` entries, so a replay sees a later time than the live run."""

    def on_tape(self: Any) -> Any:
        self._skip_resumed()
        return self._position < len(self._tape)

    stack.enter_context(patch.object(RunJournal, "on_tape", property(on_tape)))


def _forget_compile_controls(stack: ExitStack) -> None:
    """What policy raises at `compile` is on record, and binds no call."""
    original = RunControls.with_compiled
    stack.enter_context(patch.object(RunControls, original.__name__, lambda self, _decisions: self))


def _forget_plan_controls(stack: ExitStack) -> None:
    """What policy raises at `plan` is on record, and binds no call."""
    original = RunControls.with_planned
    stack.enter_context(patch.object(RunControls, original.__name__, lambda self, _revision, _decisions: self))


def _skip_commit_policy(stack: ExitStack) -> None:
    """Policy is not asked at `commit`."""
    original = deciding._decide

    def decide_execute(context: Any, call: Any, facts: Any, _point: str, *named: Any) -> Any:
        return original(context, call, facts, "execute", *named)

    stack.enter_context(patch.object(deciding, original.__name__, decide_execute))


def _ignore_the_cost(stack: ExitStack) -> None:
    """What a call cost is not compared with the budget after its reply."""
    stack.enter_context(patch.object(tool_gateway, overrun_limit.__name__, lambda *_: None))


class _Equal(str):
    """Equal to everything."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False


def _believe_bodies(stack: ExitStack) -> None:
    """The digest of a body is not compared."""
    stack.enter_context(patch.object(chain, "body_digest", lambda *_: _Equal()))


def _believe_any_head(stack: ExitStack) -> None:
    """The signed heads of a run are not verified."""
    stack.enter_context(patch.object(history, "verify_heads", lambda *_: None))


def _ignore_the_index(stack: ExitStack) -> None:
    """What the index states about a run is not compared with it."""
    stack.enter_context(patch.object(history, "verify_indexed", lambda *_: None))


def _believe_any_act(stack: ExitStack) -> None:
    """The seals and signatures of operator acts are not verified."""

    async def believe(_: Store, tenant_id: str, control: AsyncIterable[Sequence[Entry]], __: Keys) -> VerifiedControl:
        entries, head = 0, genesis(tenant_id, CONTROL)
        async for page in control:
            entries, head = entries + len(page), page[-1].hash
        return VerifiedControl(entries, head)

    stack.enter_context(patch.object(verify, "verify_acts", believe))


def _believe_any_row(stack: ExitStack) -> None:
    """A row of the idempotency table is believed without the run that it names."""

    async def believe(*_: Any) -> bool:
        return True

    stack.enter_context(patch.object(idempotency, idempotency.is_proved.__name__, believe))


def _any_outcome(stack: ExitStack) -> None:
    """A run ends as it comes, whatever it did."""
    stack.enter_context(patch.object(conclusion, end_contradiction.__name__, lambda *_: None))


def _sum_from_the_row(stack: ExitStack) -> None:
    """A sum is believed from its rows, without the chain that their signed end proves."""
    stack.enter_context(patch.object(counted_effects, counted_effects._fault.__name__, lambda *_: None))


def _record_a_call_twice(stack: ExitStack) -> None:
    """A call that an agent asks for again is a new call."""
    stack.enter_context(patch.object(driver, driver._is_recorded.__name__, lambda *_: False))


def _fill_defaults_late(stack: ExitStack) -> None:
    """The defaults of a tool are left to the tool, behind rules, question and record."""
    stack.enter_context(patch.object(bindings, with_defaults.__name__, lambda _schema, args, *_: dict(args)))


def _resend_lost(stack: ExitStack) -> None:
    """A model whose answer was lost is asked again by the reservation of the call before."""
    original = gateway.ModelGateway._send

    async def send(self: Any, call: Any, decision: Any, key: str, _is_lost: bool, *rest: Any) -> Any:
        return await original(self, call, decision, key, False, *rest)

    stack.enter_context(patch.object(gateway.ModelGateway, original.__name__, send))


def _free_if_unknown(stack: ExitStack) -> None:
    """A call of a model whose usage is not known costs nothing."""
    stack.enter_context(patch.object(gateway, gateway._settled_cost.__name__, lambda *_: (0, True)))


def _route_unspent(stack: ExitStack) -> None:
    """The budget that a call of a model is compared with is the whole one, whatever was used of it."""
    original = gateway.ModelGateway._route

    def route(self: Any, *args: Any) -> Any:
        ports = self._ports
        unspent = replace(ports.used(), cost_units=0)
        self._ports = changed(ports, used=lambda: unspent)
        try:
            return original(self, *args)
        finally:
            self._ports = ports

    stack.enter_context(patch.object(gateway.ModelGateway, original.__name__, route))


MUTANTS: Final[dict[str, Mutant]] = {
    "skip_verify": _skip_verify,
    "retry_uncertain": _retry_uncertain,
    "give_up_early": _give_up_early,
    "blind_resend": _blind_resend,
    "skip_gate": _skip_gate,
    "skip_recheck": _skip_recheck,
    "blind_recheck": _blind_recheck,
    "take_any_answer": _take_any_answer,
    "believe_the_digest": _believe_the_digest,
    "forget_the_key": _forget_the_key,
    "forget_to_wake": _forget_to_wake,
    "look_moves_time": _look_moves_time,
    "forget_compile_controls": _forget_compile_controls,
    "forget_plan_controls": _forget_plan_controls,
    "skip_commit_policy": _skip_commit_policy,
    "ignore_the_cost": _ignore_the_cost,
    "believe_bodies": _believe_bodies,
    "believe_any_head": _believe_any_head,
    "ignore_the_index": _ignore_the_index,
    "believe_any_act": _believe_any_act,
    "believe_any_row": _believe_any_row,
    "sum_from_the_row": _sum_from_the_row,
    "record_a_call_twice": _record_a_call_twice,
    "fill_defaults_late": _fill_defaults_late,
    "any_outcome": _any_outcome,
    "resend_lost": _resend_lost,
    "free_if_unknown": _free_if_unknown,
    "route_unspent": _route_unspent,
}


@contextmanager
def with_mutant(name: str | None) -> Iterator[None]:
    """Put the bug `name` into the runtime inside the `with` block; None changes nothing.

    Raises:
        InvalidSettings: `name` is not in `MUTANTS`.
    """
    if name is not None and name not in MUTANTS:
        detail = f"`{name[:64]}` is no bug that can be planted"
        raise InvalidSettings(Problem("/plant", "unknown_plant", detail, f"use one of {', '.join(MUTANTS)}"))
    with ExitStack() as stack:
        if name is not None:
            MUTANTS[name](stack)
        yield
