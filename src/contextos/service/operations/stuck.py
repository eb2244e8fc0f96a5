"""What is stuck in a tenant: runs and notices that failed for good, and circuit breakers that stop calls."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeVar

from contextos.contracts.documents.operations import BREAKERS
from contextos.contracts.documents.subscriptions import UNDELIVERED
from contextos.contracts.model import Model
from contextos.deployment.dead_letters import list_dead_letters
from contextos.service.operations.operation import READER_ROLES, Asked, Operation, Paged, opened_cursor, sealed_cursor

ModelT = TypeVar("ModelT", bound=Model)


class StuckRun(Model):
    """A run that failed so often that it is no longer driven: the code and the text of the last error."""

    run_id: str
    code: str
    detail: str
    failures: int
    failed_at_us: int


class DeadLetterPage(Model):
    """A page of runs that are no longer driven, by id. `cursor` asks for the next page; null after the last."""

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
    """A page of undelivered notices, by destination. `cursor` asks for the next page; null after the last."""

    items: list[UndeliveredDocument]
    cursor: str | None


class BreakerDocument(Model):
    """A circuit breaker that has ever opened. While it is `open`, no call is sent before `retry_at_us`; then one is."""

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


async def list_stuck_runs(asked: Asked, page: Paged) -> DeadLetterPage:
    """List the runs that failed for good and wait for `POST /v1/runs/{run}/retry`."""
    list_name, store = (asked.tenant_id, "dead letters"), asked.app.deployment.ports.stores.tenant(asked.tenant_id)
    letters = await list_dead_letters(store, after=opened_cursor(list_name, page.cursor), limit=page.limit)
    items = [_document(StuckRun, letter) for letter in letters]
    last = letters[-1].run_id if len(letters) == page.limit else None
    return DeadLetterPage(items=items, cursor=sealed_cursor(list_name, last))


async def list_undelivered(asked: Asked, page: Paged) -> UndeliveredPage:
    """List the notices that their destinations did not take."""
    list_name, store = (asked.tenant_id, "notices"), asked.app.deployment.ports.stores.tenant(asked.tenant_id)
    rows = await UNDELIVERED.page(store, after=opened_cursor(list_name, page.cursor), limit=page.limit)
    items = [
        _document(UndeliveredDocument, row.body, subscriber=row.key.partition("/")[0], run_id=row.body.run)
        for row in rows
    ]
    last = rows[-1].key if len(rows) == page.limit else None
    return UndeliveredPage(items=items, cursor=sealed_cursor(list_name, last))


async def list_breakers(asked: Asked, page: Paged) -> BreakerPage:
    """List the circuit breakers that have ever opened. Each closes by itself when a call succeeds."""
    list_name, store = (asked.tenant_id, BREAKERS.name), asked.app.deployment.ports.stores.tenant(asked.tenant_id)
    rows = await BREAKERS.page(store, after=opened_cursor(list_name, page.cursor), limit=page.limit)
    items = [_document(BreakerDocument, row.body, capability_id=row.key) for row in rows]
    last = rows[-1].key if len(rows) == page.limit else None
    return BreakerPage(items=items, cursor=sealed_cursor(list_name, last))


def _document(model: type[ModelT], stored: Any, **fields: str) -> ModelT:
    """Return a document with these fields; it has its other fields from the attributes of `stored` with their names."""
    return model(**fields, **{name: getattr(stored, name) for name in model.model_fields.keys() - fields.keys()})


STUCK_OPERATIONS: Final = (
    Operation("dead-letters.list", ("GET", "/dead-letters"), READER_ROLES, Paged, DeadLetterPage, list_stuck_runs),
    Operation(
        "dead-letters.notices", ("GET", "/dead-letters/notices"), READER_ROLES, Paged, UndeliveredPage, list_undelivered
    ),
    Operation("breakers.list", ("GET", "/breakers"), READER_ROLES, Paged, BreakerPage, list_breakers),
)
