"""Writes one atomic commit to an SQLite file: entries as segments, documents, lines of shared streams, signatures.

The functions run inside the transaction of the writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from contextos.contracts.journal import CONTROL, INDEX, Batch, Draft, Entry, Write, genesis, link
from contextos.errors import Conflict, Untimely
from contextos.store.shared.batch import nothing_signed
from contextos.store.shared.segments import Segment, hash_bytes, head_hash
from contextos.store.sqlite.terms import sqlite_change_terms

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock

SEGMENT_COLUMNS: Final = "seq, entries, v, format, dictionary, head, marks, salts, body, erased"
_FIELDS: Final = (
    "tenant",
    "run",
    "seq",
    "v",
    "kind",
    "key",
    "at_us",
    "by",
    "body_digest",
    "prev_hash",
    "hash",
    "salt",
    "body",
)
_row_of = attrgetter(*_FIELDS)
HEAD: Final = "SELECT seq, head FROM segments WHERE tenant = ? AND run = ? ORDER BY seq DESC LIMIT 1"
SHARED_HEAD: Final = "SELECT seq, hash FROM journal WHERE tenant = ? AND run = ? ORDER BY seq DESC LIMIT 1"
_APPEND: Final = f"INSERT INTO segments (tenant, run, {SEGMENT_COLUMNS}) VALUES ({', '.join('?' * 12)})"  # noqa: S608
_LINE: Final = (
    'INSERT INTO journal (tenant, run, seq, v, kind, key, at_us, "by", body_digest, prev_hash, hash, salt, body)'
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_VERSION: Final = "SELECT version FROM documents WHERE tenant = ? AND collection = ? AND key = ?"
_ADD: Final = (
    "INSERT INTO documents (tenant, collection, key, version, body) VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING"
)
_SET: Final = (
    "UPDATE documents SET version = version + 1, body = ?"
    " WHERE tenant = ? AND collection = ? AND key = ? AND version = ?"
)
# A NULL parameter keeps the stored value. The number of a run never changes once it is set.
_SET_RUN: Final = (
    "INSERT INTO runs (tenant, run, wake_at_us, number, waiting)"
    " VALUES (?1, ?2, coalesce(?3, 0), ?4, coalesce(?5, 0)) ON CONFLICT (tenant, run) DO UPDATE SET"
    " wake_at_us = coalesce(?3, wake_at_us), waiting = coalesce(?5, waiting),"
    " number = CASE number WHEN 0 THEN ?4 ELSE number END RETURNING number"
)
_SIGN: Final = (
    "INSERT INTO heads (tenant, stream, seq, kid, hash, sig) SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS"
    " (SELECT 1 FROM heads WHERE tenant = ?1 AND stream = ?2 AND seq = ?3 AND kid = ?4)"
)


def apply_batch(
    tenant: str, batch: Batch, rows: Sequence[Segment], clock: Clock, connection: sqlite3.Connection
) -> None:
    """Write one batch inside the writer's transaction. Raises `Conflict`, which names the stream or document."""
    head = _extend(connection, tenant, batch.run, batch.entries, rows) if batch.entries or batch.signature else None
    if batch.writes:
        _write_documents(connection, tenant, batch.writes, clock.now_us())
    number = 0
    for stream, draft in batch.shared:
        seq = append_shared(connection, tenant, stream, draft)
        if (stream, draft.key) == (INDEX, batch.run):
            number = number or seq
    if number or batch.wake_at_us is not None or batch.waiting is not None or batch.terms is not None:
        row = (tenant, batch.run, batch.wake_at_us, number, batch.waiting)
        ((number,),) = connection.execute(_SET_RUN, row).fetchall()
        if batch.terms is not None:
            sqlite_change_terms(connection, tenant, batch.run, number, batch.terms)
    if batch.signature is not None and head is not None:
        _add_signature(connection, tenant, batch.run, head, batch.signature)


def _extend(
    connection: sqlite3.Connection, tenant_id: str, run_id: str, entries: Sequence[Entry], rows: Sequence[Segment]
) -> tuple[int, str]:
    """Append entries that continue the stream's head exactly; return the new head. Raises `Conflict`."""
    seq, head = _read_head(connection, tenant_id, run_id)
    if not entries:
        return seq, head
    _, _, seqs, _, _, _, _, _, previous_hashes, hashes, _, _, _ = zip(*entries, strict=True)
    if seqs != (*range(seq + 1, seq + 1 + len(entries)),) or previous_hashes != (head, *hashes[:-1]):
        raise Conflict(run_id)
    for row in rows:
        connection.execute(_APPEND, (tenant_id, run_id, *row))
    return seqs[-1], hashes[-1]


def _read_head(connection: sqlite3.Connection, tenant_id: str, run_id: str) -> tuple[int, str]:
    row = connection.execute(HEAD, (tenant_id, run_id)).fetchone()
    return (row[0], head_hash(row[1])) if row is not None else (0, genesis(tenant_id, run_id))


def _write_documents(connection: sqlite3.Connection, tenant_id: str, writes: Iterable[Write], now_us: int) -> None:
    """Write or check documents. Raises `Conflict` for an unexpected version, `Untimely` for one outside its time."""
    for write in writes:
        after_us, before_us = write.not_after_us, write.not_before_us
        if (after_us is not None and now_us > after_us) or (before_us is not None and now_us < before_us):
            raise Untimely(f"{write.collection}/{write.key}", now_us)
        collection, key, expect, body = write.collection, write.key, write.expect, write.body
        if body is None:
            row = connection.execute(_VERSION, (tenant_id, collection, key)).fetchone()
            is_written = (row[0] if row is not None else 0) == expect
        elif expect == 0:
            is_written = connection.execute(_ADD, (tenant_id, collection, key, body)).rowcount == 1
        else:
            is_written = connection.execute(_SET, (body, tenant_id, collection, key, expect)).rowcount == 1
        if not is_written:
            raise Conflict(f"{collection}/{key}")


def append_act(connection: sqlite3.Connection, tenant: str, act: Draft) -> None:
    append_shared(connection, tenant, CONTROL, act)


def append_shared(connection: sqlite3.Connection, tenant: str, stream: str, draft: Draft) -> int:
    """Append a draft to a shared stream; return its sequence."""
    row = connection.execute(SHARED_HEAD, (tenant, stream)).fetchone()
    seq, head = row if row is not None else (0, genesis(tenant, stream))
    connection.execute(_LINE, _row_of(link(tenant, stream, seq + 1, head, draft)))
    return seq + 1


def _add_signature(
    connection: sqlite3.Connection, tenant_id: str, stream: str, head: tuple[int, str], signature: tuple[str, str]
) -> None:
    (seq, digest), (kid, sig) = head, signature
    if seq == 0:
        raise nothing_signed(stream)
    connection.execute(_SIGN, (tenant_id, stream, seq, kid, hash_bytes(digest), bytes.fromhex(sig)))
