"""Exchanges of claims with a real PostgreSQL: what a worker takes, gives back and keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from contextos.contracts.journal import Batch
from contextos.contracts.ports.claims import ClaimLimits
from contextos.store.postgres.claims import PostgresClaims
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.clock import SystemClock
from tests.postgres import Database

CLAIMED = "SELECT run FROM contextos.runs WHERE worker IS NOT NULL ORDER BY run"
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
