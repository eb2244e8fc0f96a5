"""The vocabulary of the events of a run: the events that a watching reader gets for each kind of journal entry.

The names and members are those of AG-UI (`RUN_STARTED`, `TOOL_CALL_RESULT` …) if one fits. Everything else is a
`CUSTOM` event whose name is `contextos.` and the kind of the entry, with the members that its row lists (`Kind.told`).
A kind that lists none is not an event. The members are redacted by every existing rule, whatever the pack of the run
says. Only times, and the names that the runtime gave to runs, calls and capabilities, stay unchanged.
Source: AG-UI 1.0, "Events".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.of_decision import RECORD_SHOWN
from contextos.contracts.entries.row import picked
from contextos.deployment.queries.run_view import ERASED
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


_CALL_KINDS: Final = ("tool.dispatching", "tool.returned")
"""The kinds that have their own AG-UI events. The first and the last entry of a run have them too."""


class Told(NamedTuple):
    """One event without its place: its type and its members, as JSON values."""

    type: EventType
    members: dict[str, Any]


def told(entry: Entry, body: Any) -> Iterator[Told]:
    """Yield the events of an entry itself, from its parsed `body` (None: erased), apart from those of a run's start,
    end and steps.
    """
    render = KINDS[entry.kind].told
    if render is None and entry.kind not in _CALL_KINDS:
        return
    if body is None:
        yield _custom_event(ERASED_EVENT, {"kind": entry.kind, "key": entry.key})
    elif entry.kind == "tool.dispatching":
        yield from _call_events(body)
    elif entry.kind == "tool.returned":
        yield _result_event(entry, body)
    elif entry.kind == "policy.decided" and "decisions" in body:
        return
    elif render is not None:
        value = render(body)
        yield _custom_event(f"{CUSTOM_PREFIX}{entry.kind}", {"key": entry.key, **value} if entry.key else value)


def started(run_id: str, body: Any) -> Told:
    """Return the event with which a run starts, from the body of its `run.received` (None: erased, or it goes on)."""
    request = body["request"] if body else {}
    metadata = _redact({"requestId": request["request_id"], "intent": request["input"]["intent"]}) if body else {}
    thread = request.get("session_id") or run_id
    return Told("RUN_STARTED", {"threadId": thread, "runId": run_id, **({"metadata": metadata} if metadata else {})})


def ended(run_id: str, thread: str, end: str, record: Mapping[str, Any] | None) -> Told:
    """Return the event with which a run ends. `end` is how it ended, and `record` its decision record (None: erased).

    Only a run that did what was decided, or was cancelled, is finished. A run that was refused or given up is an error,
    so that a reader who knows only AG-UI never takes it for a success.
    """
    place = {"threadId": thread, "runId": run_id}
    result = {"end": end, **(picked(*RECORD_SHOWN, "outputs")(record) if record else {})}
    if end == "cancelled":
        return Told("RUN_FINISHED", {**place, "outcome": {"type": "cancelled"}})
    if end == "completed":
        return Told("RUN_FINISHED", {**place, "result": _redact(result), "outcome": {"type": "success"}})
    failures = ((record or {}).get("rationale") or {}).get("failures") or ()
    reason = "; ".join(f"{failure['code']}: {failure['detail']}" for failure in failures)
    reason = reason or ("how the run ended was erased" if end == ERASED else f"the run ended as {end}")
    return Told("RUN_ERROR", {"message": _redact(reason), "code": end, "metadata": _redact(result)})


def step_event(kind: Literal["STEP_STARTED", "STEP_FINISHED"], state: str) -> Told:
    """Return the event with which a run enters or leaves a state of its table; the state is the name of the step."""
    return Told(kind, {"stepName": state})


def _call_events(body: Mapping[str, Any]) -> Iterator[Told]:
    envelope = body["envelope"]
    call = {"toolCallId": envelope["tool_call_id"]}
    metadata = {"mode": body["mode"], "approvalMode": envelope["approval_mode_effective"]}
    yield Told("TOOL_CALL_START", {**call, "toolCallName": envelope["capability_id"], "metadata": metadata})
    yield Told("TOOL_CALL_ARGS", {**call, "delta": _redacted_json(envelope["args"])})
    yield Told("TOOL_CALL_END", call)


def _result_event(entry: Entry, body: Mapping[str, Any]) -> Told:
    envelope = body["envelope"]
    substitute = {name: envelope[name] for name in ("error", "withheld") if envelope.get(name)}
    content = substitute or envelope.get("output")
    return Told(
        "TOOL_CALL_RESULT",
        {
            "messageId": f"{entry.run}/{entry.seq}",
            "toolCallId": envelope["tool_call_id"],
            "content": _redacted_json(content),
            "role": "tool",
            "metadata": {
                "status": envelope["status"],
                "outcome": body["outcome"],
                "mutations": _redact(list(envelope.get("mutations", ()))),
                **({"artifacts": _redact(artifacts)} if (artifacts := envelope.get("artifacts")) else {}),
            },
        },
    )


def _custom_event(name: str, value: Mapping[str, Any]) -> Told:
    # A time in microseconds has as many digits as a card number, so redaction would take it for one.
    times = {key: time_us for key, time_us in value.items() if key.endswith("_us")}
    return Told("CUSTOM", {"name": name, "value": {**_redact({**value, **dict.fromkeys(times)}), **times}})


def _redacted_json(value: Any) -> str:
    return canonical(_redact(value)).decode()


def _redact(value: Any) -> Any:
    return redact(value, REDACTION_TARGETS)[0]
