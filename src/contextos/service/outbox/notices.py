"""Make notices: the webhooks and mails by which a person or another system outside learns of a run.

A notice names the run, the question, the role or person that is asked, and a link to the question. It holds no
argument, no fact and no secret: a person who opens the link logs in there. A notice cannot approve anything. Its id is
the same at every attempt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from contextos.contracts.encoding.display_escape import an, displayed
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.trace import TraceContext, child_headers
from contextos.deployment.queries.run_events import RunEvent, RunEventName
from contextos.trust.redact import redact

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry

NoticeType = Literal["question.asked", "question.reminded", "question.decided", "run.escalated", "run.finished"]
NOTICE_TYPES: Final[tuple[NoticeType, ...]] = get_args(NoticeType)

NOTICED: Final[tuple[RunEventName, ...]] = (
    "run.waiting",
    "approval.answered",
    "slot.answered",
    "effect.settled",
    "run.ended",
)
"""The events of a tenant for which a notice is sent."""

RUN_IN_LINK: Final = "{run}"
"""Where the id of the run is put into a link."""
_FOR_A_PERSON: Final = frozenset({"escalated", "exhausted"})
"""The ends that an operator has to decide about."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. `sequence` is the number of its event among the events of the tenant, and `at_us` the time of the
    event in Unix microseconds. `told` has the members of `data` that depend on its type. `trace` are the trace headers
    with which it is sent; empty if the request of the run was erased.
    """

    id: str
    type: NoticeType
    tenant_id: str
    run_id: str
    sequence: int
    at_us: int
    told: Mapping[str, Any]
    link: str
    trace: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """Return the notice as canonical JSON: `type`, `timestamp` (ISO 8601) and `data`."""
        data = {"tenant_id": self.tenant_id, "run_id": self.run_id, "sequence": self.sequence, **self.told}
        return canonical({"type": self.type, "timestamp": _iso(self.at_us), "data": {**data, "link": self.link}})

    def subject(self) -> str:
        """Return the notice in one line of text, with text from outside escaped."""
        return displayed(_SENTENCES[self.type](self.told))

    def text(self) -> str:
        """Return the notice as lines for a person."""
        facts = [
            f"until: {_iso(value)}" if name == "deadline_us" else f"{name}: {displayed(value)}"
            for name, value in self.told.items()
        ]
        lines = [f"{self.subject()}.", "", f"run: {self.run_id}", *facts, "", f"Open it: {self.link}"]
        return "\n".join([*lines, "This message approves nothing, and neither does opening the link.", ""])


def notice_of(
    subscriber: str,
    event: RunEvent,
    entries: Sequence[Entry],
    link: str,
    *,
    upto: int | None = None,
    reminder: bool = False,
) -> Notice:
    """Return the notice of an event. `entries` are the entries of its run; the event is about entry number `upto`
    (None: the last). `link` contains `{run}`. Erased content is left out.
    """
    details, kind = _event_details(event, entries[:upto])
    if event.event == "approval.answered" and _is_void(entries[:upto], entries[upto or len(entries) :]):
        details = {name: value for name, value in details.items() if name != "by"} | {"verdict": "void"}
    if reminder:
        kind = "question.reminded"
    identity = f"{event.tenant_id}\n{subscriber}\n{event.cursor}\n{kind}".encode()
    clean = redact({name: value for name, value in details.items() if not name.endswith("_us")}, REDACTION_TARGETS)[0]
    assert isinstance(clean, dict), "an object stays one"
    digest = hashlib.sha256(identity).hexdigest()
    return Notice(
        id=f"msg_{digest[:32]}",
        type=kind,
        tenant_id=event.tenant_id,
        run_id=event.run_id,
        sequence=event.sequence,
        at_us=event.at_us,
        told={name: clean.get(name, value) for name, value in details.items()},
        link=link.replace(RUN_IN_LINK, event.run_id),
        trace=_trace(entries, digest[32:48]),
    )


def _trace(entries: Sequence[Entry], span_id: str) -> dict[str, str]:
    received = read_body(entries[0]) if entries and entries[0].kind == "run.received" else None
    if received is None:
        return {}
    # Every receiver counts as outside the trust domain.
    return child_headers(TraceContext.model_validate(received["request"]["trace"]), span_id, external=True)


def _iso(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat().replace("+00:00", "Z")


def _is_void(upto: Sequence[Entry], later: Sequence[Entry]) -> bool:
    """Return whether the run found that the answer at the end of `upto` is void."""
    kinds = (entry.kind for entry in later if entry.key == upto[-1].key)
    return next((kind for kind in kinds if kind in ("approval.asked", "approval.voided")), "") == "approval.voided"


def _event_details(event: RunEvent, entries: Sequence[Entry]) -> tuple[dict[str, Any], NoticeType]:
    if event.event == "run.waiting":
        return {"waits_for": event.waits_for, **_question_details(event.waits_for, entries)}, "question.asked"
    fields = _noticed_fields(entries[-1])
    if event.event == "run.ended":
        end = fields.get("end", "erased")
        return {"end": end}, "run.escalated" if end in _FOR_A_PERSON else "run.finished"
    answers = KINDS[event.event].answers
    return {"waits_for": answers, **_question_details(answers, entries), **fields}, "question.decided"


def _question_details(waits_for: str | None, entries: Sequence[Entry]) -> Mapping[str, Any]:
    """Return the fields of the last question of this kind that a notice may show."""
    questions = (entry for entry in reversed(entries) if entry.kind in KINDS and KINDS[entry.kind].asks == waits_for)
    return next(map(_noticed_fields, questions), {})


def _noticed_fields(entry: Entry) -> Mapping[str, Any]:
    """Return the fields of an entry that a notice may show; none if the entry was erased."""
    row, body = KINDS.get(entry.kind), read_body(entry)
    return {} if body is None or row is None or row.noticed is None else row.noticed(body)


def _question_sentence(details: Mapping[str, Any]) -> str:
    if details["waits_for"] == "slot":
        return f"{details.get('principal_id', 'the user')} is asked for the slot {details.get('slot_id', '')}".strip()
    subject = details.get("capability_id", "a call")
    if details["waits_for"] == "settlement":
        return f"an operator is asked whether {subject} happened"
    return f"{an(details.get('required_role', 'person'))} is asked about {subject}"


def _decision_sentence(details: Mapping[str, Any]) -> str:
    outcomes: Mapping[Any, str] = {True: "happened", False: "did not happen"}
    decision = details.get("verdict") or outcomes.get(details.get("happened"), "answered")
    return f"{details.get('capability_id', details.get('slot_id', 'a question'))} {decision}"


_SENTENCES: Final[Mapping[NoticeType, Callable[[Mapping[str, Any]], str]]] = {
    "question.asked": _question_sentence,
    "question.reminded": lambda details: f"reminder: {_question_sentence(details)}",
    "question.decided": _decision_sentence,
    "run.escalated": lambda details: f"a run needs a decision: it ended as {details['end']}",
    "run.finished": lambda details: f"a run ended as {details['end']}",
}
