"""What somebody with the database can do to a run's entries, past every trigger.

Attacks are written as SQL on a table `journal` with one row for each entry. Such a table is made from the segments, and
what an attack changed in it is packed into segments again, as an attacker would who knows the format: the boundaries of
the commits and the heads stay as they are unless the attack itself changes them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from contextos.contracts.journal import Entry, genesis
from contextos.errors import Integrity
from contextos.store.shared import segments
from contextos.store.shared.segments import Segment, hash_bytes, head_hash

ENTRY = 'tenant, run, seq, v, kind, key, at_us, "by", body_digest, prev_hash, hash, salt, body'
SEGMENT = "seq, entries, v, format, dictionary, head, marks, salts, body, erased"
TABLE = (
    'CREATE TEMP TABLE journal (tenant text, run text, seq {0}, v {0}, kind text, key text, at_us {0}, "by" text,'
    " body_digest text, prev_hash text, hash text, salt {1}, body {1})"
)
Place = tuple[str, str]
"""Tenant and run."""


def drop_triggers(connection: sqlite3.Connection) -> None:
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f'DROP TRIGGER "{name}"')


def as_row(entry: Entry) -> tuple[Any, ...]:
    """The values of `ENTRY`."""
    names = ENTRY.replace('"', "").split(", ")
    return tuple(getattr(entry, name) for name in names)


def of_row(row: Sequence[Any]) -> Entry:
    names = ENTRY.replace('"', "").split(", ")
    found = dict(zip(names, row, strict=True))
    for name in ("salt", "body"):
        found[name] = None if found[name] is None else bytes(found[name])
    return Entry(**found)


def unpacked(tenant: str, run: str, rows: Iterable[Segment]) -> list[Entry]:
    """The entries of a run's segments, also of altered ones, as far as they can be unpacked at all."""
    found: list[Entry] = []
    head = genesis(tenant, run)
    for row in rows:
        made = segments._link_entries(tenant, run, head, row)
        head = head_hash(row.head)
        marks = [row.marks[at : at + segments.MARK_BYTES].hex() for at in range(0, len(row.marks), segments.MARK_BYTES)]
        stored = [one._replace(hash=f"sha256:{mark}{one.hash[11:]}") for one, mark in zip(made, marks, strict=True)]
        found += [*stored[:-1], stored[-1]._replace(hash=head)]
    return found


def packed(old: Sequence[Segment], entries: Sequence[Entry]) -> list[Segment]:
    """The segments that hold these entries, in the commits of the old ones, and apart where an entry is missing."""
    ends = {row.seq for row in old}
    parts: list[list[Entry]] = []
    for before, one in pairwise([None, *entries]):
        assert one is not None
        if before is None or before.seq in ends or before.seq + 1 != one.seq:
            parts.append([])
        parts[-1].append(one)
    made: list[Segment] = []
    for part in parts:
        start = 0
        for row in segments.segments(part):
            held = part[start : start + row.entries]
            start += row.entries
            gone = [f"{one.seq}:{one.body_digest.removeprefix('sha256:')} " for one in held if one.body is None]
            made.append(row._replace(head=hash_bytes(held[-1].hash), erased="".join(gone)))
    return made


@dataclass
class Journal:
    """All entries of a database, as they were before an attack."""

    lines: list[Entry]
    runs: dict[Place, list[Segment]]

    def rows(self) -> list[tuple[Any, ...]]:
        """Every entry that can be unpacked, as the values of `ENTRY`."""
        found = list(self.lines)
        for place, rows in list(self.runs.items()):
            try:
                found += unpacked(*place, rows)
            except (ValueError, TypeError, LookupError, segments.zstd.ZstdError, Integrity):
                del self.runs[place]
        return [as_row(one) for one in found]

    def changed(self, rows: Iterable[Sequence[Any]]) -> tuple[list[Entry] | None, dict[Place, list[Segment]]]:
        """The lines of the shared streams and the segments of each run that an attack changed; None: no line."""
        lines: list[Entry] = []
        streams: dict[Place, list[Entry]] = {place: [] for place in self.runs}
        for one in sorted((of_row(row) for row in rows), key=lambda one: (one.tenant, one.run, one.seq)):
            if one.run in ("index", "control"):
                lines.append(one)
            else:
                streams.setdefault((one.tenant, one.run), []).append(one)
        before = sorted(self.lines, key=lambda one: (one.tenant, one.run, one.seq))
        runs = {
            place: packed(self.runs.get(place, []), entries)
            for place, entries in streams.items()
            if not self.runs.get(place) or unpacked(*place, self.runs[place]) != entries
        }
        return None if lines == before else lines, runs


def read_journal(lines: Iterable[Sequence[Any]], rows: Iterable[Sequence[Any]]) -> Journal:
    """A journal from rows of `ENTRY`, and rows of tenant, run and `SEGMENT` in order."""
    runs: dict[Place, list[Segment]] = {}
    for tenant, run, *columns in rows:
        runs.setdefault((tenant, run), []).append(Segment(*columns))
    return Journal([of_row(line) for line in lines], runs)


@contextmanager
def entries_as_rows(connection: sqlite3.Connection) -> Iterator[None]:
    """Let statements on `journal` work on a row for each entry; then store what they changed. Triggers are gone."""
    before = read_journal(
        connection.execute(f"SELECT {ENTRY} FROM main.journal").fetchall(),
        connection.execute(f"SELECT tenant, run, {SEGMENT} FROM segments ORDER BY tenant, run, seq").fetchall(),
    )
    marks = ", ".join("?" * 13)
    connection.execute(TABLE.format("INTEGER", "BLOB"))
    connection.executemany(f"INSERT INTO temp.journal VALUES ({marks})", before.rows())
    try:
        yield
        lines, runs = before.changed(connection.execute(f"SELECT {ENTRY} FROM temp.journal").fetchall())
    finally:
        connection.execute("DROP TABLE temp.journal")
    if lines is not None:
        connection.execute("DELETE FROM main.journal")
        connection.executemany(f"INSERT INTO main.journal ({ENTRY}) VALUES ({marks})", [as_row(line) for line in lines])
    for place, rows in runs.items():
        put(connection, *place, rows)


def put(connection: sqlite3.Connection, tenant: str, run: str, rows: Iterable[Segment]) -> None:
    """Replace the segments of a run."""
    connection.execute("DELETE FROM segments WHERE tenant = ? AND run = ?", (tenant, run))
    statement = f"INSERT INTO segments (tenant, run, {SEGMENT}) VALUES ({', '.join('?' * 12)})"
    connection.executemany(statement, [(tenant, run, *row) for row in rows])


async def entries_as_rows_of_postgresql(connection: Any, statements: Sequence[str]) -> list[Any]:
    """Run statements on `pg_temp.journal`, a row for each entry, inside a transaction without triggers; then store what
    they changed. Returns the rows of the last one.
    """
    before = read_journal(
        await connection.fetch(f"SELECT {ENTRY} FROM contextos.journal"),
        await connection.fetch(f"SELECT tenant, run, {SEGMENT} FROM contextos.segments ORDER BY tenant, run, seq"),
    )
    numbers = ", ".join(f"${number}" for number in range(1, 14))
    await connection.execute(TABLE.format("bigint", "bytea") + " ON COMMIT DROP")
    await connection.executemany(f"INSERT INTO pg_temp.journal VALUES ({numbers})", before.rows())
    found: list[Any] = []
    for statement in statements:
        found = [tuple(row) for row in await connection.fetch(statement)]
    lines, runs = before.changed(await connection.fetch(f"SELECT {ENTRY} FROM pg_temp.journal"))
    if lines is not None:
        await connection.execute("DELETE FROM contextos.journal")
        await connection.executemany(
            f"INSERT INTO contextos.journal ({ENTRY}) VALUES ({numbers})", [as_row(line) for line in lines]
        )
    values = ", ".join(f"${number}" for number in range(1, 13))
    for (tenant, run), rows in runs.items():
        await connection.execute("DELETE FROM contextos.segments WHERE tenant = $1 AND run = $2", tenant, run)
        await connection.executemany(
            f"INSERT INTO contextos.segments (tenant, run, {SEGMENT}) VALUES ({values})",
            [(tenant, run, *row) for row in rows],
        )
    return found
