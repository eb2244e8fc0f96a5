"""The erasure of one entry in a real PostgreSQL: its segment is stored again without body and salt."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from contextos.contracts.journal import CONTROL, Batch
from contextos.errors import Unavailable
from contextos.store.postgres.commit_calls import COMMIT, Job, arguments, control_line, lock_keys
from contextos.store.postgres.connections import connect_postgres
from contextos.store.postgres.erasure import ERASE_ATTEMPTS, erase_in_segment
from contextos.store.postgres.stores import PostgresStores
from contextos.store.shared.segments import Segment, entries_of, segments
from tests.postgres import Database, own_server
from tests.suites.store_suite import entries_after, erased


async def committed(database: Database) -> PostgresStores:
    stores = PostgresStores(database.eraser)
    await stores.tenant("acme").commit(Batch("run_a", entries_after("acme", "run_a", [], 3)))
    return stores


async def erase(connection: Any, seq: int) -> bool:
    lock, line = control_line("acme", erased("run_a", seq))
    return await erase_in_segment(connection, "acme", "run_a", seq, lock, line)


@pytest.mark.requirement("J-ERASE")
def test_an_entry_is_erased_once_with_its_record_and_an_absent_one_is_not(database: Database) -> None:
    async def go() -> None:
        stores = await committed(database)
        async with stores.checked_transaction("acme") as connection:
            assert [await erase(connection, seq) for seq in (2, 2, 4)] == [True, True, False]
        store = stores.tenant("acme")
        assert [one.seq for one in await store.read("run_a") if one.body is None] == [2]
        assert [one.key for one in await store.read(CONTROL)] == ["run_a/2"]
        await stores.aclose()

    asyncio.run(go())


@pytest.mark.requirement("J-ERASE")
@pytest.mark.parametrize("size", [1_000, 30_000])
def test_the_packed_text_of_an_erased_body_leaves_the_table_with_a_vacuum(size: int) -> None:
    secret = random.Random(7).randbytes(size).hex()

    async def committed_in(database: Database, run: str) -> bytes:
        stores = PostgresStores(database.eraser)
        await stores.tenant("acme").commit(Batch(run, entries_after("acme", run, [], 1, secret)))
        await stores.aclose()
        [[body]] = await database.fetch(f"SELECT body FROM contextos.segments WHERE run = '{run}'")
        return bytes(body)

    async def erased_in(database: Database, run: str) -> None:
        stores = PostgresStores(database.eraser)
        await stores.erase("acme", run, 1, erased(run, 1))
        await stores.aclose()

    with own_server() as server:
        database = server.database()

        def left(pieces: set[bytes]) -> int:
            database.execute("CHECKPOINT")
            assert server.files is not None
            [[number]] = database.execute("SELECT oid FROM pg_database WHERE datname = current_database()")
            files = [one.read_bytes() for one in server.files.rglob(f"base/{number}/*") if one.is_file()]
            return sum(any(piece in file for file in files) for piece in pieces)

        before = asyncio.run(committed_in(database, "run_a"))
        pieces = {before[at : at + 32] for at in range(200, len(before) - 32, 32)}
        assert left(pieces) > len(pieces) // 2, "the search finds what is there"
        asyncio.run(erased_in(database, "run_a"))
        database.execute("VACUUM FULL contextos.segments")
        assert left(pieces) == 0


class Raced:
    """A connection whose segment is changed by somebody else between each read and its erasure."""

    def __init__(self, real: Any, times: int) -> None:
        self._real, self.left = real, times

    async def fetch(self, *said: Any) -> Any:
        rows = await self._real.fetch(*said)
        if not self.left:
            return rows
        self.left -= 1
        return [stale(row) for row in rows]

    async def fetchval(self, *said: Any) -> Any:
        return await self._real.fetchval(*said)


def stale(row: Any) -> tuple[Any, ...]:
    """A row as it was before somebody else stored its body again."""
    before, segment = row[0], Segment(*row[1:])
    (other,) = segments(entries_of("acme", "run_a", before, segment)[:2])
    return (
        before,
        *segment._replace(seq=2, entries=2, head=other.head, marks=other.marks, salts=other.salts, body=other.body),
    )


@pytest.mark.parametrize("times", [1, ERASE_ATTEMPTS])
def test_an_erasure_of_a_segment_that_changed_meanwhile_is_made_again(database: Database, times: int) -> None:
    async def go() -> None:
        stores = await committed(database)
        async with stores.checked_transaction("acme") as connection:
            raced = Raced(connection, times)
            if times == ERASE_ATTEMPTS:
                with pytest.raises(Unavailable, match="other erasures changed the same commit"):
                    await erase(raced, 2)
            else:
                assert await erase(raced, 2)
        found = [one.seq for one in await stores.tenant("acme").read("run_a") if one.body is None]
        assert found == ([] if times == ERASE_ATTEMPTS else [2])
        await stores.aclose()

    asyncio.run(go())


def test_a_role_that_is_no_eraser_erases_nothing(database: Database) -> None:
    async def go() -> None:
        await (await committed(database)).aclose()
        stores = PostgresStores(database.app)
        with pytest.raises(Unavailable, match="permission denied for function erase_entry"):
            async with stores.checked_transaction("acme") as connection:
                await erase(connection, 2)
        await stores.aclose()

    asyncio.run(go())


@pytest.mark.requirement("J-ERASE")
def test_a_commit_of_the_run_that_is_open_ends_before_an_entry_is_erased(database: Database) -> None:
    async def go() -> None:
        stores = await committed(database)
        store = stores.tenant("acme")
        batch = Batch("run_a", entries_after("acme", "run_a", list(await store.read("run_a")), 1))
        job = Job("acme", batch, 1, asyncio.get_running_loop().create_future(), segments(batch.entries))
        connection, watching = await connect_postgres(database.app), await connect_postgres(database.app)
        transaction = connection.transaction()
        await transaction.start()
        assert await connection.fetchval(COMMIT, *arguments([job], None, "1s", lock_keys([job]))) is None
        erasing = asyncio.ensure_future(stores.erase("acme", "run_a", 2, erased("run_a", 2)))
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await watching.fetchval(waiting):
            assert not erasing.done(), "it does not wait"
            await asyncio.sleep(0.01)
        assert len(await store.read("run_a")) == 3
        await transaction.commit()
        await erasing
        # Who reads after an erasure sees the commit before it.
        assert [one.body is None for one in await store.read("run_a")] == [False, True, False, False]
        await connection.close()
        await watching.close()
        await stores.aclose()

    asyncio.run(go())
