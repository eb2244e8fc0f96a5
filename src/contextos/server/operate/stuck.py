"""What is stuck in a tenant: runs and notices that failed for good, and circuit breakers that stop calls."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query

from contextos.contracts.documents.operations import BREAKERS
from contextos.contracts.documents.subscriptions import UNDELIVERED
from contextos.contracts.model import Model
from contextos.deployment.dead_letters import list_dead_letters
from contextos.server.access import READER_ROLES, RolesHere, require_role
from contextos.server.callers import AppHere, CallerHere
from contextos.server.shared.pages import Limit
from contextos.service.operations.operation import opened_cursor, sealed_cursor

stuck_routes: Final = APIRouter(tags=["operations"])

KeyCursor = Annotated[str, Query(max_length=512, description="The `cursor` of the page before.")]


class StuckRun(Model):
    """A run that failed so often that it is no longer driven: the code and the text of the last error."""

    run_id: str
    code: str
    detail: str
    failures: int
    failed_at_us: int


class DeadLetterPage(Model):
    """A page of these runs, by id. `cursor` asks for the next page; null after the last."""

    items: list[StuckRun]
    cursor: str | None


class UndeliveredDocument(Model):
    """A notice about a run that its destination did not take, so that it was given up."""

    subscriber: str
    run_id: str
    sequence: int
    event: str
    failures: int
    detail: str
    at_us: int


class UndeliveredPage(Model):
    """A page of these notices, by destination. `cursor` asks for the next page; null after the last."""

    items: list[UndeliveredDocument]
    cursor: str | None


class BreakerDocument(Model):
    """A circuit breaker that has ever opened. While it is `open`, no call is sent until `retry_at_us`; then one is."""

    capability_id: str
    state: Literal["closed", "open", "half_open"]
    failures: int
    since_us: int
    retry_at_us: int
    process: str


class BreakerPage(Model):
    """A page of breakers, by capability. `cursor` asks for the next page; null after the last."""

    items: list[BreakerDocument]
    cursor: str | None


@stuck_routes.get("/dead-letters", response_model_exclude_unset=True)
async def get_dead_letters(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: KeyCursor = ""
) -> DeadLetterPage:
    """List the runs that failed for good and wait for `POST /v1/runs/{run}/retry`."""
    require_role(roles, *READER_ROLES)
    of = (caller.tenant_id, "dead letters")
    found = await list_dead_letters(app.stores.tenant(caller.tenant_id), after=opened_cursor(of, cursor), limit=limit)
    items = [
        StuckRun(
            run_id=one.run_id, code=one.code, detail=one.detail, failures=one.failures, failed_at_us=one.failed_at_us
        )
        for one in found
    ]
    return DeadLetterPage(items=items, cursor=sealed_cursor(of, found[-1].run_id if len(found) == limit else None))


@stuck_routes.get("/dead-letters/notices", response_model_exclude_unset=True)
async def get_undelivered(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: KeyCursor = ""
) -> UndeliveredPage:
    """List the notices that nobody took."""
    require_role(roles, *READER_ROLES)
    of = (caller.tenant_id, "notices")
    found = await UNDELIVERED.page(app.stores.tenant(caller.tenant_id), after=opened_cursor(of, cursor), limit=limit)
    items = [
        UndeliveredDocument(
            subscriber=one.key.partition("/")[0],
            run_id=one.body.run,
            sequence=one.body.sequence,
            event=one.body.event,
            failures=one.body.failures,
            detail=one.body.detail,
            at_us=one.body.at_us,
        )
        for one in found
    ]
    return UndeliveredPage(items=items, cursor=sealed_cursor(of, found[-1].key if len(found) == limit else None))


@stuck_routes.get("/breakers", response_model_exclude_unset=True)
async def get_breakers(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: KeyCursor = ""
) -> BreakerPage:
    """List the circuit breakers that have ever opened. Each closes by itself when a call succeeds."""
    require_role(roles, *READER_ROLES)
    of = (caller.tenant_id, BREAKERS.name)
    found = await BREAKERS.page(app.stores.tenant(caller.tenant_id), after=opened_cursor(of, cursor), limit=limit)
    items = [
        BreakerDocument(
            capability_id=one.key,
            state=one.body.state,
            failures=one.body.failures,
            since_us=one.body.since_us,
            retry_at_us=one.body.retry_at_us,
            process=one.body.process,
        )
        for one in found
    ]
    return BreakerPage(items=items, cursor=sealed_cursor(of, found[-1].key if len(found) == limit else None))
