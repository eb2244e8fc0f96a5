"""Bugs that are planted on purpose, to see that the simulator finds them. Nothing of this is in the runtime itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from contextos.action.gateway import dispatcher, guards, idempotency, tool_gateway
from contextos.contracts.journal import Batch
from contextos.decision import critic
from contextos.errors import InvalidSettings, Problem
from contextos.operations import operator
from contextos.runtime import wiring
from contextos.trust.approvals.gate_approvals import RunApprovals
from contextos.trust.journal.ledger import RunJournal

Mutant = Callable[[ExitStack], None]


def _skip_verify(stack: ExitStack) -> None:
    """The Critic finds every plan good."""
    stack.enter_context(patch.object(critic, "verify_plan", lambda _proposal: critic.PlanVerification("ok", ())))


def _retry_uncertain(stack: ExitStack) -> None:
    """An effect of unknown outcome counts as not sent, and is sent again."""
    honest = dispatcher.Dispatcher._outcome

    def outcome(self: Any, what: str, *given: Any, **named: Any) -> dict[str, Any]:
        return honest(self, "not_sent" if what == "unknown" else what, *given, **named)

    stack.enter_context(patch.object(dispatcher.Dispatcher, "_outcome", outcome))
    stack.enter_context(patch.object(dispatcher, "_can_retry", lambda _capability, outcome: outcome != "returned"))


def _blind_resend(stack: ExitStack) -> None:
    """After a crash a dispatch without an outcome is sent as if it never had been."""
    honest = dispatcher.Dispatcher._send

    async def send(self: Any, capability: Any, envelope: Any, _mode: str, *given: Any) -> dict[str, Any]:
        return await honest(self, capability, envelope, "send", *given)

    stack.enter_context(patch.object(dispatcher.Dispatcher, "_send", send))


def _skip_gate(stack: ExitStack) -> None:
    """No person is asked."""
    fewer = tuple(guard for guard in tool_gateway.GUARDS if guard is not guards.approved)
    stack.enter_context(patch.object(tool_gateway, "GUARDS", fewer))


def _skip_recheck(stack: ExitStack) -> None:
    """An approval counts although what it was bound to changed."""

    async def void(*_: Any) -> None: ...

    stack.enter_context(patch.object(RunApprovals, "_void_reason", void))


def _blind_recheck(stack: ExitStack) -> None:
    """What is asked again at redemption is answered from memory."""

    def recheck(_world: Any, scope: Any, _items: Any, action: Any) -> Any:
        async def look() -> dict[str, str | None]:
            return {**scope.pins, **{f"{fact.evidence_ref}#{fact.name}": fact.digest for fact in action.evidence}}

        return look

    stack.enter_context(patch.object(wiring, "_recheck", recheck))


def _take_any_answer(stack: ExitStack) -> None:
    """Whoever answers a question, and however, is believed."""
    stack.enter_context(patch.object(operator, "approval_fault", lambda *_: None))


def _forget_the_key(stack: ExitStack) -> None:
    """Each run has its own idempotency key for an act that is one act over all runs."""
    honest = idempotency.key_for_call

    def key_of(scope: Any, rule: Any, *given: Any) -> str:
        return honest(scope, rule.model_copy(update={"scope": "run"}), *given)

    stack.enter_context(patch.object(idempotency, "key_for_call", key_of))


def _forget_to_wake(stack: ExitStack) -> None:
    """What an operator does to a run is written, and nobody drives the run because of it."""
    honest = Batch

    def batch(**given: Any) -> Any:
        return replace(honest(**given), wake_at_us=None)

    stack.enter_context(patch.object(operator, "Batch", batch))


def _look_moves_time(stack: ExitStack) -> None:
    """To look whether a tape goes on takes in that the run was resumed, and so a later time than live."""

    def on_tape(self: Any) -> Any:
        self._skip_resumed()
        return self._at < len(self._tape)

    stack.enter_context(patch.object(RunJournal, "on_tape", property(on_tape)))


MUTANTS: Final[dict[str, Mutant]] = {
    "skip_verify": _skip_verify,
    "retry_uncertain": _retry_uncertain,
    "blind_resend": _blind_resend,
    "skip_gate": _skip_gate,
    "skip_recheck": _skip_recheck,
    "blind_recheck": _blind_recheck,
    "take_any_answer": _take_any_answer,
    "forget_the_key": _forget_the_key,
    "forget_to_wake": _forget_to_wake,
    "look_moves_time": _look_moves_time,
}


@contextmanager
def with_mutant(name: str | None) -> Iterator[None]:
    """While this lasts the runtime has the bug `name`; None plants nothing.

    Raises:
        InvalidSettings: no such bug.
    """
    if name is not None and name not in MUTANTS:
        detail = f"`{name[:64]}` is no bug that can be planted"
        raise InvalidSettings(Problem("/plant", "unknown_plant", detail, f"use one of {', '.join(MUTANTS)}"))
    with ExitStack() as stack:
        if name is not None:
            MUTANTS[name](stack)
        yield
