"""One atomic commit in an SQLite file: what is written, and what is refused as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contextos.contracts.journal import CONTROL, INDEX, Batch, Write
from contextos.errors import Conflict, InvalidInput, Untimely
from contextos.store.shared.segments import hash_bytes, segments
from contextos.store.sqlite.commits import append_act, append_shared, apply_batch
from contextos.store.sqlite.database import open_file
from tests.suites.store_suite import NOW_US, SettableClock, draft, entries_after


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    open_file(tmp_path / "store.db", sqlite3.connect)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        yield connection


def commit(connection: sqlite3.Connection, batch: Batch) -> None:
    clock = SettableClock()
    connection.execute("BEGIN")
    try:
        apply_batch("acme", batch, segments(batch.entries), clock, connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def test_a_commit_is_one_segment_a_signed_head_and_the_number_of_its_run(connection: sqlite3.Connection) -> None:
    entries = entries_after("acme", "run_a", [], 3)
    commit(connection, Batch("run_a", entries, shared=((INDEX, draft(key="run_a")),), signature=("kid", "aa")))
    assert connection.execute("SELECT run, seq, entries, head FROM segments").fetchall() == [
        ("run_a", 3, 3, hash_bytes(entries[-1].hash))
    ]
    assert connection.execute("SELECT stream, seq, kid, hash, sig FROM heads").fetchall() == [
        ("run_a", 3, "kid", hash_bytes(entries[-1].hash), b"\xaa")
    ]
    assert connection.execute("SELECT run, number FROM runs").fetchall() == [("run_a", 1)]


def test_a_key_signs_a_head_once_and_another_key_signs_it_too(connection: sqlite3.Connection) -> None:
    commit(connection, Batch("run_a", entries_after("acme", "run_a", [], 1), signature=("kid", "aa")))
    commit(connection, Batch("run_a", signature=("kid", "bb")))
    commit(connection, Batch("run_a", signature=("other", "cc")))
    found = connection.execute("SELECT kid, sig FROM heads ORDER BY kid").fetchall()
    assert found == [("kid", b"\xaa"), ("other", b"\xcc")]


def test_a_head_without_an_entry_is_not_signed(connection: sqlite3.Connection) -> None:
    with pytest.raises(InvalidInput, match="no entry to sign"):
        commit(connection, Batch("run_a", signature=("kid", "aa")))


def test_entries_that_do_not_continue_the_run_are_a_conflict(connection: sqlite3.Connection) -> None:
    entries = entries_after("acme", "run_a", [], 3)
    commit(connection, Batch("run_a", entries[:1]))
    for late in (entries[:1], entries[2:], entries_after("acme", "run_a", [], 2)[1:2] + entries[1:2]):
        with pytest.raises(Conflict):
            commit(connection, Batch("run_a", late))
    commit(connection, Batch("run_a", entries[1:]))
    assert connection.execute("SELECT seq FROM segments ORDER BY seq").fetchall() == [(1,), (3,)]


def test_a_write_out_of_its_time_or_version_is_refused(connection: sqlite3.Connection) -> None:
    commit(connection, Batch("run_a", writes=(Write("keys", "k", 0, b"v"),)))
    for write, refusal in (
        (Write("keys", "k", 0, b"w"), Conflict),
        (Write("keys", "k", 2, None), Conflict),
        (Write("keys", "k", 1, b"w", not_after_us=1), Untimely),
        (Write("keys", "k", 1, b"w", not_before_us=2 * NOW_US), Untimely),
    ):
        with pytest.raises(refusal):
            commit(connection, Batch("run_a", writes=(write,)))
    assert connection.execute("SELECT version, body FROM documents").fetchall() == [(1, b"v")]


def test_lines_and_acts_continue_their_streams(connection: sqlite3.Connection) -> None:
    assert [append_shared(connection, "acme", INDEX, draft()) for _ in range(2)] == [1, 2]
    append_act(connection, "acme", draft())
    found = connection.execute("SELECT run, seq FROM journal ORDER BY run, seq").fetchall()
    assert found == [(CONTROL, 1), (INDEX, 1), (INDEX, 2)]
