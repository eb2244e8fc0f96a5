"""Derive a run again from its journal, and compare. No external system is reached."""

from __future__ import annotations

from typing import Annotated, Final, Self

from fastapi import APIRouter, Query

from contextos.audit.replay import ReplayResult, derived_context, replay
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.model import Model
from contextos.errors import ChainBroken, Integrity, ReplayMismatch, UnknownSemantics
from contextos.server.access import RolesHere, RunName, readable_run
from contextos.server.callers import AppHere, CallerHere
from contextos.server.operate.work import WorkHere, WorkTime

replay_routes: Final = APIRouter(tags=["audit"])


class ReplayDocument(Model):
    """What a replay came to. `equal`: every entry that was derived again is as recorded; else `difference` says what is
    not, and the other fields are null.

    `compared` is the number of entries, and `erased` the numbers of those whose bodies were erased and derived again.
    """

    run_id: str
    equal: bool
    difference: str | None
    status: str | None
    record_hash: str | None
    compared: int | None
    erased: list[int]

    @classmethod
    def of_result(cls, found: ReplayResult) -> Self:
        return cls(
            run_id=found.run_id,
            equal=True,
            difference=None,
            status=found.status,
            record_hash=found.record_hash,
            compared=found.compared,
            erased=list(found.missing),
        )

    @classmethod
    def of_fault(cls, run_id: str, fault: Integrity) -> Self:
        return cls(
            run_id=run_id, equal=False, difference=str(fault), status=None, record_hash=None, compared=None, erased=[]
        )


@replay_routes.post("/runs/{run}/replay", response_model_exclude_unset=True)
async def post_replay(
    app: AppHere, caller: CallerHere, roles: RolesHere, work: WorkHere, name: RunName
) -> ReplayDocument:
    """Replay a run that has ended. Nothing is recorded."""
    run = await readable_run(app, caller, roles, name)

    async def job(_time: WorkTime) -> ReplayDocument:
        try:
            return ReplayDocument.of_result(await replay(app.deployment, run.tenant_id, run.run_id))
        except (ChainBroken, ReplayMismatch, UnknownSemantics) as fault:
            return ReplayDocument.of_fault(run.run_id, fault)

    return await work.do(run.tenant_id, job)


@replay_routes.get("/runs/{run}/context", response_model_exclude_unset=True)
async def get_context(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    work: WorkHere,
    name: RunName,
    plan: Annotated[
        int | None, Query(ge=0, description="The number of the plan, from 0; absent, the last one.")
    ] = None,
) -> CompiledContext:
    """Read the context that a run compiled, with its text. It is derived again and equals the digests on record."""
    run = await readable_run(app, caller, roles, name)
    key = None if plan is None else str(plan)
    return await work.do(run.tenant_id, lambda _: derived_context(app.deployment, run.tenant_id, run.run_id, key))
