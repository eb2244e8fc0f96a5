"""Decide when an effect is sent or looked up again after an outage: after growing waits, until a limit.

A wait is recorded before it begins (`tool.retry_scheduled`) and when it is over (`tool.retry_due`). Meanwhile the run
is suspended and holds no resources. The jitter is derived from the call: a replay computes the same times, and runs
that an outage stopped do not all return at the same moment.
Source: docs/design/contracts.md, "Uncertain effects"; ADR 0020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from contextos.action.budget import exceeded_limit
from contextos.action.gateway import idempotency
from contextos.action.gateway.delivery import DispatchPorts
from contextos.action.quarantine import is_quarantined, quarantine_detail
from contextos.action.secret_arguments import SECRET_LOST
from contextos.contracts.envelopes.tool import ToolError, ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import CLOCK_MARGIN_US, Timeout
from contextos.contracts.model import final_fields
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import RunScope
from contextos.errors import CircuitOpen

READ_ATTEMPTS: Final = 3
"""The most attempts of one read."""
FIRST_WAIT_US: Final = 250_000
MAX_WAIT_US: Final = 300_000_000
MAX_ATTEMPTS: Final = 500
"""The most attempts of one effect. More would not fit a run's journal."""
MAX_ANSWERED_LOOKUPS: Final = 3
"""The number of look-ups answered with "no such call" after which a person is asked."""

LAST_ATTEMPT_US: Final = 1_000_000
"""The last attempt is planned this many microseconds before the limit: a run that wakes after the limit makes none."""

How = Literal["send", "send_again", "look_up"]


@final_fields
class Retry:
    """The next attempt of an effect: how it is made, and when by the clock (`at_us`, Unix time in microseconds)."""

    how: How
    at_us: int


def next_attempt(journal: Journal, scope: RunScope, call: ToolCall, answer: Mapping[str, Any]) -> Retry | None:
    """Return the next attempt after this recorded answer, or None if the answer is final or a limit is reached.

    A call that an open circuit refused was not sent, so it can be sent later whatever its strategy. Otherwise a call
    with a key is sent again under its key, and an effect that can be looked up is looked up again.
    """
    method = _retry_method(call, answer)
    if method is None or call.attempt >= MAX_ATTEMPTS:
        return None
    now_us, last_us = journal.clock_us, journal.clock_us + _left_us(journal, scope, call) - LAST_ATTEMPT_US
    wait_us = _wait_us(f"{journal.run_id}/{call.attempt_key}", call.attempt)
    at_us = max(now_us, answer.get("retry_at_us", 0)) + wait_us
    return Retry(method, min(at_us, last_us)) if now_us < last_us else None


async def wait_for(journal: Journal, call: ToolCall, retry: Retry) -> None:
    """Record the wait, suspend the run, and record that the wait is over."""
    body = {"how": retry.how, "at_us": retry.at_us, "tool_call_id": call.envelope.tool_call_id}
    journal.derive("tool.retry_scheduled", call.attempt_key, body)
    await journal.commit()
    await journal.wait(
        ("tool.retry_due",), call.attempt_key, wake_at_us=retry.at_us, on_timeout=Timeout("tool.retry_due")
    )


async def why_not_again(
    journal: Journal, scope: RunScope, ports: DispatchPorts, call: ToolCall, retry: Retry
) -> Failure | None:
    """Return why the next attempt after a wait is forbidden, or None if it can be made."""
    capability = call.capability
    key = f"again/{call.attempt_key}"
    ports.barrier.forget()
    if await is_quarantined(journal, capability, ports.quarantine_key(capability), ports.incidents, key):
        # A server that changed is not asked about the outcome of an earlier attempt either: a person settles it.
        return Failure(code="quarantined", detail=quarantine_detail(capability))
    if _left_us(journal, scope, call) < 0:
        return Failure(code="tool_failed", detail="the time in which it is tried again is over")
    spent, definition = ports.spent(), capability.definition
    if retry.how == "send" and (limit := exceeded_limit(scope.run.run_budget, spent, definition)):
        return Failure(code="budget_exhausted", detail=scope.run.run_budget.stated(limit), facts=(limit,))
    return None if retry.how == "look_up" else await _recheck(journal, ports, call)


def refused(journal: Journal, call: ToolCall, result: ToolResultEnvelope, failure: Failure) -> ToolResultEnvelope:
    """Record that no other attempt is made, and return the result that says why."""
    facts: Any = {"facts": failure.facts} if failure.facts else {}
    error = ToolError(code=failure.code, message=failure.detail, **facts)
    blocked = result.model_copy(update={"status": "blocked", "error": error, "risk_tags": ()})
    journal.derive("tool.refused", call.attempt_key, {"envelope": blocked.stated()})
    return blocked


async def _recheck(journal: Journal, ports: DispatchPorts, call: ToolCall) -> Failure | None:
    """Repeat the checks that were made before the first attempt: the next attempt can be the first that arrives.

    Sets `call.checks` to the checks that must hold in the commit of the next attempt. Returns why that attempt is
    forbidden, or None.
    """
    operation = await idempotency.look_up_operation(journal, ports, call, call.attempt_key, "again", None)
    if operation["cancelled"]:
        return Failure(code="cancelled", detail="the run was cancelled; nothing more was sent")
    if operation["denied"]:
        return Failure(code="approval_denied", detail="a person denied this operation meanwhile")
    failure, unchanged = await ports.recheck(call.attempt_key, call.capability)
    lookup_checks = idempotency.lookup_preconditions(journal.run_id, call, operation)
    call.checks = (*lookup_checks, unchanged)
    return failure


def _retry_method(call: ToolCall, answer: Mapping[str, Any]) -> How | None:
    strategy = call.capability.definition.idempotency.strategy
    outcome, error = answer["outcome"], answer["envelope"].get("error")
    if outcome == "returned" or answer.get("drifted"):
        return None
    if call.running is not None:
        # The write was accepted, so it is not sent again. If the system has no record of it, a person finds out.
        return None if answer.get("no_record", False) else "look_up"
    if error is not None and error["code"] == SECRET_LOST.code:
        # No process will have the secret again, so another attempt would not help.
        return None
    if outcome == "not_sent":
        if error is not None and error["code"] == "budget_exhausted":
            return None
        return "send" if strategy == "keyed" or circuit_open(answer) else None
    if strategy == "keyed":
        # An error in answer to a repeated call says nothing about the first attempt, and neither would another.
        return None if answer.get("no_record", False) else "send_again"
    # A system that answers "no such call" is asked a few times only: more look-ups would not help a person.
    exhausted = answer.get("no_record", False) and call.attempt >= MAX_ANSWERED_LOOKUPS
    return "look_up" if strategy == "lookup" and not exhausted else None


def circuit_open(answer: Mapping[str, Any]) -> bool:
    """Return whether an open circuit refused the call."""
    error = answer["envelope"].get("error")
    return error is not None and error["code"] == CircuitOpen.code and answer["outcome"] == "not_sent"


def admitted(calls: Sequence[ToolCall], answers: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the capabilities of a group that a circuit let through at least once."""
    answered = zip(calls, answers, strict=True)
    return {call.capability.capability_id for call, answer in answered if not circuit_open(answer)}


def reads_again(call: ToolCall, answer: Mapping[str, Any]) -> bool:
    """Return whether a read is sent again at once, which is safe because a read changes nothing. A read that a person
    approved is not repeated: it sends data out, and an approval is for one call.
    """
    error = answer["envelope"].get("error")
    only_once = call.approval is not None or (error is not None and error["code"] == "quarantined")
    can_repeat = answer["outcome"] != "returned" and call.attempt < READ_ATTEMPTS and not only_once
    return can_repeat and (call.grouped or not circuit_open(answer))


def over_at_us(call: ToolCall, answer: Mapping[str, Any]) -> int | None:
    """Return when a call that a look-up did not find is over (Unix microseconds), or None for any other answer. Until
    then another process can still send the call.
    """
    looked_up = call.mode == "reconcile" and answer["outcome"] == "not_sent"
    return call.sent_until_us + CLOCK_MARGIN_US if looked_up else None


def _left_us(journal: Journal, scope: RunScope, call: ToolCall) -> int:
    """Return the microseconds left for further attempts: until the key, the pack's limit or the session ends.

    The lower of two results is returned: by the time of the journal, and by the clock. The journal's time does not
    advance while the clock is behind it.
    """
    seconds = call.capability.definition.idempotency.key_ttl_s
    if (limit_s := scope.pinned.pack.tooling_layer.max_retry_s) is not None:
        seconds = min(seconds, limit_s)
    # A session is over at its deadline, not after it, so its last microsecond does not count.
    window_us = seconds * 1_000_000
    by_record_us = scope.within_session(call.first_us + window_us + 1) - 1 - journal.now_us
    return min(by_record_us, call.first_clock_us + window_us - journal.clock_us)


def _wait_us(attempt_id: str, attempt: int) -> int:
    """Return the wait before the next attempt, in microseconds: exponential back-off, half of it jitter."""
    longest_us = min(FIRST_WAIT_US << min(attempt - 1, 20), MAX_WAIT_US)
    draw = int.from_bytes(hashlib.sha256(attempt_id.encode()).digest()[:4])
    return longest_us // 2 + longest_us // 2 * draw // (1 << 32)


def leave_to_holder(journal: Journal, scope: RunScope, ports: DispatchPorts, call: ToolCall) -> None:
    """Leave a call whose secret argument another living process has to that process, until the session is over.

    Raises:
        Parked: for a short time, until this process looks again.
    """
    if not journal.on_tape and not scope.session_over(journal.now_us):
        ports.secrets.wait_for_holder(call.envelope.run_id, call.envelope.args, ports.clock.now_us())
