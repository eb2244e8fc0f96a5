"""Writes and reads segments: the entries of one commit of a run as one row, compressed by zstd with a dictionary.

A segment holds only the hash of its last entry in full. A read computes every digest and hash again from the content of
the segment, and compares the last hash with the stored one. The segment also holds the first two bytes of each hash:
they prove nothing, but show which entry was altered. Salts are a column of their own, so that the database can see that
an erasure empties one salt and no other. An entry `slot.selected` is a segment of its own and is not compressed,
because SQL compares the audit of slots with it.
Source: docs/adr/0032-a-commit-is-one-row.md.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter, itemgetter
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple

import orjson

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from contextos.contracts.entries.linked import KEPT_BYTES, RecentlyUsed, entries_size, forget, known
from contextos.contracts.journal import SALT_BYTES, Entry, body_digest, genesis, header_hash
from contextos.errors import ChainBroken, Integrity

SEGMENT_FORMAT: Final = 1
SEGMENT_BYTES: Final = 1 << 20
"""The largest sum over the entries of a segment: the bytes of their bodies, and `NAME_WEIGHT` for each character of
their names. A segment of one entry can be larger."""
NAME_WEIGHT: Final = 4
MAX_SEGMENT_BYTES: Final = 80 << 20
MAX_HEADER_BYTES: Final = 3 << 20
"""The largest first line of an unpacked segment, in bytes. It is parsed before anything proves it, and needs 30 times
as much memory. Every written line fits: `MAX_BATCH_ENTRIES` entries, and at most 5/16 of a MiB of names, with six bytes
a character."""
COMPRESSION_LEVEL: Final = 1
DICTIONARY_FILE: Final = Path(__file__).with_name("journal_1.dict")
DICTIONARY_ID_BYTES: Final = 8
MARK_BYTES: Final = 2
UNCOMPRESSED: Final = b""
"""The dictionary id of a segment that is not compressed."""
READABLE_KIND: Final = "slot.selected"
_ERASED_SALT: Final = bytes(SALT_BYTES)
_HASH_NAME: Final = "sha256:"
_Columns = tuple[tuple[Any, ...], ...]
"""Some entries as columns: one tuple for each field of `Entry`, with its values in the order of the entries."""
_BODY: Final = Entry._fields.index("body")
_hash: Final = attrgetter("hash")
_mark: Final = itemgetter(slice(len(_HASH_NAME), len(_HASH_NAME) + 2 * MARK_BYTES))
"""Returns the first `MARK_BYTES` bytes of a hash, in hex."""


class Segment(NamedTuple):
    """A stored row of `entries` entries. `seq` is the number of the last one, and `head` its hash as 32 bytes.

    `marks` has the first two bytes of the hash of each entry. `erased` lists `SEQ:DIGEST ` for each erased entry, in
    the order of the erasures.
    """

    seq: int
    entries: int
    v: int
    format: int
    dictionary: bytes
    head: bytes
    marks: bytes
    salts: bytes
    body: bytes
    erased: str

    def holds(self, seq: int) -> bool:
        """Return whether the entry `seq` is in this segment."""
        return self.seq - self.entries < seq <= self.seq


_COLUMN_TYPES: Final = (int, int, int, int, bytes, bytes, bytes, bytes, bytes, str)


class _Dictionary(NamedTuple):
    content: zstd.ZstdDict
    compressor: zstd.ZstdCompressor


_ENTRY_CACHE: Final[RecentlyUsed[tuple[Entry, ...]]] = RecentlyUsed(KEPT_BYTES)
"""A cache of verified entries. The key is the tenant, the run, the head before the row, and the row itself."""


def segments(entries: Sequence[Entry]) -> list[Segment]:
    """Return the rows of one commit, in order: one row, unless SQL reads an entry of it, it is large, or its entries
    have different versions.
    """
    rows, pending = list[Segment](), [entries] if entries else []
    while pending:
        part = pending.pop()
        columns = tuple(zip(*part, strict=True))
        if count := _split_count(columns):
            pending += part[count:], part[:count]
        else:
            rows.append(_segment(part, columns))
    return rows


def header_line(columns: _Columns) -> bytes:
    """Return the first line of a segment, which is JSON: kind, key, time, author and size of each entry, in order."""
    _, _, _, kinds, keys, times, authors, _, _, _, bodies, _, _ = columns
    sizes = map(len, bodies) if None not in bodies else [None if body is None else len(body) for body in bodies]
    return orjson.dumps([*zip(kinds, keys, times, authors, sizes, strict=True)]) + b"\n"


def head_hash(head: bytes) -> str:
    """Return the hash of an entry as the journal writes it."""
    return _HASH_NAME + head.hex()


def hash_bytes(digest: str) -> bytes:
    """Return the hash of an entry as a database stores it, in 32 bytes."""
    return bytes.fromhex(digest.removeprefix(_HASH_NAME))


def read_rows(
    tenant: str, run: str, after: int, rows: Iterable[Sequence[Any]], *, goes_on: bool = False
) -> Iterator[Entry]:
    """Yield the entries of a run that follow the entry `after`. A row is the head of the segment before, then the
    columns of the segment. The first segment can start with earlier entries; with `goes_on` it cannot, because the page
    before ended with the entry `after`.

    Raises: as `entries_of`; `ChainBroken` also for a missing entry and for a column of another type.
    """
    next_seq = after + 1 if goes_on else None
    for before, *columns in rows:
        row = Segment(*columns)
        if tuple(map(type, row)) != _COLUMN_TYPES or type(before) not in (bytes, NoneType):
            raise ChainBroken(run, after + 1, f"is in a row with a column of another type; {_RESTORE}")
        first_seq = row.seq - row.entries + 1
        if first_seq > after + 1 or next_seq not in (None, first_seq):
            raise ChainBroken(run, after + 1, f"is missing; entry {first_seq} is in its place")
        next_seq = row.seq + 1
        yield from entries_of(tenant, run, before, row)[after + 1 - first_seq :]
        after = row.seq


def entries_of(tenant: str, run: str, before: bytes | None, row: Segment) -> list[Entry]:
    """Return the entries of a segment. `before` is the head of the segment before it, None if there is none.

    Raises:
        ChainBroken: the segment is cut, altered, of another stream, or does not continue the one before it. It names
            the altered entry, or the first and the last one of a segment that cannot be unpacked.
        Integrity: the format or the dictionary of the segment is not known.
    """
    if verified := _ENTRY_CACHE.get((tenant, run, before, row)):
        return [*verified]
    first_seq = row.seq - row.entries + 1
    refuse_unknown(run, first_seq, row)
    if before is None and first_seq != 1:
        raise ChainBroken(run, first_seq - 1, "is missing; restore the stream from a good copy")
    head = genesis(tenant, run) if before is None else head_hash(before)
    try:
        entries = _link_entries(tenant, run, head, row)
    except (ValueError, TypeError, LookupError, zstd.ZstdError):
        entries = []
    if not entries:
        raise ChainBroken(run, first_seq, f"is the first of {row.entries} of a commit that {_UNREADABLE}")
    altered = _first_altered(entries, row)
    if altered is None:
        _cache_entries(before, row, entries)
        return entries
    if altered.salt == _ERASED_SALT:
        raise ChainBroken(run, altered.seq, _HALF_ERASED)
    for entry in entries:
        if entry.body is None:
            raise ChainBroken(run, entry.seq, f"has no body, and entry {altered.seq} of its commit {_ALTERED}")
    raise ChainBroken(run, altered.seq, _ALTERED)


def _cache_entries(before: bytes | None, row: Segment, entries: Sequence[Entry]) -> None:
    key = entries[0].tenant, entries[0].run, before, row
    _ENTRY_CACHE.keep(key, tuple(entries), entries_size(entries) + len(row.body))


def _first_altered(entries: Sequence[Entry], row: Segment) -> Entry | None:
    if _marks(map(_hash, entries)) != row.marks:
        for number, entry in enumerate(entries):
            if _marks([entry.hash]) != row.marks[number * MARK_BYTES : (number + 1) * MARK_BYTES]:
                return entry
    return None if entries[-1].hash == head_hash(row.head) else entries[-1]


_RESTORE: Final = "restore the stream from a good copy"
_UNREADABLE: Final = f"was cut or altered so that it cannot be unpacked; {_RESTORE}"
_ALTERED: Final = f"has a body that its digest does not cover, or was altered elsewhere; {_RESTORE}"
_HALF_ERASED: Final = f"is erased in part: its body, its salt and the list of erasures disagree; {_RESTORE}"


def refuse_unknown(run: str, first: int, row: Segment) -> None:
    """Raise `Integrity` for a segment of a format or dictionary that this code does not know."""
    if row.format != SEGMENT_FORMAT:
        raise Integrity(
            f"`{run[:64]}` entry {first} is in a segment of format {row.format}, and this code knows {SEGMENT_FORMAT};"
            " run the contextos that wrote it"
        )
    if row.dictionary not in (UNCOMPRESSED, dictionary_id()):
        raise Integrity(
            f"`{run[:64]}` entry {first} is in a segment of the dictionary `{bytes(row.dictionary).hex()[:64]}`, which"
            " this code does not have: begin with a new store, or run the contextos that wrote this one"
        )


def without(tenant: str, run: str, before: bytes | None, row: Segment, seq: int) -> Segment | None:
    """Return the segment without body and salt of the entry `seq`, or None if that entry was erased before.

    Raises: as `entries_of`.
    """
    entries = entries_of(tenant, run, before, row)
    index = seq - entries[0].seq
    entry = entries[index]
    if entry.body is None:
        return None
    _ENTRY_CACHE.drop((tenant, run, before, row))
    forget(tenant, run)
    entries[index] = entry._replace(body=None, salt=None)
    salts = row.salts[: index * SALT_BYTES] + _ERASED_SALT + row.salts[(index + 1) * SALT_BYTES :]
    body = _pack(tuple(zip(*entries, strict=True)), compressed=row.dictionary != UNCOMPRESSED)
    erased = f"{row.erased}{seq}:{entry.body_digest.removeprefix(_HASH_NAME)} "
    return row._replace(salts=salts, body=body, erased=erased)


def selected_bodies(plain: Iterable[bytes], key: str) -> list[bytes]:
    """Return the bodies of the entries `slot.selected` with this key, from segments that are not compressed."""
    expected = orjson.dumps([[READABLE_KIND, key]])[:-2] + b","
    partitions = [text.partition(b"\n") for text in plain]
    return [body for line, _, body in partitions if line.startswith(expected) and body]


@cache
def dictionary_id() -> bytes:
    """Return the name of the dictionary: the first bytes of its SHA-256."""
    return hashlib.sha256(DICTIONARY_FILE.read_bytes()).digest()[:DICTIONARY_ID_BYTES]


@cache
def _dictionary() -> _Dictionary:
    content = zstd.ZstdDict(DICTIONARY_FILE.read_bytes(), is_raw=True)
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: COMPRESSION_LEVEL,
        zstd.CompressionParameter.checksum_flag: 0,
        zstd.CompressionParameter.dict_id_flag: 0,
    }
    return _Dictionary(content, zstd.ZstdCompressor(options=options, zstd_dict=content.as_digested_dict))


def _split_count(columns: _Columns) -> int:
    """Return how many of the first entries of a commit are split off into earlier rows; 0 if all are one row."""
    _, _, _, kinds, keys, _, authors, _, _, _, bodies, _, versions = columns
    if len(kinds) == 1:
        return 0
    if READABLE_KIND in kinds:
        return kinds.index(READABLE_KIND) or 1
    weight = sum(map(len, filter(None, bodies))) + NAME_WEIGHT * sum(map(len, kinds + keys + authors))
    return len(kinds) // 2 if weight > SEGMENT_BYTES or len({*versions}) > 1 else 0


def _segment(entries: Sequence[Entry], columns: _Columns) -> Segment:
    first, last = entries[0], entries[-1]
    compressed = last.kind != READABLE_KIND
    _, _, _, _, _, _, _, _, _, hashes, _, salts, _ = columns
    row = Segment(
        seq=last.seq,
        entries=len(entries),
        v=last.v,
        format=SEGMENT_FORMAT,
        dictionary=dictionary_id() if compressed else UNCOMPRESSED,
        head=hash_bytes(last.hash),
        marks=_marks(hashes),
        salts=b"".join(salts if None not in salts else [salt or _ERASED_SALT for salt in salts]),
        body=_pack(columns, compressed=compressed),
        erased="",
    )
    # What this process linked a moment before is not unpacked and hashed again when it is read.
    if known(first.tenant, first.run, entries, first.seq - 1) == len(entries):
        _cache_entries(None if first.seq == 1 else hash_bytes(first.prev_hash), row, entries)
    return row


def _marks(hashes: Iterable[str]) -> bytes:
    return bytes.fromhex("".join(map(_mark, hashes)))


def _pack(columns: _Columns, *, compressed: bool) -> bytes:
    plain = b"".join([header_line(columns), *filter(None, columns[_BODY])])
    if not compressed:
        return plain
    return _dictionary().compressor.compress(plain, zstd.ZstdCompressor.FLUSH_FRAME)


def _unpack(row: Segment) -> bytes:
    """Return the plain text of a segment. Raises `ValueError` or `ZstdError` if it is damaged."""
    if row.dictionary == UNCOMPRESSED:
        return bytes(row.body)
    decompressor = zstd.ZstdDecompressor(zstd_dict=_dictionary().content)
    plain = decompressor.decompress(row.body, max_length=MAX_SEGMENT_BYTES)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the frame does not end with the segment")
    return plain


def _link_entries(tenant: str, run: str, head: str, row: Segment) -> list[Entry]:
    """Return the entries of a segment with their hashes computed again; an empty list if sizes or counts do not fit.

    Raises `ChainBroken` for an entry that is erased in part.
    """
    plain = _unpack(row)
    start = plain.find(b"\n", 0, MAX_HEADER_BYTES) + 1
    if not start:
        return []
    header = orjson.loads(plain[:start])
    erased = {int(seq): digest for seq, _, digest in (erasure.partition(":") for erasure in row.erased.split())}
    counts = (len(header), len(row.salts) / SALT_BYTES, len(row.marks) / MARK_BYTES)
    if counts != (row.entries,) * 3 or len(erased) > row.entries:
        return []
    entries: list[Entry] = []
    first_seq = row.seq - row.entries + 1
    for number, (kind, key, at_us, by, size) in enumerate(header):
        if not (type(kind) is type(key) is type(by) is str and type(at_us) is int):
            return []
        seq, salt = first_seq + number, row.salts[number * SALT_BYTES : (number + 1) * SALT_BYTES]
        if size is None:
            digest = erased.pop(seq, None)
            if digest is None or salt != _ERASED_SALT:
                raise ChainBroken(run, seq, _HALF_ERASED)
            entry = Entry(tenant, run, seq, kind, key, at_us, by, _HASH_NAME + digest, head, "", None, None, row.v)
        else:
            body = plain[start : start + size]
            start += len(body)
            entry = Entry(tenant, run, seq, kind, key, at_us, by, body_digest(salt, body), head, "", body, salt, row.v)
        head = header_hash(entry)
        entries.append(entry._replace(hash=head))
    return entries if start == len(plain) and not erased else []
