"""The vocabulary of the events of a run: what each kind of journal entry is to who watches the run.

The names and members are those of AG-UI (`RUN_STARTED`, `TOOL_CALL_RESULT` …) where one fits; everything else is a
`CUSTOM` event whose name is `contextos.` and the kind of the entry. A kind of `SILENT` is no event. What an event tells
is redacted by every rule that there is, whatever the pack of the run says; only times, and the names that the runtime
gave to runs, calls and capabilities, stay as they are.
Source: AG-UI 1.0, "Events".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.queries.run_view import ERASED
from contextos.trust.redact import redact

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry

EventType = Literal[
    "RUN_STARTED",
    "RUN_FINISHED",
    "RUN_ERROR",
    "STEP_STARTED",
    "STEP_FINISHED",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "TOOL_CALL_RESULT",
    "CUSTOM",
]
CUSTOM_PREFIX: Final = "contextos."
ERASED_EVENT: Final = f"{CUSTOM_PREFIX}erased"
"""The name of the `CUSTOM` event of an entry whose body was erased."""


class Told(NamedTuple):
    """One event without its place: its type and its members, as JSON values."""

    type: EventType
    members: dict[str, Any]


def told(entry: Entry, body: Any) -> Iterator[Told]:
    """Yield the events of an entry itself, from its parsed `body` (None: erased), apart from those of a run's start,
    end and steps.
    """
    if entry.kind in SILENT or entry.kind in BOUNDARIES:
        return
    if body is None:
        yield _custom(ERASED_EVENT, {"kind": entry.kind, "key": entry.key})
    elif entry.kind == "tool.dispatching":
        yield from _dispatched(body)
    elif entry.kind == "tool.returned":
        yield _returned(entry, body)
    elif entry.kind == "policy.decided" and "decisions" in body:
        return
    else:
        value = _CUSTOM[entry.kind](body)
        yield _custom(f"{CUSTOM_PREFIX}{entry.kind}", {"key": entry.key, **value} if entry.key else value)


def started(run_id: str, body: Any) -> Told:
    """Return the event with which a run starts, from the body of its `run.received` (None: erased, or it goes on)."""
    request = body["request"] if body else {}
    stated = _redacted({"requestId": request["request_id"], "intent": request["input"]["intent"]}) if body else {}
    thread = request.get("session_id") or run_id
    return Told("RUN_STARTED", {"threadId": thread, "runId": run_id, **({"metadata": stated} if stated else {})})


def ended(run_id: str, thread: str, end: str, record: Mapping[str, Any] | None) -> Told:
    """Return the event with which a run ends. `end` is how it did, and `record` its decision record (None: erased).

    Only a run that did what was decided is finished, or cancelled; a run that was refused or given up is an error, so
    that a reader who knows AG-UI alone never takes it for a success.
    """
    place = {"threadId": thread, "runId": run_id}
    result = {"end": end, **(_picked(*_RECORD)(record) if record else {})}
    if end == "cancelled":
        return Told("RUN_FINISHED", {**place, "outcome": {"type": "cancelled"}})
    if end == "completed":
        return Told("RUN_FINISHED", {**place, "result": _redacted(result), "outcome": {"type": "success"}})
    failures = ((record or {}).get("rationale") or {}).get("failures") or ()
    why = "; ".join(f"{one['code']}: {one['detail']}" for one in failures)
    why = why or ("how the run ended was erased" if end == ERASED else f"the run ended as {end}")
    return Told("RUN_ERROR", {"message": _redacted(why), "code": end, "metadata": _redacted(result)})


def step_event(kind: Literal["STEP_STARTED", "STEP_FINISHED"], state: str) -> Told:
    """Return the event with which a run enters or leaves a state of its table; the state is the name of the step."""
    return Told(kind, {"stepName": state})


def _dispatched(body: Mapping[str, Any]) -> Iterator[Told]:
    envelope = body["envelope"]
    call = {"toolCallId": envelope["tool_call_id"]}
    asked = {"mode": body["mode"], "approvalMode": envelope["approval_mode_effective"]}
    yield Told("TOOL_CALL_START", {**call, "toolCallName": envelope["capability_id"], "metadata": asked})
    yield Told("TOOL_CALL_ARGS", {**call, "delta": _json(envelope["args"])})
    yield Told("TOOL_CALL_END", call)


def _returned(entry: Entry, body: Mapping[str, Any]) -> Told:
    envelope = body["envelope"]
    unread = {name: envelope[name] for name in ("error", "withheld") if envelope.get(name)}
    content = unread or envelope.get("output")
    return Told(
        "TOOL_CALL_RESULT",
        {
            "messageId": f"{entry.run}/{entry.seq}",
            "toolCallId": envelope["tool_call_id"],
            "content": _json(content),
            "role": "tool",
            "metadata": {
                "status": envelope["status"],
                "outcome": body["outcome"],
                "mutations": _redacted(list(envelope.get("mutations", ()))),
                **({"artifacts": _redacted(made)} if (made := envelope.get("artifacts")) else {}),
            },
        },
    )


def _custom(name: str, value: Mapping[str, Any]) -> Told:
    # A time in microseconds has as many digits as a card number.
    times = {one: at for one, at in value.items() if one.endswith("_us")}
    return Told("CUSTOM", {"name": name, "value": {**_redacted({**value, **dict.fromkeys(times)}), **times}})


def _json(value: Any) -> str:
    return canonical(_redacted(value)).decode()


def _redacted(value: Any) -> Any:
    return redact(value, REDACTION_TARGETS)[0]


_Value = Callable[[Any], Mapping[str, Any]]


def _picked(*names: str) -> _Value:
    """Return a function that copies these members of a body, without those that it does not have."""
    return lambda body: {name: body[name] for name in names if body.get(name) is not None}


def _count(body: Any) -> Mapping[str, Any]:
    return {"count": len(body)}


def _tool_refused(body: Any) -> Mapping[str, Any]:
    envelope = body["envelope"]
    return _picked("tool_call_id", "capability_id", "status", "error", "withheld", "made_by")(
        {**envelope, **envelope["metadata"]}
    )


def _asked(body: Any) -> Mapping[str, Any]:
    names = ("approval_id", "gate_id", "required_role", "deadline_us", "binding_digest", "args")
    return {"capability_id": body["shown"]["capability"], **_picked(*names)(body)}


_RECORD: Final = ("record_id", "status", "outcome", "decision_key", "decision_version", "record_hash", "outputs")
_LISTS: Final = ("gates", "matched_rule_ids", "denying_rule_ids")
_POLICY: Final = ("capability_id", "point", "allowed", "reason", "effective_approval_mode", *_LISTS)

_CUSTOM: Final[dict[str, _Value]] = {
    "run.resumed": _picked("cause"),
    "run.cancel_requested": _picked("by", "reason"),
    "run.cancel_unproved": _picked(),
    "run.reopened": _picked("by", "reason", "limit", "to"),
    "run.pinned": _picked("pack_ref", "failure", "further"),
    "intent.resolved": _picked("intent_id", "version"),
    "parameters.taken": lambda body: {
        "parameters": [{"name": one["name"], "origin": one["origin"]} for one in body["parameters"]],
        "missing": body["missing"],
    },
    "slot.asked": lambda body: {"slot_id": body["slot"]["slotId"], "principal_id": body["actor"]["principal_id"]},
    "slot.answered": _picked(),
    "slot.selected": _picked("refused", "code"),
    "slot.pinned": _picked("refused"),
    "attachment.fetched": _picked("evidence_ref", "media_type", "size_bytes", "failure"),
    "evidence.retrieved": _count,
    "memory.recalled": _count,
    "policy.decided": lambda body: {**dict.fromkeys(_LISTS, ()), **_picked(*_POLICY)(body)},
    "context.compiled": lambda body: {
        "tools": body["context_ledger"]["tools"],
        "tokens": body["budget_report"]["tokens_used_at_compile"],
    },
    "planner.answered": _picked("refused", "late"),
    "session.opened": _picked("tools", "deadline_us", "observed"),
    "call.asked": _picked("tool", "args"),
    "plan.proposed": lambda body: {
        "revision": body["revision"],
        "steps": [{"id": one["id"], "tool": one["tool"]} for one in body["steps"]],
    },
    "plan.verified": _picked("verdict", "failures"),
    "call.observed": _picked("by", "findings"),
    "capability.quarantined": _picked("capability_id", "incidents"),
    "tool.refused": _tool_refused,
    "tool.retry_scheduled": _picked("how", "at_us", "tool_call_id"),
    "effect.settled": _picked("by", "happened", "evidence_ref"),
    "checkpoint.checked": lambda body: {
        "decision_key": body["decision_key"],
        "satisfied": sorted(body["satisfied"]),
        "unresolved": body["unresolved"],
    },
    "approval.asked": _asked,
    "approval.answered": lambda body: {
        **_picked("approver", "verdict", "reason", "binding_digest")(body),
        "assertion": body["assertion"]["kind"],
    },
    "approval.expired": _picked(),
    "approval.reasked": _picked("by", "reason", "changed"),
    "approval.voided": _picked("approval_id", "reason"),
    "call.answered": _picked("status", "step", "failures"),
    "session.finished": _picked("outcome", "reason"),
    "session.expired": _picked(),
    "run.scored": _picked("verdict"),
    "memory.proposed": lambda body: {"count": len(body["proposals"])},
    "record.revised": _picked(*(name for name in _RECORD if name != "outputs")),
}
"""By kind, the value of its `CUSTOM` event. The key of the entry, if it has one, is `key` in it."""

SPOKEN: Final = frozenset({*_CUSTOM, "tool.dispatching", "tool.returned"})
"""The kinds that are events of their own. A `policy.decided` about all tools at once is none."""
BOUNDARIES: Final = frozenset({"run.received", "run.ended"})
"""The kinds with which a run starts and ends."""
SILENT: Final = frozenset(
    {
        "identity.resolved",
        "run.context",
        "session.checkpointed",
        "act.looked_up",
        "history.read",
        "answer.compared",
        "arguments.traced",
        "credential.exchanged",
        "tool.retry_due",
        "evidence.frozen",
        "evidence.rechecked",
        "replay.packed",
    }
)
"""The kinds that are no event: look-ups of the runtime, and what names people, keys and credentials."""
