"""Exchanges of claims with a real PostgreSQL: what a worker takes, gives back and keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from contextos.contracts.journal import Batch
from contextos.contracts.ports.claims import ClaimLimits
from contextos.errors import Unavailable
from contextos.store.postgres.claims import PostgresClaims
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.clock import SystemClock
from tests.e2e.transaction_pooler import TransactionPooler
from tests.postgres import Database

CLAIMED = "SELECT run FROM contextos.runs WHERE worker IS NOT NULL ORDER BY run"
LOST = "a pooler between loses the prepared statements of its clients; let it pool sessions"
A, B = ("acme", "run_a"), ("acme", "run_b")
Scenario = Callable[[PostgresClaims, PostgresClaims], Awaitable[None]]


def exchanged(database: Database, scenario: Scenario) -> None:
    """Run a scenario with two workers and two due runs."""

    async def go() -> None:
        stores, clock = PostgresStores(database.app), SystemClock()
        for tenant, run in (A, B):
            await stores.tenant(tenant).commit(Batch(run, wake_at_us=1))
        workers = [PostgresClaims(database.app, name, clock, ClaimLimits()) for name in ("first", "second")]
        await scenario(*workers)
        for worker in workers:
            await worker.leave({})
        await stores.aclose()

    asyncio.run(go())


async def claimed(database: Database) -> list[str]:
    return [row[0] for row in await database.fetch(CLAIMED)]


@pytest.mark.requirement("E-ONCE")
def test_a_claimed_run_is_taken_by_nobody_else_until_it_is_given_back(database: Database) -> None:
    async def scenario(first: PostgresClaims, second: PostgresClaims) -> None:
        assert (await first.exchange({}, [], free=1)).taken == (A,)
        assert (await second.exchange({}, [], free=5)).taken == (B,)
        assert (await second.exchange({}, [B], free=5)).taken == ()
        later = await first.exchange({A: 3_600_000_000}, [], free=0)
        assert later.next_in_us is not None
        assert 3_500_000_000 < later.next_in_us < 3_601_000_000
        assert (await second.exchange({B: None}, [], free=5)).taken == (B,)

    exchanged(database, scenario)


def test_a_claim_whose_answer_was_lost_is_repaired_by_the_next_exchange(database: Database) -> None:
    async def scenario(first: PostgresClaims, second: PostgresClaims) -> None:
        assert len((await first.exchange({}, [], free=5)).taken) == 2
        first._states_held = True
        await first.exchange({}, [A], free=0)
        assert await claimed(database) == ["run_a"]

    exchanged(database, scenario)


def test_an_answer_that_comes_during_a_drive_that_fails_is_not_postponed_with_its_run(database: Database) -> None:
    async def scenario(first: PostgresClaims, second: PostgresClaims) -> None:
        stores = PostgresStores(database.app)
        assert (await first.exchange({}, [], free=5)).taken == (A, B)
        await stores.tenant("acme").commit(Batch("run_a", wake_at_us=SystemClock().now_us()))
        # A commit of the drive itself, whose lease is over later.
        await stores.tenant("acme").commit(Batch("run_b", wake_at_us=SystemClock().now_us() + 180_000_000))
        await first.exchange({A: 60_000_000, B: 60_000_000}, [], free=0)
        found = await second.exchange({}, [], free=5)
        assert found.taken == (A,)
        assert found.next_in_us is not None
        assert 50_000_000 < found.next_in_us < 61_000_000, "the other run waits for its next try"
        await stores.aclose()

    exchanged(database, scenario)


def test_a_run_whose_row_is_locked_stays_claimed_and_is_given_back_later(database: Database) -> None:
    async def scenario(first: PostgresClaims, second: PostgresClaims) -> None:
        import asyncpg

        await first.exchange({}, [], free=5)
        other = await asyncpg.connect(database.owner)
        async with other.transaction():
            await other.execute("SELECT FROM contextos.runs WHERE run = 'run_a' FOR UPDATE")
            assert (await first.exchange({A: None, B: None}, [], free=0)).kept == (A,)
        await other.close()
        assert (await first.exchange({A: None}, [], free=0)).kept == ()
        assert await claimed(database) == []

    exchanged(database, scenario)


def test_a_worker_that_left_is_dead_to_the_others_and_a_lost_connection_is_opened_again(database: Database) -> None:
    async def scenario(first: PostgresClaims, second: PostgresClaims) -> None:
        await first.exchange({}, [], free=5)
        await first.leave({})
        found = await second.exchange({}, [], free=5)
        assert (found.taken, found.dead) == ((A, B), {"first"})
        second._connection.terminate()
        # As after a crash of the server, in which the worker's last exchange was lost.
        assert (await second.exchange({}, [B], free=0)).taken == ()
        assert await claimed(database) == ["run_b"]
        assert second.is_notified

    exchanged(database, scenario)


@pytest.mark.requirement("E-TENANT-SHARE")
def test_a_backlog_that_fills_every_page_hides_no_tenant_behind_a_hundred_others(database: Database) -> None:
    async def scenario(first: PostgresClaims, second: PostgresClaims) -> None:
        later_us = SystemClock().now_us() + 3_600_000_000
        for tenant, run, wake_us, count in (("acme", "more", "1", 300), ("m", "waits", str(later_us), 100)):
            await database.fetch(
                "INSERT INTO contextos.runs (tenant, run, wake_at_us) SELECT "
                f"'{tenant}' || CASE WHEN {count} = 100 THEN n::text ELSE '' END, '{run}' || n, {wake_us}"
                f" FROM generate_series(1, {count}) AS n"
            )
        await database.fetch("INSERT INTO contextos.runs (tenant, run, wake_at_us) VALUES ('zoo', 'run_z', 2)")
        held = list((await first.exchange({}, [], free=32)).taken)
        assert len(held) == ClaimLimits().per_tenant
        found = await first.exchange({}, held, free=32 - len(held))
        assert found.taken == (("zoo", "run_z"),), "the next exchange goes on behind the tenants that were seen"
        held += found.taken
        # Once all were seen, and none is left that can be taken, the worker is not told to ask again at once.
        waits = [(await first.exchange({}, held, free=32 - len(held))).next_in_us for _ in range(3)]
        assert any(wait is not None and wait > 3_000_000_000 for wait in waits)

    exchanged(database, scenario)


@pytest.mark.requirement("E-WORKER-DEATH")
def test_a_worker_that_is_long_gone_is_known_until_its_last_claim_is_given_back(database: Database) -> None:
    async def scenario(first: PostgresClaims, second: PostgresClaims) -> None:
        import asyncpg

        await first.exchange({}, [], free=5)
        await database.fetch("UPDATE contextos.workers SET alive_until_us = alive_until_us - 3 * 86400000000::bigint")
        other = await asyncpg.connect(database.owner)
        async with other.transaction():
            await other.execute("SELECT FROM contextos.runs WHERE run = 'run_a' FOR UPDATE")
            assert (await second.exchange({}, [], free=5)).taken == (B,)
        await other.close()
        assert (await second.exchange({}, [B], free=5)).taken == (A,)
        await second.exchange({}, [A, B], free=0)
        assert [row[0] for row in await database.fetch("SELECT worker FROM contextos.workers")] == ["second"]

    exchanged(database, scenario)


def test_a_pooler_in_transaction_mode_passes_on_no_notification_and_is_found_out(database: Database) -> None:
    async def go() -> None:
        pooler = TransactionPooler(database, size=1)
        claims = PostgresClaims(await pooler.start(), "first", SystemClock(), ClaimLimits())
        assert (await claims.exchange({}, [], free=5)).taken == ()
        assert not claims.is_notified, "the session that listens is not this worker's"
        await claims.leave({})
        await pooler.stop()

    asyncio.run(go())


def test_a_pooler_that_loses_prepared_statements_is_named(database: Database) -> None:
    async def go() -> None:
        pooler = TransactionPooler(database, size=3)
        claims = PostgresClaims(await pooler.start(), "first", SystemClock(), ClaimLimits())
        with pytest.raises(Unavailable, match=LOST):
            await claims.exchange({}, [], free=5)
        await pooler.stop()

    asyncio.run(go())
