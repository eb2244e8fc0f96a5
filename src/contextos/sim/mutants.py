"""Bugs to plant in the runtime, each of which the simulator must find. The runtime itself contains none of this.

A patch takes the name of a private function from the function itself, so that mypy finds a renamed target.
"""

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
    """The Critic accepts every plan."""
    stack.enter_context(
        patch.object(critic, critic.verify_plan.__name__, lambda _proposal: critic.PlanVerification("ok", ()))
    )


def _retry_uncertain(stack: ExitStack) -> None:
    """An effect with an unknown outcome is treated as not sent, and is sent again."""
    original = dispatcher.Dispatcher._outcome

    def outcome(self: Any, what: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return original(self, "not_sent" if what == "unknown" else what, *args, **kwargs)

    stack.enter_context(patch.object(dispatcher.Dispatcher, original.__name__, outcome))
    stack.enter_context(
        patch.object(dispatcher, dispatcher._can_retry.__name__, lambda _capability, outcome: outcome != "returned")
    )


def _blind_resend(stack: ExitStack) -> None:
    """After a crash, a dispatch without an outcome is sent as if for the first time."""
    original = dispatcher.Dispatcher._send

    async def send(self: Any, capability: Any, envelope: Any, _mode: str, *args: Any) -> dict[str, Any]:
        return await original(self, capability, envelope, "send", *args)

    stack.enter_context(patch.object(dispatcher.Dispatcher, original.__name__, send))


def _skip_gate(stack: ExitStack) -> None:
    """The gateway skips the approval guard."""
    without_approval = tuple(guard for guard in tool_gateway.GUARDS if guard is not guards.approved)
    stack.enter_context(patch.object(tool_gateway, "GUARDS", without_approval))


def _skip_recheck(stack: ExitStack) -> None:
    """An approval is accepted although what it is bound to changed."""

    async def still_holds(*_: Any) -> None: ...

    stack.enter_context(patch.object(RunApprovals, RunApprovals._void_reason.__name__, still_holds))


def _blind_recheck(stack: ExitStack) -> None:
    """The recheck at redemption returns the recorded values instead of the current ones."""

    def recheck(_world: Any, scope: Any, _items: Any, action: Any) -> Any:
        async def read_pins() -> dict[str, str | None]:
            return {**scope.pins, **{f"{fact.evidence_ref}#{fact.name}": fact.digest for fact in action.evidence}}

        return read_pins

    stack.enter_context(patch.object(wiring, wiring._recheck.__name__, recheck))


def _take_any_answer(stack: ExitStack) -> None:
    """Any answer to a question is accepted, whatever its signer and signature."""
    stack.enter_context(patch.object(operator, "approval_fault", lambda *_: None))


def _forget_the_key(stack: ExitStack) -> None:
    """The idempotency key of a tenant-wide effect is made per run."""
    original = idempotency.key_for_call

    def key_of(scope: Any, rule: Any, *args: Any) -> str:
        return original(scope, rule.model_copy(update={"scope": "run"}), *args)

    stack.enter_context(patch.object(idempotency, original.__name__, key_of))


def _forget_to_wake(stack: ExitStack) -> None:
    """An operator's change to a run is committed, and nothing wakes the run."""
    original = Batch

    def batch(**args: Any) -> Any:
        return replace(original(**args), wake_at_us=None)

    stack.enter_context(patch.object(operator, "Batch", batch))


def _look_moves_time(stack: ExitStack) -> None:
    """Reading `on_tape` skips `run.resumed` entries, so a replay sees a later time than the live run."""

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
    """Plant the bug `name` in the runtime inside the `with` block; None plants nothing.

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
