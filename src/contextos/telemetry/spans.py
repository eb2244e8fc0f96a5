"""The spans of a run, computed from its journal entries: the run, its planes, their components, and the calls of tools
and of models.

`run_spans` is a pure function, so the same entries give the same spans with the same ids. The span of a call has the id
that the call sent outside as the parent in its `traceparent`, so what a service records about the call hangs below it.

The time of an entry is when its work was done, so a component's span starts at the entry before its first one. Time in
which a run waits for an agent, a timer or a driver belongs to no component.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, NamedTuple

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.account import cents
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.of_model import MODEL_GATEWAY
from contextos.contracts.entries.row import TOOL_GATEWAY, TRUST_APPROVALS
from contextos.contracts.envelopes.policy import APPROVAL_MODES
from contextos.contracts.ids import derive
from contextos.contracts.journal import Logged
from contextos.contracts.trace import SAMPLED
from contextos.telemetry import genai
from contextos.telemetry.ended_run import Attributes, EndedRunEntries, Value, error_type, identifiers

MAX_SPANS: Final = 1_024
"""The most spans of one run. Further calls have no span, and the span of the run states their number."""

MIN_COMPONENT_US: Final = 1_000
"""A component that worked for a shorter time has no span of its own: its plane has the time. A span costs more than
most of this work does.
"""

ALWAYS: Final = frozenset({TOOL_GATEWAY, MODEL_GATEWAY, TRUST_APPROVALS})
"""The components to which calls and events belong. They always have a span."""
_PER_PLAN: Final = frozenset({"trust.policy", "context.compiler", "decision.planner", "decision.critic"})
"""The components that work anew for each plan: they have a span for each revision."""


class Span(NamedTuple):
    """One span. Ids are in lower-case hex, times in Unix microseconds. `parent_id` is None without a recorded parent,
    and `remote_parent` says that the parent is the caller's. `link` is a trace and a span in it that led to this one.
    `failed` sets the status to error.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_us: int
    end_us: int
    attributes: Attributes
    failed: bool = False
    remote_parent: bool = False
    link: tuple[str, str] | None = None


@dataclass(slots=True)
class _Work:
    """The time that a component was at work, and for which plan."""

    component: str
    revision: str
    start_us: int
    end_us: int


def run_spans(run: EndedRunEntries) -> list[Span]:
    """Return the spans of a run, each parent before its children."""
    planes: dict[str, list[_Work]] = {}
    for work in _work_periods(run):
        planes.setdefault(work.component.partition(".")[0], []).append(work)
    calls = sorted((*_call_spans(run), *_model_call_spans(run)), key=attrgetter("start_us"))
    room = max(0, MAX_SPANS - 1 - len(planes) - sum(map(len, planes.values())))
    spans = [_root_span(run, omitted=max(0, len(calls) - room))]
    for plane, plane_work in planes.items():
        start_us, end_us = min(work.start_us for work in plane_work), max(work.end_us for work in plane_work)
        plane_id = span_id(run, plane)
        spans.append(_child_span(run, plane_id, spans[0].span_id, plane, start_us, end_us, {}))
        spans += [_component_span(run, plane_id, work) for work in plane_work if _has_span(work)]
    return spans + calls[:room]


def span_id(run: EndedRunEntries, place: str) -> str:
    """Return the id of the span of a place in a run: `run`, a plane, or a component."""
    return _span_id(run.run_id, run.segment, place)


def call_span_id(tool_call_id: str) -> str:
    """Return the id of the span of a call, which its outbound `traceparent` carries (`runtime.wiring`)."""
    return derive("", tool_call_id, "span", 0)


def model_span_id(run_id: str, key: str) -> str:
    """Return the id of the span of a call of a model by the key of its entries, which its outbound `traceparent`
    carries (`runtime.models`).
    """
    return derive("", run_id, "model", key)


def component_of(entry: Logged) -> str | None:
    """Return the component (`plane.component`) that wrote an entry, or None for the run itself."""
    row = KINDS[entry.kind]
    if row.component_by_key and (by_key := row.component_by_key.get(entry.key.partition("/")[0])):
        return by_key
    return row.component or None


def _work_periods(run: EndedRunEntries) -> Iterable[_Work]:
    periods: dict[tuple[str, str], _Work] = {}
    previous_us = run.log[0].at_us
    # The session of an agent has a plan for each call, which would multiply the spans.
    per_plan = _PER_PLAN if not run.account.of("session.opened") else frozenset()
    for entry in run.log:
        component = component_of(entry)
        if component is not None:
            revision = entry.key.rpartition("/")[2] if component in per_plan else ""
            # The time that a person took for an answer belongs to approvals.
            waited = KINDS[entry.kind].wakes and component != TRUST_APPROVALS
            since_us = entry.at_us if waited else previous_us
            period = periods.setdefault((component, revision), _Work(component, revision, since_us, entry.at_us))
            period.end_us = entry.at_us
        previous_us = entry.at_us
    return periods.values()


def _root_span(run: EndedRunEntries, *, omitted: int) -> Span:
    # As the directory proved it. What a request states can be anything.
    name, attributes = genai.agent_span(run.first("run.context").get("agent_id", ""))
    record, end_body = run.record, run.first("run.ended")
    # A request that was not admitted belongs to no session.
    session_id = run.first("run.received")["request"].get("session_id") if run.first("run.context") else None
    usage = record.get("budget_usage", {})
    calls = [entry.body["envelope"] for entry in run.of("tool.dispatching")]
    attachments = [entry for entry in run.of("attachment.fetched") if "failure" not in entry.body]
    values = {
        **attributes,
        genai.CONVERSATION_ID: session_id,
        "contextos.run_id": run.run_id,
        "contextos.session_id": session_id,
        "contextos.tenant_id": run.tenant_id,
        "contextos.intent": run.first("intent.resolved").get("intent_id"),
        "contextos.context_pack_ref": run.first("run.pinned").get("pack_ref"),
        "contextos.policy_bundle_ids": sorted(
            {ref for entry in run.of("context.compiled") for ref in entry.body["context_ledger"]["policy_bundles"]}
        ),
        "contextos.approval_mode_required": _highest_mode([call["approval_mode_requested"] for call in calls]),
        "contextos.approval_mode_effective": _highest_mode([call["approval_mode_effective"] for call in calls]),
        "contextos.decision_key": record.get("decision_key"),
        "contextos.decision_record_id": end_body.get("record_id"),
        "contextos.decision_record_hash": end_body.get("record_hash"),
        "contextos.replay_id": record.get("replay", {}).get("replay_id"),
        "contextos.end": run.end,
        "contextos.outcome": record.get("outcome"),
        "contextos.status": record.get("status"),
        "contextos.tokens": usage.get("tokens"),
        "contextos.cost_usd_cents": usage.get("cost_usd_cents"),
        "contextos.attachment_hashes": [entry.body["evidence_ref"].rpartition("#")[2] for entry in attachments],
        "contextos.spans_omitted": omitted or None,
    }
    failed = run.end in ("refused", "escalated", "exhausted")
    if failed:
        values[genai.ERROR_TYPE] = run.end
    # A caller that does not record its trace, or whose trace is not continued, has no span that could be the parent.
    link = run.trace.link
    from_caller = run.segment == 0 and link is None and bool(int(run.trace.trace_flags, 16) & SAMPLED)
    parent = run.trace.span_id if from_caller else _span_id(run.run_id, 0, "run") if run.segment else None
    return Span(
        run.trace.trace_id,
        span_id(run, "run"),
        parent,
        name,
        run.log[0].at_us,
        run.log[-1].at_us,
        identifiers(values),
        failed,
        from_caller,
        (link.trace_id, link.span_id) if link else None,
    )


def _has_span(work: _Work) -> bool:
    return work.component in ALWAYS or work.end_us - work.start_us >= MIN_COMPONENT_US


def _component_span(run: EndedRunEntries, plane_id: str, work: _Work) -> Span:
    place = f"{work.component}/{work.revision}" if work.revision else work.component
    attributes: dict[str, Value] = {}
    if work.revision.isdigit():
        attributes["contextos.plan_revision"] = int(work.revision)
    if (operation := genai.COMPONENT_OPERATIONS.get(work.component)) is not None:
        attributes[genai.OPERATION_NAME] = operation
    return _child_span(run, span_id(run, place), plane_id, work.component, work.start_us, work.end_us, attributes)


def _call_spans(run: EndedRunEntries) -> Iterator[Span]:
    """Yield one span for each call: all its attempts, or its refusal. The keys of attempts differ at their end."""
    by_call: dict[str, list[Logged]] = {}
    for entry in run.of("tool.dispatching", "tool.returned", "tool.refused"):
        by_call.setdefault(entry.body["envelope"]["tool_call_id"], []).append(entry)
    settlements, gateway = {entry.key: entry for entry in run.of("effect.settled")}, span_id(run, "action.tool_gateway")
    for tool_call_id, entries in by_call.items():
        last_key = entries[-1].key
        settlement = settlements.get(last_key) or settlements.get(last_key.rpartition("/")[0])
        yield _call_span(run, gateway, tool_call_id, entries, settlement)


def _call_span(
    run: EndedRunEntries, gateway: str, tool_call_id: str, entries: Sequence[Logged], settlement: Logged | None
) -> Span:
    last, dispatches = entries[-1], [entry for entry in entries if entry.kind == "tool.dispatching"]
    envelope = last.body["envelope"]
    error = envelope.get("error") or envelope.get("withheld") or {}
    refusal = "replayed" if envelope["metadata"].get("made_by") else "refused"
    outcome = refusal if last.kind == "tool.refused" else last.body.get("outcome", "unknown")
    failed = settlement is None and (outcome not in ("returned", "replayed") or bool(error))
    name, attributes = genai.tool_span(envelope["capability_id"], tool_call_id)
    values = {
        **attributes,
        "contextos.action.outcome": outcome,
        "contextos.action.attempts": len(dispatches) if len(dispatches) != 1 else None,
        "contextos.policy_decision_id": envelope.get("policy_decision_id"),
        "contextos.output_digest": content_address(envelope.get("output")) if last.kind == "tool.returned" else None,
        "contextos.effect": (last if settlement is None else settlement).body.get("happened") or None,
    }
    if dispatches:
        dispatch = dispatches[-1].body
        values |= {
            "contextos.action.approval_mode_effective": dispatch["envelope"]["approval_mode_effective"],
            "contextos.args_digest": content_address(dispatch["envelope"]["args"]),
            "contextos.approval_id": dispatch.get("approval_id"),
        }
    if failed:
        values[genai.ERROR_TYPE] = error_type(error.get("code")) if error else outcome
    end_us = settlement.at_us if settlement else last.at_us
    own_id, start_us = call_span_id(tool_call_id), entries[0].at_us
    return _child_span(run, own_id, gateway, name, start_us, end_us, identifiers(values), failed=failed)


def _model_call_spans(run: EndedRunEntries) -> Iterator[Span]:
    """Yield one span for each call that was sent to a model. Each attempt is a call."""
    routes = {entry.key: entry.body for entry in run.of("model.routed")}
    replies = {entry.key: entry for entry in run.of("model.answered")}
    judged_keys, gateway = {entry.key for entry in run.of("model.judged")}, span_id(run, MODEL_GATEWAY)
    for request in run.of("model.asked"):
        reply, route = replies.get(request.key), routes.get(request.key, {})
        body: Mapping[str, Any] = {"outcome": "unknown"} if reply is None else reply.body
        outcome = "not_taken" if request.key in judged_keys else body["outcome"]
        name, attributes = genai.model_span(
            request.body["wire"], request.body["model"], embeds=bool(request.body.get("texts"))
        )
        values = {
            **attributes,
            genai.REQUEST_MAX_TOKENS: route.get("output_tokens"),
            genai.RESPONSE_MODEL: body.get("model"),
            genai.RESPONSE_ID: body.get("reply_id"),
            **genai.token_usage((body.get("usage") or {}).get("counts", {})),
            "contextos.model.operation": route.get("operation"),
            "contextos.model.profile": route.get("profile"),
            "contextos.model.rule": route.get("rule_id"),
            "contextos.model.outcome": outcome,
            "contextos.model.cost_usd_cents": cents(reply.body["cost_units"]) if reply else None,
        }
        failed = outcome != "answered"
        if failed:
            values[genai.ERROR_TYPE] = outcome
        own_id, end_us = model_span_id(run.run_id, request.key), (reply or request).at_us
        yield _child_span(run, own_id, gateway, name, request.at_us, end_us, identifiers(values), failed=failed)


def _child_span(
    run: EndedRunEntries,
    own_id: str,
    parent_id: str,
    name: str,
    start_us: int,
    end_us: int,
    attributes: Attributes,
    *,
    failed: bool = False,
) -> Span:
    return Span(run.trace.trace_id, own_id, parent_id, name, start_us, end_us, attributes, failed)


def _span_id(run_id: str, segment: int, place: str) -> str:
    return sha256(f"{run_id} {segment} {place}".encode()).hexdigest()[:16]


def _highest_mode(modes: Sequence[str]) -> str | None:
    return max(modes, key=APPROVAL_MODES.index, default=None)
