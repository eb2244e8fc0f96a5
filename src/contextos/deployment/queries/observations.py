"""Read what sessions of agents recorded call by call, and what an enforcing pack would have done with each call.

A run that does not verify is left out and named, so nothing altered is counted. A call that was erased is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.entries.reading import read_body
from contextos.contracts.facts import name_remedy
from contextos.deployment.queries.checked_run import CheckedRun, read_checked
from contextos.deployment.queries.run_index import MAX_RUNS_READ, newest_runs
from contextos.deployment.queries.run_names import run_named
from contextos.deployment.queries.run_view import run_principals
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.contracts.envelopes.identity import Principals
    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store

FINISH: Final = "finish"
"""The check about the outcome that an agent states at the end of its session."""
MAX_EXAMPLES: Final = 3
"""The most calls that are named as examples for a rule."""


@dataclass(frozen=True, slots=True)
class SessionCall:
    """One call of a session. `status` is the status of its answer: `done`, `failed` (the tool's own error), `refused`,
    or `open` without an answer. `envelope` is the result of a tool that answered. `findings` are those of its
    `call.observed` entry.
    """

    run_id: str
    call_id: str
    tool: str
    args: Mapping[str, Any]
    status: str = "open"
    envelope: Mapping[str, Any] | None = None
    failures: Sequence[Mapping[str, Any]] = ()
    findings: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """One session: its request, who acted, its pack, its calls in order, and whether its pack observed.

    `at_end` are the findings about the outcome that its agent stated. `wall_clock_ms` is how long the session worked,
    in milliseconds, or 0 while it has no record.
    """

    run_id: str
    request: Mapping[str, Any]
    principals: Principals
    pack_ref: str
    observed: bool
    calls: Sequence[SessionCall]
    at_end: Sequence[Mapping[str, Any]] = ()
    wall_clock_ms: float = 0

    @property
    def intent(self) -> str:
        return str(self.request["input"]["intent"])


@dataclass(frozen=True, slots=True)
class Recording:
    """The sessions that were read, newest first, and, by run, why other runs do not verify.

    `older`: the tenant has older runs, which were not read.
    """

    sessions: Sequence[RecordedSession]
    faults: Mapping[str, str] = field(default_factory=dict)
    older: bool = False

    @property
    def calls(self) -> list[SessionCall]:
        """Return all calls of all sessions."""
        return [call for session in self.sessions for call in session.calls]

    def of_intents(self, names: Sequence[str]) -> Recording:
        """Return only the sessions of these intents; without names, all. Raises `InvalidInput` for an unknown one."""
        intents = sorted({session.intent for session in self.sessions})
        if unknown := [name for name in names if name not in intents]:
            remedy = name_remedy(unknown[0], intents) if intents else "record sessions with a pack that observes"
            detail = f"no session of the intent `{unknown[0][:80]}` was read"
            raise InvalidInput(Problem("/intent", "unknown_intent", detail, remedy))
        sessions = [session for session in self.sessions if not names or session.intent in names]
        return replace(self, sessions=sessions)


@dataclass(frozen=True, slots=True)
class RuleCount:
    """What one rule, gate or check would have done: `deny` or `ask`, how often, why, and a few of the calls."""

    rule: str
    verdict: str
    detail: str
    count: int
    examples: Sequence[tuple[str, str]]


async def read_sessions(
    store: Store, tenant_id: str, keys: Keys, names: Sequence[str] = (), *, limit: int = MAX_RUNS_READ
) -> Recording:
    """Read the sessions of these runs or requests. Without names, read the sessions whose pack observed among the
    `limit` newest runs of the tenant.

    Raises:
        NotFound: no run or request has this name.
        InvalidInput: the run with this name is not a session.
        ChainBroken: an entry of the index that was read is missing, moved or changed.
    """
    sessions, faults, older = [], {}, False
    if names:
        runs = [await run_named(store, name) for name in names]
    else:
        runs = []
        async for index_entry in newest_runs(store, tenant_id, 0):
            if older := len(runs) == limit:
                break
            runs.append(index_entry.key)
    for run_id in dict.fromkeys(runs):
        checked = await read_checked(store, tenant_id, keys, run_id)
        session = None if checked.fault else _recorded_session(checked)
        if checked.fault:
            faults[run_id] = checked.fault
        elif session is not None and (names or session.observed):
            sessions.append(session)
        elif names:
            detail = f"`{run_id}` is not a session of an agent, or what it recorded was erased"
            raise InvalidInput(Problem("", "no_session", detail, "name sessions, or none for all that were observed"))
    return Recording(sessions, faults, older)


def _recorded_session(run: CheckedRun) -> RecordedSession | None:
    """Return the session of a verified run; None if the run is not a session, or an entry that says so was erased."""
    opened = _first_body(run.entries, "session.opened")
    request_body, pinned = _first_body(run.entries, "run.received"), _first_body(run.entries, "run.pinned")
    principals = run_principals(run.entries)
    records = [entry for entry in run.entries if entry.kind == "record.revised" and entry.body]
    if opened is None or request_body is None or pinned is None or principals is None:
        return None
    return RecordedSession(
        run.run_id,
        request_body["request"],
        principals,
        pinned["pack_ref"],
        bool(opened.get("observed")),
        session_calls(run.run_id, run.entries),
        [
            finding
            for entry in run.entries
            if entry.kind == "call.observed"
            for finding in _end_findings(read_body(entry))
        ],
        max((read_body(entry)["budget_usage"]["wall_clock_ms"] for entry in records), default=0),
    )


def _end_findings(body: Any) -> list[Mapping[str, Any]]:
    """Return the findings of a body of `call.observed` that is about the end of a session."""
    return [{"by": FINISH, **finding} for finding in body["findings"]] if body and body["by"] == FINISH else []


def _first_body(entries: Sequence[Entry], kind: str) -> Any:
    first = next((entry for entry in entries if entry.kind == kind and entry.body), None)
    return None if first is None else read_body(first)


def session_calls(run_id: str, entries: Sequence[Entry]) -> list[SessionCall]:
    """Return the calls of a session in order. A call whose entry was erased is left out."""
    calls: list[SessionCall] = []
    call: tuple[str, Mapping[str, Any]] | None = None
    findings: list[Mapping[str, Any]] = []
    results: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        body = read_body(entry) if entry.kind in _READ_KINDS else None
        if entry.kind == "call.asked":
            if call is not None:
                calls.append(SessionCall(run_id, call[0], call[1]["tool"], call[1]["args"], findings=findings))
            call, findings = (None if body is None else (entry.key, body)), []
        elif body is None:
            continue
        elif entry.kind == "plan.proposed":
            if call is not None:
                call = call[0], {**call[1], "args": _with_defaults(call[1]["args"], body["steps"][0]["params"])}
        elif entry.kind == "call.observed":
            findings += [{"by": body["by"], **finding} for finding in body["findings"]]
        elif entry.kind == "call.answered" and call is not None:
            call_id, fields = call
            result = results.get(body["step"]) if body["step"] else None
            calls.append(
                SessionCall(
                    run_id, call_id, fields["tool"], fields["args"], body["status"], result, body["failures"], findings
                )
            )
            call, findings = None, []
        elif entry.kind != "call.answered":
            results["/".join(entry.key.split("/")[:2])] = body.get("envelope", body)
    if call is not None:
        calls.append(SessionCall(run_id, call[0], call[1]["tool"], call[1]["args"], findings=findings))
    return calls


def _with_defaults(args: Mapping[str, Any], planned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with its defaults. An argument that is null by default was not given."""
    return {name: value for name, value in planned.items() if value is not None or name in args}


_READ_KINDS: Final = frozenset(
    {"call.asked", "plan.proposed", "call.observed", "call.answered", "tool.returned", "tool.refused"}
)


def counts_by_rule(sessions: Iterable[RecordedSession]) -> list[RuleCount]:
    """Return what each rule would have done with the calls and the ends of these sessions, the most frequent first.

    A call counts once for each rule. The end of a session is listed under the name `finish` with its run.
    """
    by_rule: dict[tuple[str, str], tuple[str, dict[tuple[str, str], None]]] = {}
    for session in sessions:
        for call_id, findings in (*((call.call_id, call.findings) for call in session.calls), (FINISH, session.at_end)):
            for finding in findings:
                for rule in rules_of(finding):
                    _, calls = by_rule.setdefault((rule, finding["verdict"]), (finding["detail"], {}))
                    calls[session.run_id, call_id] = None
    counts = [
        RuleCount(rule, verdict, detail, len(calls), list(calls)[:MAX_EXAMPLES])
        for (rule, verdict), (detail, calls) in by_rule.items()
    ]
    return sorted(counts, key=lambda count: (-count.count, count.rule))


def rules_of(finding: Mapping[str, Any]) -> list[str]:
    """Return the causes of a finding: the gate that asks, the rules that deny, or else the check with its code."""
    if finding.get("gate_id"):
        return [finding["gate_id"]]
    place = f" at {finding['pointer']}" if finding.get("pointer") else ""
    return list(finding.get("rule_ids", ())) or [f"{finding['by']}: {finding['code']}{place}"]
