"""`PostgresStores` passes the suite of the port, and keeps what PostgreSQL alone must keep."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import asyncpg
import pytest

from contextos.contracts.journal import CONTROL, INDEX, Batch, Draft, Entry, Write, genesis, link
from contextos.errors import Conflict, InvalidInput, NotFound, Unavailable
from contextos.store.postgres.commit_calls import COMMIT, Job, arguments, lock_keys
from contextos.store.postgres.connections import connect_postgres
from contextos.store.postgres.stores import POSTGRES_PAGE_ENTRIES, PostgresStores
from contextos.store.shared.segments import segments
from tests.postgres import Database, Server
from tests.suites.store_suite import NOW_US, SettableClock, StoreSuite, World, draft, entries_after, erased, verify


class TestPostgresStores(StoreSuite):
    @pytest.fixture
    def world(self, postgres: Server) -> Iterator[World]:
        database, clock = postgres.database(), SettableClock()
        stores = PostgresStores(database.eraser, clock=clock)
        with asyncio.Runner() as runner:
            yield World(stores, clock, lambda coroutine: runner.run(_awaited(coroutine)))
            runner.run(stores.aclose())
        database.drop()


async def _awaited(coroutine):
    return await coroutine


@pytest.fixture(scope="module")
def shared(postgres: Server) -> Iterator[Database]:
    """One database for attacks that fail; it holds one run of two entries, two signatures, two lines and a document."""
    database = postgres.database()

    async def fill() -> None:
        stores = PostgresStores(database.app)
        entries = entries_after("acme", "run_a", [], 2)
        batch = Batch("run_a", entries, (Write("keys", "k", 0, b"v"),), wake_at_us=5, signature=("kid", "aa"))
        await stores.tenant("acme").commit(batch)
        again = Batch("run_a", shared=((INDEX, draft()),), signature=("other", "bb"))
        await stores.tenant("acme").commit(again)
        await stores.aclose()

    asyncio.run(fill())
    database.execute(
        "INSERT INTO contextos.journal"
        " VALUES ('acme', 'control', 1, 1, 'entry.erased', 'run_a/2', 5, 'b', 'd', 'p', 'h', '', '')"
    )
    yield database
    database.drop()


SEGMENT = "tenant, run, seq, entries, v, format, dictionary, head, marks, salts, body, erased"
IN_INDEX = SEGMENT.replace("run", "'index'")
GAP = SEGMENT.replace("seq", "seq + entries + 1")
OVERLAP = SEGMENT.replace("seq", "seq + 1")
ERASED_BEFORE = SEGMENT.replace("seq", "seq + entries").replace("erased", "'3:'")


def rows(database: Database) -> list[list[tuple[object, ...]]]:
    return [
        [tuple(row) for row in database.execute(f"SELECT * FROM contextos.{table} ORDER BY 1, 2, 3")]
        for table in ("journal", "segments", "heads")
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM contextos.journal",
        "DELETE FROM contextos.heads",
        "TRUNCATE contextos.journal",
        "TRUNCATE contextos.heads",
        "UPDATE contextos.heads SET sig = '\\xbb'",
        "DELETE FROM contextos.segments",
        "TRUNCATE contextos.segments",
        "UPDATE contextos.journal SET kind = 'run.ended'",
        "UPDATE contextos.journal SET body = ''",
        "UPDATE contextos.segments SET body = ''",
        "UPDATE contextos.segments SET salts = decode(repeat('00', 32), 'hex')",
        "UPDATE contextos.segments SET head = decode(repeat('00', 32), 'hex')",
        "UPDATE contextos.segments SET seq = 9",
        f"INSERT INTO contextos.segments ({SEGMENT}) SELECT {SEGMENT} FROM contextos.segments",
        f"INSERT INTO contextos.segments ({SEGMENT}) SELECT {IN_INDEX} FROM contextos.segments",
        f"INSERT INTO contextos.segments ({SEGMENT}) SELECT {GAP} FROM contextos.segments",
        f"INSERT INTO contextos.segments ({SEGMENT}) SELECT {OVERLAP} FROM contextos.segments",
        f"INSERT INTO contextos.segments ({SEGMENT}) SELECT {ERASED_BEFORE} FROM contextos.segments",
        (
            f"INSERT INTO contextos.segments ({SEGMENT}) SELECT {SEGMENT} FROM contextos.segments"
            " ON CONFLICT (tenant, run, seq) DO UPDATE SET body = ''"
        ),
        (
            "INSERT INTO contextos.heads SELECT tenant, stream, seq, kid, hash, '\\xbb'::bytea FROM contextos.heads"
            " ON CONFLICT (tenant, stream, seq, kid) DO UPDATE SET sig = '\\xbb'"
        ),
        "INSERT INTO contextos.heads SELECT tenant, stream, seq, kid, hash, '\\xbb'::bytea FROM contextos.heads",
        (
            "INSERT INTO contextos.journal VALUES ('acme', 'index', 1, 1, 'k', '', 5, 'b', 'd', 'p', 'h', '', '')"
            " ON CONFLICT (tenant, run, seq) DO UPDATE SET hash = 'h', body = '', salt = ''"
        ),
        "INSERT INTO contextos.journal VALUES ('acme', 'index', 1, 1, 'k', '', 5, 'b', 'd', 'p', 'h', '', '')",
        "INSERT INTO contextos.journal VALUES ('acme', 'run_a', 1, 1, 'k', '', 5, 'b', 'd', 'p', 'h', '', '')",
        "INSERT INTO contextos.journal VALUES ('', 'index', 1, 1, 'k', '', 5, 'b', 'd', 'p', 'h', '', '')",
    ],
)
def test_the_database_itself_refuses_to_edit_or_delete_journal_entries_even_for_its_owner(
    shared: Database, statement: str
) -> None:
    before = rows(shared)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        shared.execute(statement)
    assert rows(shared) == before


ERASED = {"salts": "overlay(salts PLACING decode(repeat('00', 16), 'hex') FROM 17)", "erased": f"'2:{'0' * 64} '"}
COLUMNS = {
    "tenant": "'evil'",
    "run": "'run_b'",
    "seq": "seq + 7",
    "entries": "entries - 1",
    "v": "2",
    "format": "2",
    "dictionary": "''",
    "head": "decode(repeat('00', 32), 'hex')",
    "marks": "decode(repeat('00', 4), 'hex')",
    "erased": f"'2:{'0' * 64} 1:{'0' * 64} '",
    "salts": "decode(repeat('00', 32), 'hex')",
}


def erasing(changes: Mapping[str, str]) -> str:
    return "UPDATE contextos.segments SET " + ", ".join(f"{name} = {value}" for name, value in changes.items())


@pytest.mark.parametrize("column", COLUMNS)
def test_an_erasure_that_changes_any_other_column_is_refused(shared: Database, column: str) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        shared.execute(erasing({**ERASED, column: COLUMNS[column]}))


def test_an_erasure_that_nobody_recorded_is_refused(shared: Database) -> None:
    other = {"salts": ERASED["salts"].replace("17", "1"), "erased": ERASED["erased"].replace("2:", "1:")}
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        shared.execute(erasing(other))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM contextos.documents",
        "DELETE FROM contextos.runs",
        "TRUNCATE contextos.documents",
        "UPDATE contextos.journal SET hash = 'h'",
        "UPDATE contextos.segments SET body = ''",
        "UPDATE contextos.documents SET tenant = 'other'",
        "ALTER TABLE contextos.journal DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE contextos.journal DISABLE TRIGGER ALL",
        "DROP TABLE contextos.heads",
        "CREATE TABLE contextos.theirs (x int)",
        "CREATE POLICY mine ON contextos.journal USING (true)",
        "UPDATE contextos.schema_version SET version_num = '9999'",
        "SET session_replication_role = replica",
        "SET ROLE postgres",
    ],
)
def test_the_applications_own_role_may_do_no_more_than_the_application_does(shared: Database, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        shared.execute(statement, shared.app)


def test_a_stream_longer_than_a_page_is_read_whole(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store, length = stores.tenant("acme"), 2 * POSTGRES_PAGE_ENTRIES + 3
        await store.commit(Batch("run_a", entries_after("acme", "run_a", [], length)))
        read = await store.read("run_a")
        verify("acme", "run_a", list(read))
        assert len(read) == length
        assert len(await store.read("run_a", after=5, limit=POSTGRES_PAGE_ENTRIES + 1)) == POSTGRES_PAGE_ENTRIES + 1
        assert await store.read("run_a", after=2**70) == []
        await stores.aclose()

    asyncio.run(history())


def test_what_one_machine_commits_another_reads_and_may_erase(database: Database) -> None:
    entries = entries_after("acme", "run_a", [], 2, "secretword")

    async def history() -> None:
        ours, theirs = PostgresStores(database.eraser), PostgresStores(database.eraser)
        await ours.tenant("acme").commit(Batch("run_a", entries))
        assert await theirs.tenant("acme").read("run_a") == list(entries)
        await theirs.erase("acme", "run_a", 1, erased("run_a", 1))
        read = await ours.tenant("acme").read("run_a")
        assert [entry.body is None for entry in read] == [True, False]
        for place in (("acme", "run_a", 3), ("acme", "run_a", 2**70), ("acme", "a\0", 1), ("", "run_a", 1)):
            with pytest.raises(NotFound):
                await ours.erase(*place, erased(*place[1:]))
        await asyncio.gather(ours.aclose(), theirs.aclose())

    asyncio.run(history())


def test_every_session_syncs_its_commits_and_gives_up_locks_when_it_hangs(database: Database) -> None:
    async def settings() -> list[str]:
        connection = await connect_postgres(database.app)
        names = ("synchronous_commit", "idle_in_transaction_session_timeout", "lock_timeout", "transaction_isolation")
        found = [await connection.fetchval(f"SHOW {name}") for name in names]
        await connection.close()
        return found

    assert asyncio.run(settings()) == ["on", "10s", "2s", "read committed"]


def test_a_commit_finds_its_rows_by_index_also_when_the_tables_were_small(database: Database) -> None:
    """A plan that was made for a table of one page is kept, and would read the whole of what that grows to."""

    async def history() -> None:
        connection, before = await connect_postgres(database.app), list[Entry]()
        for number in range(9):
            made = entries_after("acme", "run_a", before, 1)
            before += made
            writes = (Write("keys", "k", number, b"v"), Write("keys", "absent", 0, None))
            batch = Batch("run_a", made, writes, ((INDEX, draft()),), 5, ("kid", "aa"))
            one = Job("acme", batch, 0, asyncio.Future(), segments(made))
            async with connection.transaction():
                assert await connection.fetchval(COMMIT, *arguments([one], None, "1s", lock_keys([one]))) is None
                scanned = "SELECT relname FROM pg_stat_xact_user_tables WHERE schemaname = 'contextos' AND seq_scan > 0"
                assert [row[0] for row in await connection.fetch(scanned)] == []
            await database.fetch("ANALYZE")
        await connection.close()

    asyncio.run(history())


def test_without_a_clock_of_ours_deadlines_are_compared_with_the_servers_clock(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        ((now_us,),) = [tuple(row) for row in await _server_time(database)]
        await store.commit(Batch("run_a", writes=(Write("keys", "k", 0, b"v", not_after_us=now_us + 60_000_000),)))
        for late in (
            Write("keys", "k", 1, b"w", not_after_us=now_us - 1_000),
            Write("keys", "k", 1, b"w", not_before_us=now_us + 60_000_000),
        ):
            with pytest.raises(Conflict, match="keys/k"):
                await store.commit(Batch("run_a", writes=(late,)))
        await stores.aclose()

    asyncio.run(history())


async def _server_time(database: Database):
    connection = await asyncpg.connect(database.app)
    found = await connection.fetch("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    await connection.close()
    return found


@pytest.mark.parametrize("name", ["run\0a", "run\ud800a"])
def test_a_name_that_postgres_cannot_hold_is_refused_and_is_not_found(database: Database, name: str) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        for batch in (
            Batch(name, wake_at_us=1),
            Batch("run_a", writes=(Write(name, "k", 0, b"v"),)),
            Batch("run_a", writes=(Write("keys", name, 0, b"v"),)),
            Batch("run_a", shared=((INDEX, draft(key=name)),)),
        ):
            with pytest.raises(InvalidInput):
                await store.commit(batch)
        assert [*await store.read(name), *(await store.read_run(name)).heads] == []
        assert (
            await store.scan(name) == await store.scan("keys", key=name) == await store.scan("keys", after=name) == []
        )
        with pytest.raises(InvalidInput):
            stores.tenant(name)
        with pytest.raises(InvalidInput):
            stores.graph(name)
        await stores.aclose()

    asyncio.run(history())


def test_a_closed_store_is_unavailable_and_closing_twice_is_harmless(database: Database) -> None:
    async def history() -> None:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        await store.commit(Batch("run_a", wake_at_us=1))
        waiting = [asyncio.ensure_future(store.commit(Batch(f"run_{number}", wake_at_us=1))) for number in range(9)]
        await asyncio.sleep(0)
        await stores.aclose()
        assert await asyncio.gather(*waiting) == [None] * 9, "what was queued is finished"
        stores.close()
        await stores.aclose()
        with pytest.raises(Unavailable, match="closed"):
            await store.commit(Batch("run_a", wake_at_us=1))
        with pytest.raises(Unavailable, match="closed"):
            await store.read("run_a")

    asyncio.run(history())


def test_of_many_concurrent_claims_of_one_key_on_two_machines_one_wins_and_the_rest_conflict(
    database: Database,
) -> None:
    async def claim(stores: PostgresStores, number: int) -> bool:
        run = f"run_{number}"
        try:
            claim = (Write("keys", "one", 0, run.encode()),)
            batch = Batch(run, entries_after("acme", run, [], 2), claim, ((INDEX, draft()),))
            await stores.tenant("acme").commit(batch)
        except Conflict as conflict:
            assert conflict.what == "keys/one"
            return False
        return True

    async def race() -> None:
        machines = [PostgresStores(database.app), PostgresStores(database.app)]
        won = await asyncio.gather(*(claim(machines[number % 2], number) for number in range(64)))
        assert won.count(True) == 1
        store = machines[0].tenant("acme")
        (document,) = await store.scan("keys")
        lengths = {f"run_{number}": len(await store.read(f"run_{number}")) for number in range(64)}
        assert {run for run, length in lengths.items() if length} == {document.body.decode()}
        assert len(await store.read(INDEX)) == 1
        await asyncio.gather(*(machine.aclose() for machine in machines))

    asyncio.run(race())


def test_of_those_who_commit_together_each_that_does_not_hold_fails_alone(database: Database) -> None:
    def begins(run: str, *writes: Write, **more: Any) -> Batch:
        return Batch(run, entries_after("acme", run, [], 2), (Write("keys", run, 0, b"v"), *writes), **more)

    async def history() -> None:
        stores = PostgresStores(database.app, clock=SettableClock())
        store = stores.tenant("acme")
        await store.commit(begins("run_old"))
        elsewhere = entries_after("acme", "run_gap", entries_after("acme", "run_gap", [], 4), 1)
        first = begins("run_1", signature=("kid", "aa"), wake_at_us=7, shared=((INDEX, draft()),))
        second = Batch("run_1", entries_after("acme", "run_1", first.entries, 1), signature=("kid", "bb"))
        together = {
            "begins": first,
            "goes on": second,
            "moved": begins("run_old"),
            "gap": Batch("run_gap", elsewhere, shared=((INDEX, draft()),)),
            "fenced": begins("run_2", Write("leases", "run_2", 3, b"mine")),
            "late": begins("run_3", Write("keys", "late", 0, b"v", not_after_us=NOW_US - 1)),
            "unsigned": Batch("run_4", writes=(Write("keys", "run_4", 0, b"v"),), signature=("kid", "cc")),
            "another": begins("run_5", shared=((INDEX, draft()), (INDEX, draft()))),
        }
        ahead = asyncio.ensure_future(store.commit(begins("run_0")))
        await asyncio.sleep(0)
        done = await asyncio.gather(*map(store.commit, together.values()), return_exceptions=True)
        await ahead
        results = {name: str(getattr(one, "what", one)) for name, one in zip(together, done, strict=True) if one}
        assert results == {
            "moved": "run_old",
            "gap": "run_gap",
            "fenced": "leases/run_2",
            "late": "keys/late",
            "unsigned": results["unsigned"],
        }
        assert isinstance(done[6], InvalidInput)
        assert [one.key for one in await store.scan("keys")] == ["run_0", "run_1", "run_5", "run_old"]
        lengths = [len(await store.read(run)) for run in ("run_1", "run_old", "run_gap", "run_2", "run_3", "run_5")]
        assert lengths == [3, 2, 0, 0, 0, 2]
        assert [(seq, sig) for seq, _, _, sig in (await store.read_run("run_1")).heads] == [(2, "aa"), (3, "bb")]
        index = list(await store.read(INDEX))
        verify("acme", INDEX, index)
        assert len(index) == 3
        await stores.aclose()

    asyncio.run(history())


def test_two_machines_that_append_to_one_run_never_both_succeed_at_a_sequence(database: Database) -> None:
    async def machine(name: str, stores: PostgresStores) -> int:
        store, done = stores.tenant("acme"), 0
        for _ in range(40):
            stream = list(await store.read("run_a"))
            seq, head = (stream[-1].seq, stream[-1].hash) if stream else (0, genesis("acme", "run_a"))
            try:
                await store.commit(Batch("run_a", (link("acme", "run_a", seq + 1, head, draft(name)),)))
                done += 1
            except Conflict as conflict:
                assert conflict.what == "run_a"
        return done

    async def race() -> None:
        machines = [PostgresStores(database.app), PostgresStores(database.app)]
        done = await asyncio.gather(machine("one", machines[0]), machine("two", machines[1]))
        stream = list(await machines[0].tenant("acme").read("run_a"))
        verify("acme", "run_a", stream)
        assert len(stream) == sum(done)
        await asyncio.gather(*(one.aclose() for one in machines))

    asyncio.run(race())


def test_shared_streams_of_many_tenants_grow_without_a_gap_from_two_machines(database: Database) -> None:
    tenants = [f"tenant_{number}" for number in range(4)]

    async def one(stores: PostgresStores, number: int) -> None:
        tenant, run = tenants[number % 4], f"run_{number}"
        shared = ((INDEX, draft()), (CONTROL, draft()))
        await stores.tenant(tenant).commit(Batch(run, entries_after(tenant, run, [], 1), shared=shared))

    async def race() -> None:
        machines = [PostgresStores(database.app), PostgresStores(database.app)]
        await asyncio.gather(*(one(machines[number % 3 % 2], number) for number in range(200)))
        for tenant in tenants:
            for stream in (INDEX, CONTROL):
                entries = list(await machines[0].tenant(tenant).read(stream))
                verify(tenant, stream, entries)
                assert len(entries) == 50
        await asyncio.gather(*(one.aclose() for one in machines))

    asyncio.run(race())


@pytest.mark.parametrize("name", ['","prev_hash":"x","seq":7', "back\\slash", "\x01\t\n\x7f", "\u2028ä\U0001f600", "0"])
def test_a_shared_stream_is_chained_as_any_other_whatever_is_written_in_it(shared: Database, name: str) -> None:
    """Its entries are linked in the database, so that PostgreSQL hashes what Python spells."""

    async def history() -> None:
        stores = PostgresStores(shared.app)
        store = stores.tenant(name)
        odd = Draft(kind=name, key=name, at_us=2**62, by=name, body=name.encode(), salt=b"\0\xff" * 8)
        for number in range(2):
            await store.commit(
                Batch(f"run_{number}", wake_at_us=0, shared=((CONTROL, odd), (INDEX, odd), (INDEX, odd)))
            )
        for stream, length in ((INDEX, 4), (CONTROL, 2)):
            entries = list(await store.read(stream))
            verify(name, stream, entries)
            assert [(one.key, one.body) for one in entries] == [(name, name.encode())] * length
        await stores.aclose()

    asyncio.run(history())


def test_of_a_check_for_absence_and_a_write_that_cross_at_most_one_sees_the_earlier_state(database: Database) -> None:
    """A dispatch looks that no cancel is there; a cancel looks that no dispatch is. Both at once must not pass."""

    async def claim(stores: PostgresStores, run: str, mine: str, other: str) -> bool:
        writes = (Write("keys", f"{run}/{other}", 0, None), Write("keys", f"{run}/{mine}", 0, b"v"))
        try:
            await stores.tenant("acme").commit(Batch(run, writes=writes))
        except Conflict:
            return False
        return True

    async def race() -> None:
        machines = [PostgresStores(database.app), PostgresStores(database.app)]
        for number in range(60):
            run = f"run_{number}"
            won = await asyncio.gather(claim(machines[0], run, "a", "b"), claim(machines[1], run, "b", "a"))
            assert won.count(True) == 1
        await asyncio.gather(*(one.aclose() for one in machines))

    asyncio.run(race())


def test_event_loops_on_many_threads_share_one_store(database: Database) -> None:
    stores = PostgresStores(database.app)
    faults: list[BaseException] = []

    async def one(number: int) -> None:
        store, run, stream = stores.tenant("acme"), f"run_{number}", []
        for _ in range(5):
            batch = Batch(run, entries_after("acme", run, stream, 1), shared=((INDEX, draft()),))
            await store.commit(batch)
            stream = list(await store.read(run))
            assert stream[-1] == batch.entries[-1], "what was committed is read at once"
        await stores.leave_loop()

    def work(number: int) -> None:
        try:
            asyncio.run(one(number))
        except BaseException as fault:
            faults.append(fault)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert not stores._loops, "nothing of a loop that was left is kept"

    async def look() -> None:
        index = list(await stores.tenant("acme").read(INDEX))
        verify("acme", INDEX, index)
        assert len(index) == 50
        await stores.aclose()

    asyncio.run(look())


def test_a_caller_that_went_away_hinders_nobody(database: Database) -> None:
    async def history() -> set[str]:
        stores = PostgresStores(database.app)
        store = stores.tenant("acme")
        gone = [asyncio.ensure_future(store.commit(Batch(f"run_{number}", wake_at_us=1))) for number in range(3)]
        await asyncio.sleep(0)
        for task in gone[1:]:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        await store.commit(Batch("run_c", wake_at_us=1))
        found = {run async for _, run in stores.due(1)}
        await stores.aclose()
        return found

    assert {"run_0", "run_c"} <= asyncio.run(history())


def test_batches_queued_when_a_store_closes_are_finished_first(postgres: Server) -> None:
    database = postgres.database()

    async def go() -> list[object]:
        stores = PostgresStores(database.app)
        assert await stores._check_identity("acme")
        batches = [Batch(run, entries_after("acme", run, [], 2)) for run in ("run_a", "run_b", "run_c")]
        commits = [asyncio.ensure_future(stores.tenant("acme").commit(batch)) for batch in batches]
        await asyncio.sleep(0)
        await stores.aclose()
        return list(await asyncio.gather(*commits, return_exceptions=True))

    assert asyncio.run(go()) == [None] * 3
    assert database.execute("SELECT sum(entries) FROM contextos.segments")[0][0] == 6
    database.drop()


LEAVING = """
import asyncio, sys, warnings
warnings.simplefilter("ignore")  # the loop is closed under asyncpg, which then cannot say goodbye
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.store.postgres.stores import PostgresStores

stores = PostgresStores(sys.argv[1])
batch = Batch(CONTROL, shared=((CONTROL, Draft("note", "", 1, "me", b"{}", bytes(16))),))

async def leave():
    tasks = [asyncio.ensure_future(stores.tenant("acme").commit(batch)) for _ in range(200)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

asyncio.run(leave())
print("left", flush=True)
sys.stdin.read()
"""


def test_an_event_loop_that_ends_in_the_middle_of_a_commit_leaves_no_lock_behind(postgres: Server) -> None:
    database = postgres.database()
    line = [sys.executable, "-c", LEAVING, database.app]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as left:
        assert left.stdout is not None
        assert left.stdout.readline() == b"left\n"
        held = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"
        # The server itself lets go after ten seconds; this looks for far less.
        for _ in range(100):
            if not database.execute(held):
                break
            time.sleep(0.05)
        assert not database.execute(held), "a transaction is held open by nobody"

        async def another() -> None:
            others = PostgresStores(database.app)
            await others.tenant("acme").commit(Batch(CONTROL, shared=((CONTROL, draft("note")),)))
            await others.aclose()

        asyncio.run(another())
        left.communicate()
    database.drop()


def test_the_waiting_runs_are_found_by_their_own_index_among_many(postgres: Server) -> None:
    database = postgres.database()
    database.execute(
        "INSERT INTO contextos.runs (tenant, run, wake_at_us, number, waiting)"
        " SELECT 'acme', 'run_' || n, 0, n, n % 10000 = 0 FROM generate_series(1, 30000) AS n"
    )
    database.execute("ANALYZE contextos.runs")
    plan = database.execute(
        "EXPLAIN SELECT number, run FROM contextos.runs WHERE tenant = 'acme' AND waiting"
        " AND number BETWEEN 1 AND 99999 ORDER BY number DESC LIMIT 500"
    )
    assert "runs_waiting" in "\n".join(row[0] for row in plan)

    async def waiting() -> Any:
        stores = PostgresStores(database.app)
        found = await stores.tenant("acme").waiting()
        await stores.aclose()
        return found

    assert asyncio.run(waiting()) == [(number, f"run_{number}") for number in (30000, 20000, 10000)]
    database.drop()
