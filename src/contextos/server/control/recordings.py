"""Reads recorded sessions of agents: counts observations, tests a pack on recorded calls, and drafts a pack from them.

Only runs that the caller may see are read. The server reads them, because it has the keys; a child judges them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal, Self

from fastapi import APIRouter
from pydantic import ConfigDict, Field, Strict, model_validator

from contextos.contracts.model import ListOnly, Model, Name, Seq
from contextos.deployment.queries.observations import RecordedSession, Recording, counts_by_rule, read_sessions
from contextos.packs.declaration import PackName
from contextos.server.access import RolesHere, readable_run, reads_every_run, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.control.children import Children, ChildrenHere, in_child
from contextos.server.control.drafts import PackText, tool_definitions
from contextos.server.problems import HttpProblem
from contextos.service.operations.packs import PACK_READERS
from contextos.trust.identity.callers import Caller
from contextos.workspace import App

recording_routes: Final = APIRouter(tags=["packs"])

MAX_READ_RUNS: Final = 200


_LIMIT_OF_NAMED_RUNS: Final[dict[str, Any]] = {
    "properties": {"runs": {"minItems": 1}, "limit": {"type": "integer"}},
    "required": ["runs", "limit"],
}


class SessionChoice(Model):
    """Sessions to read: `runs`, or the observed ones of the `limit` (or 200) newest runs; those of `intents` only."""

    model_config = ConfigDict(json_schema_extra={"not": _LIMIT_OF_NAMED_RUNS})

    runs: Annotated[tuple[Name, ...], Strict(False), Field(max_length=MAX_READ_RUNS), ListOnly()] = ()
    intents: Seq[Name] = ()
    limit: int | None = Field(default=None, ge=1, le=MAX_READ_RUNS)

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if self.runs and self.limit is not None:
            raise ValueError("`limit` is of the newest runs, and `runs` are named; leave one out")
        return self


class PackTrial(SessionChoice):
    """A pack, short or whole, as text, and the sessions to judge by it."""

    document: PackText


class MinedDraft(SessionChoice):
    """A pack to make from sessions: its name, its version, and the role that is asked about writes."""

    name: PackName
    version: Name = "0.1.0"
    approver: Name = "approver"


class ReadSessions(Model):
    """The runs that were not read. `faults` has, by run id, why a run does not verify and was left out.
    `older_runs` says that older runs were not read.
    """

    faults: dict[str, str]
    older_runs: bool


class TrialCall(Model):
    """A recorded call, what the pack would do with it, and the rules, gates or checks behind that."""

    run_id: str
    call_id: str
    tool: str
    verdict: Literal["allowed", "ask", "deny"]
    rules: list[str]
    detail: str


class TrialReport(ReadSessions):
    """What a pack would do with recorded calls."""

    calls: list[TrialCall]


class MinedDeclaration(ReadSessions):
    """The short form of a pack that allows what sessions did, and little else: a draft, to be read before it is signed.
    `calls_left_out` counts the calls left out, by reason. `not_bounded` names, by tool, the arguments without a limit.
    """

    declaration: str
    calls_left_out: dict[str, int]
    not_bounded: dict[str, list[str]]


class NamedCall(Model):
    """A call of a session. The `call_id` `finish` means the end of the session."""

    run_id: str
    call_id: str


class ObservedRule(Model):
    """What one rule, gate or check would have done with calls: how often, why, and a few of the calls."""

    rule: str
    verdict: str
    detail: str
    count: int
    examples: list[NamedCall]


class ObservationReport(ReadSessions):
    """What packs that observe would have denied or asked, by rule, the most frequent first."""

    sessions: int
    calls: int
    rules: list[ObservedRule]


ChoiceBody = Annotated[SessionChoice, json_of(SessionChoice)]
TrialBody = Annotated[PackTrial, json_of(PackTrial)]
MinedBody = Annotated[MinedDraft, json_of(MinedDraft)]


@recording_routes.post("/packs/observations", openapi_extra=body_of(SessionChoice))
async def post_observations(
    app: AppHere, caller: CallerHere, roles: RolesHere, children: ChildrenHere, sent: ChoiceBody
) -> ObservationReport:
    """Count what packs that observe would have denied or asked, by rule."""
    require_role(roles, *PACK_READERS)
    async with _read_recording(app, caller, roles, children, sent) as (recording, _):
        counts = counts_by_rule(recording.sessions)
    rules = [
        ObservedRule(
            rule=rule.rule,
            verdict=rule.verdict,
            detail=rule.detail,
            count=rule.count,
            examples=[NamedCall(run_id=run, call_id=call) for run, call in rule.examples],
        )
        for rule in counts
    ]
    return ObservationReport(
        sessions=len(recording.sessions),
        calls=len(recording.calls),
        rules=rules,
        faults=dict(recording.faults),
        older_runs=recording.older,
    )


@recording_routes.post("/packs/test", openapi_extra=body_of(PackTrial))
async def post_trial(
    app: AppHere, caller: CallerHere, roles: RolesHere, children: ChildrenHere, sent: TrialBody
) -> TrialReport:
    """Judge the calls that sessions made by a pack. They are played again in memory with the recorded answers."""
    require_role(roles, *PACK_READERS)
    async with _read_recording(app, caller, roles, children, sent) as (recording, task_fields):
        answer = await in_child("test", caller.tenant_id, document=sent.document, **task_fields)
    calls = [TrialCall(**call) for call in answer["calls"]]
    return TrialReport(calls=calls, faults=dict(recording.faults), older_runs=recording.older)


@recording_routes.post("/packs/mine", openapi_extra=body_of(MinedDraft))
async def post_mined(
    app: AppHere, caller: CallerHere, roles: RolesHere, children: ChildrenHere, sent: MinedBody
) -> MinedDeclaration:
    """Draft the short form of a pack that allows what sessions did, and little else."""
    require_role(roles, *PACK_READERS)
    fields = {"name": sent.name, "version": sent.version, "approver": sent.approver}
    async with _read_recording(app, caller, roles, children, sent) as (recording, task_fields):
        answer = await in_child("mine", caller.tenant_id, fields=fields, **task_fields)
    return MinedDeclaration(**answer, faults=dict(recording.faults), older_runs=recording.older)


@asynccontextmanager
async def _read_recording(
    app: App, caller: Caller, roles: frozenset[str], children: Children, choice: SessionChoice
) -> AsyncIterator[tuple[Recording, dict[str, Any]]]:
    """Yield the recorded sessions that the caller may see, and the fields of a task about them, within a `place`."""
    if not choice.runs and not reads_every_run(roles):
        raise HttpProblem(403, "not_allowed", "you do not see the runs of others here; name runs of your own")
    async with children.place(caller.tenant_id):
        run_ids = [(await readable_run(app, caller, roles, name)).run_id for name in choice.runs]
        store = app.stores.tenant(caller.tenant_id)
        recorded = await read_sessions(store, caller.tenant_id, app.keys, run_ids, limit=choice.limit or MAX_READ_RUNS)
        recording = recorded.of_intents(choice.intents)
        sessions = [_session_fields(session) for session in recording.sessions]
        yield recording, {"sessions": sessions, "definitions": tool_definitions(app, caller)}


def _session_fields(session: RecordedSession) -> dict[str, Any]:
    names = ("run_id", "request", "pack_ref", "observed", "at_end", "wall_clock_ms")
    fields = {name: getattr(session, name) for name in names} | {"principals": session.principals.to_json()}
    return {**fields, "calls": [asdict(call) for call in session.calls]}
