"""Decides what a caller may see of their tenant: their own runs, and with a reader role the runs of others.

A thing that the caller may not see is answered like a thing that does not exist.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends, Path

from contextos.errors import NotFound
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem, not_found
from contextos.service.approvals import Question
from contextos.service.operations.operation import READER_ROLES
from contextos.service.pages import Page
from contextos.service.run_search import RunSearch
from contextos.service.runs import Run
from contextos.trust.identity.callers import Caller
from contextos.workspace import App

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

_FORM: Final = {"pattern": f"^{_NAME.pattern}$"}
_DESCRIPTION: Final = "A run id, or the id of the request that made the run."
RunName = Annotated[str, Path(alias="run", description=_DESCRIPTION, json_schema_extra=_FORM)]


async def held_roles(app: AppHere, caller: CallerHere) -> frozenset[str]:
    """Return the roles that the caller holds as an approver or operator in the directory now.

    A workload has no roles. Nor has a token that a person gave to an agent, because it is for the agent's own runs.
    """
    if caller.kind != "user" or caller.agent_ids is not None:
        return frozenset()
    approver = await app.deployment.ports.directory.approver(caller.tenant_id, caller.subject)
    return frozenset(approver.roles) if approver is not None else frozenset()


RolesHere = Annotated[frozenset[str], Depends(held_roles)]


def require_role(held: frozenset[str], *roles: str) -> None:
    """Raise `HttpProblem` (403) unless one of `roles` is held. Call it before anything is looked up."""
    if held.isdisjoint(roles):
        names = " or ".join(f"`{role}`" for role in sorted(roles))
        raise HttpProblem(403, "not_allowed", f"this needs the role {names}, which you do not hold here")


def reads_every_run(roles: frozenset[str]) -> bool:
    """Return whether one of these roles lets its holder see the runs of others."""
    return not roles.isdisjoint(READER_ROLES)


def is_own(caller: Caller, run: Run) -> bool:
    """Return whether a run is the caller's own. A run whose request was erased belongs to nobody."""
    return run.user_id is not None and run.agent_id is not None and caller.is_behind(run.user_id, run.agent_id)


async def visible_runs(
    app: App, caller: Caller, roles: frozenset[str], *, state: str | None, search: RunSearch, limit: int, cursor: str
) -> Page[Run]:
    """Return a page of the runs that the caller may see, newest first, as `Runs.list` returns and raises."""
    reads_all = reads_every_run(roles)
    return await app.runs.list(
        caller.tenant_id,
        state=state,
        user_id=None if reads_all or caller.kind == "workload" else caller.subject,
        agent_ids=None if reads_all else caller.agent_ids,
        search=search,
        limit=limit,
        cursor=cursor,
    )


async def readable_run(app: App, caller: Caller, roles: frozenset[str], name: str) -> Run:
    """Return a run that the caller may see. Raises `HttpProblem` (404) for every other name."""
    if not _NAME.fullmatch(name):
        raise not_found()
    try:
        run = await app.runs.get(caller.tenant_id, name)
    except NotFound:
        raise not_found() from None
    if not (reads_every_run(roles) or is_own(caller, run)):
        raise not_found()
    return run


async def askable_question(
    app: App, caller: Caller, roles: frozenset[str], name: str, *, answering: bool = False
) -> Question:
    """Return the question on which a run waits, if it asks a role that the caller holds; `answering` as
    `ApprovalQuestions.get`.

    Raises:
        HttpProblem: there is no such run, or its question asks another role (404).
        ApprovalRefused: the question was answered or has expired.
    """
    if not _NAME.fullmatch(name):
        raise not_found()
    try:
        return await app.approvals.get(caller.tenant_id, name, roles=roles, answering=answering)
    except NotFound:
        raise not_found() from None
