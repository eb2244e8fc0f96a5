"""Any operation of the storage fails, for every Nth one until a run makes no more, by each cause there is.

While the fault lasts a run is reported as unavailable, and never to have ended without a durable record. When it is
over, the same request, or the sweep, brings the run to the one end that it would have had.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import tests.world
from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.deployment.deployment import due_runs
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ApprovalRefused, Unavailable
from contextos.store.sqlite.stores import SqliteStores
from tests.e2e.faulty_storage import FaultyPostgres, FaultySqlite
from tests.postgres import Database
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow

Faults = FaultySqlite | FaultyPostgres
BY_DEFAULT = {
    ("lost reply", "invoked"),
    ("full", "invoked"),
    ("read-only", "approved"),
    ("cut before", "invoked"),
    ("cut after", "approved"),
}
ON_FILES = {("full", "invoked"), ("read-only", "approved")}
"""The rest runs with the soak runs."""


def causes(kinds: Iterable[str], by_default: set[tuple[str, str]]) -> list[Any]:
    return [
        pytest.param(
            kind, leg == "approved", id=f"{kind}-{leg}", marks=[] if (kind, leg) in by_default else [pytest.mark.soak]
        )
        for kind in kinds
        for leg in ("invoked", "approved")
    ]


ORDER = "ord_large"


@asynccontextmanager
async def on_sqlite(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[TestWorld, Faults]]:
    faults = FaultySqlite(kind)
    monkeypatch.setattr(tests.world, "SqliteStores", partial(SqliteStores, connector=faults.connector))
    world = await with_large_order(await open_world(path, stores="sqlite"))
    yield world, faults
    await world.aclose()


@asynccontextmanager
async def on_postgres(path: Path, kind: str, database: Database) -> AsyncIterator[tuple[TestWorld, Faults]]:
    faults = FaultyPostgres(database, kind)
    world = await with_large_order(await open_world(path, stores=await faults.start()))
    try:
        yield world, faults
    finally:
        await world.aclose()
        await faults.stop()


async def with_large_order(world: TestWorld) -> TestWorld:
    """An order with room for as many refunds as there are operations."""
    await world.stock(ORDER, total_inr=10_000_000)
    return world


async def outcome_of(act: Callable[[], Awaitable[Any]]) -> Any:
    """What a caller hears: a view, or that it is unavailable. Anything else is a defect."""
    try:
        return await act()
    except Unavailable as error:
        assert error.retry_after_ms > 0
        return error


async def swept(world: TestWorld) -> None:
    """What an engine does later: drive what is due."""
    world.clock.at_us += world.deployment.config.lease_ttl_us + 1
    for tenant_id, run_id in [due async for due in due_runs(world.deployment)]:
        await world.deployment.advance(tenant_id, run_id)


async def soon(act: Callable[[], Awaitable[Any]]) -> Any:
    """What comes of it when it is tried again: each connection that was idle may have been lost."""
    for _ in range(20):
        if not isinstance(heard := await outcome_of(act), Unavailable):
            return heard
    raise AssertionError(f"the fault is over, and it is still unavailable: {heard}")


async def ended(world: TestWorld, body: dict[str, Any], heard: Any, *, by_sweep: bool) -> RunView:
    """The one end of the request, once the fault is over."""
    if by_sweep:
        await soon(lambda: swept(world))
    view: RunView = await soon(lambda: world.invoke(body))
    if view.waiting is not None:
        try:
            await world.answer(view.run_id)
        except ApprovalRefused as error:
            assert error.reason == "already_answered"
        await world.deployment.advance(TENANT, view.run_id)
        view = await world.deployment.view(TENANT, view.run_id)
    if isinstance(heard, RunView):
        assert view.run_id == heard.run_id
        assert not heard.ended or view.record == heard.record, "what was said to have ended had"
    return view


async def audited(world: TestWorld, view: RunView, amount: int) -> None:
    assert view.state == "completed"
    assert [one["amount_inr"] for one in world.refunds()].count(amount) == 1
    kinds = await world.kinds(view.run_id)
    assert kinds.count("tool.dispatching") == kinds.count("tool.returned")
    replayed = await replay(world.deployment, TENANT, view.run_id)
    assert view.record is not None
    assert replayed.record_hash == view.record["record_hash"]


async def every_nth_operation_fails(world: TestWorld, faults: Faults, *, gated: bool) -> int:
    """The number of operations at which a fault struck."""
    strikes = 0
    world.deployment.config = replace(world.deployment.config, lease_ttl_us=5_000_000)
    await world.invoke(request(901, "req_warm", order_id=ORDER))
    for nth in count(1):
        amount = (4000 if gated else 1000) + nth
        body = request(amount, f"req_{nth}", order_id=ORDER)
        asked = await world.invoke(body) if gated else None

        async def act(body: dict[str, Any] = body, asked: RunView | None = asked) -> RunView:
            return await world.invoke(body) if asked is None else await world.approve(asked.run_id)

        await faults.arm(nth)
        heard = await outcome_of(act)
        await faults.disarm()
        view = await ended(world, body, heard, by_sweep=nth % 2 == 0)
        await audited(world, view, amount)
        if not faults.struck:
            assert isinstance(heard, RunView), "nobody was in its way"
            break
        strikes += 1
    await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    return strikes


@pytest.mark.requirement("J-DURABLE", "J-BARRIER")
@pytest.mark.parametrize(("kind", "gated"), causes(FaultySqlite.KINDS, BY_DEFAULT))
def test_no_run_on_a_file_ends_without_a_durable_record_and_all_end_when_the_fault_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, gated: bool
) -> None:
    async def go() -> None:
        async with on_sqlite(tmp_path, kind, monkeypatch) as (world, faults):
            assert await every_nth_operation_fails(world, faults, gated=gated) > 10

    run(go())


@pytest.mark.requirement("J-DURABLE", "J-BARRIER")
@pytest.mark.parametrize(("kind", "gated"), causes(FaultyPostgres.KINDS, BY_DEFAULT - ON_FILES))
def test_no_run_on_a_server_ends_without_a_durable_record_and_all_end_when_the_fault_is_over(
    tmp_path: Path, database: Database, kind: str, gated: bool
) -> None:
    async def go() -> None:
        async with on_postgres(tmp_path, kind, database) as (world, faults):
            assert await every_nth_operation_fails(world, faults, gated=gated) > 10

    run(go())
