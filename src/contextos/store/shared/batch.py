"""Checks a batch, as every store does before it reads its own state."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar

from contextos.contracts.journal import (
    CONTROL,
    ENTRY_ERASED,
    INDEX,
    SALT_BYTES,
    SHARED_STREAMS,
    Batch,
    Draft,
    Entry,
    Write,
    erasure_key,
)
from contextos.errors import InvalidInput, NotFound, Problem

T = TypeVar("T")
_Misfit = tuple[str, str, str]
"""What is wrong: the place in a value, a code and a detail."""
_expect, _collection, _key, _body = map(attrgetter, ("expect", "collection", "key", "body"))

MAX_BATCH_ENTRIES: Final = 10_000
MAX_ENTRY_BYTES: Final = 64 << 20
MAX_NAME_BYTES: Final = 800
"""The longest name, in bytes of UTF-8. A key has three names, and an index entry of PostgreSQL at most 2,704 bytes."""
MAX_ENTRY_NAME_CHARS: Final = 64 << 10
"""The most characters that kind, key and author of a run's entry have together. No index holds them."""
MAX_SQL_INTEGER: Final = 2**63 - 1
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEX: Final = re.compile("(?:[0-9a-f]{2})*")
TOO_LONG_IN_ALL: Final = f"the names of an entry have at most {MAX_ENTRY_NAME_CHARS} characters together"
NOT_STORABLE: Final = "a name contains half a surrogate pair"
TOO_LONG: Final = f"a name has at most {MAX_NAME_BYTES} bytes in UTF-8"


def refuse_misfit(tenant: str, batch: Batch) -> None:
    """Refuse a batch (one atomic commit) for another tenant or run, with unknown shared streams, or beyond a size
    limit.

    Sequence, hashes and versions depend on the state of the store; a store checks them and raises `Conflict`.

    Raises: `InvalidInput`, with every problem.
    """
    problems = _problems("/entries", batch.entries, partial(_entry_misfits, tenant, batch.run))
    problems += _problems("/writes", batch.writes, _write_misfits)
    problems += _problems("/shared", batch.shared, _shared_misfits)
    if len(batch.entries) > MAX_BATCH_ENTRIES:
        problems.append(_problem("/entries", "too_many", f"a batch has at most {MAX_BATCH_ENTRIES} entries"))
    signer, signature = batch.signature if batch.signature is not None else ("", "")
    if _name_misfits(names := (tenant, batch.run, signer)):
        for pointer, name in zip(("/tenant", "/run", "/signature"), names, strict=True):
            problems += [_problem(pointer, code, detail) for _, code, detail in _name_misfits((name,))]
    if not _HEX.fullmatch(signature):
        problems.append(_problem("/signature", "not_hex", "a signature is written in hex, in lower case"))
    if batch.entries and batch.run in SHARED_STREAMS:
        problems.append(_problem("/run", "shared", f"`{batch.run}` takes drafts in `shared` and no entries"))
    if batch.wake_at_us is not None and not 0 <= batch.wake_at_us <= MAX_SQL_INTEGER:
        problems.append(_problem("/wake_at_us", "out_of_bounds", "a wake time is 0 or later"))
    if not batch.run:
        problems.append(_problem("/run", "empty", "a batch belongs to a stream"))
    if problems:
        raise InvalidInput(*problems)


def is_too_long(name: str) -> bool:
    """Return whether a name is longer than `MAX_NAME_BYTES` in UTF-8."""
    return len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES


def clamped(number: int) -> int:
    """Return the nearest number that a database can store."""
    return max(-MAX_SQL_INTEGER, min(number, MAX_SQL_INTEGER))


def nothing_signed(stream: str) -> InvalidInput:
    """Return the error for a signature over the head (length and last hash) of a stream that has no entry."""
    return InvalidInput(Problem("/signature", "nothing_signed", f"`{stream}` has no entry to sign the head of"))


def refuse_erasure(run: str, seq: int, record: Draft) -> None:
    """Refuse to erase an entry of a shared stream (`NotFound`), or an entry whose erasure `record` does not record
    (`InvalidInput`).
    """
    if run in SHARED_STREAMS:
        raise nothing_to_erase(run, seq)
    if (record.kind, record.key, len(record.salt)) != (ENTRY_ERASED, erasure_key(run, seq), SALT_BYTES):
        raise InvalidInput(_problem("/record", "foreign", f"it does not record the erasure of entry {seq} of `{run}`"))


def nothing_to_erase(run: str, seq: int) -> NotFound:
    """Return the error for an entry that cannot be erased because it does not exist."""
    return NotFound(f"`{run[:64]}` has no entry {seq} to erase; look at the run with `contextos runs show`")


def _problems(pointer: str, values: Sequence[T], misfits: Callable[[Sequence[T]], list[_Misfit]]) -> list[Problem]:
    """Return the problems of these values, each with its place. All values are first checked together, which is faster:
    if that finds no misfit, no value has one.
    """
    if not values or not misfits(values):
        return []
    numbered = ((number, misfit) for number, value in enumerate(values) for misfit in misfits((value,)))
    return [Problem(f"{pointer}/{number}{place}", code, detail) for number, (place, code, detail) in numbered]


def _entry_misfits(tenant_id: str, run_id: str, entries: Sequence[Entry]) -> list[_Misfit]:
    tenants, runs, _, kinds, keys, times, authors, _, _, _, bodies, salts, _ = zip(*entries, strict=True)
    count, misfits = len(entries), list[_Misfit]()
    if tenants.count(tenant_id) != count or runs.count(run_id) != count:
        misfits.append(("", "foreign", "the entry is of another tenant or run"))
    texts = kinds + keys + authors
    if {*map(type, texts)} != {str} or {*map(type, times)} != {int}:
        misfits.append(("", "wrong_type", "names are texts, and a time is an integer"))
    else:
        names = "".join(texts)
        if not is_storable(names):
            misfits.append(("", "not_storable", NOT_STORABLE))
        if len(names) > MAX_ENTRY_NAME_CHARS:
            misfits.append(("", "too_long", TOO_LONG_IN_ALL))
        if min(times) < -MAX_SQL_INTEGER or max(times) > MAX_SQL_INTEGER:
            misfits.append(("/at_us", "out_of_bounds", "a time has 64 bits"))
    if None in bodies or None in salts:
        misfits.append(("/body", "missing", "an entry is appended with body and salt"))
    elif {*map(len, salts)} != {SALT_BYTES}:
        misfits.append(("/salt", "wrong_size", f"a salt has {SALT_BYTES} bytes"))
    elif max(map(len, bodies)) > MAX_ENTRY_BYTES:
        misfits.append(("/body", "too_large", f"a body has at most {MAX_ENTRY_BYTES} bytes"))
    return misfits


def is_storable(names: str) -> bool:
    """Return whether the names hold no half of a surrogate pair, which no database stores."""
    return names.isascii() or not _SURROGATE.search(names)


def _write_misfits(writes: Sequence[Write]) -> list[_Misfit]:
    misfits, expected = list[_Misfit](), [*map(_expect, writes)]
    names, bodies = [*map(_collection, writes), *map(_key, writes)], [*filter(None, map(_body, writes))]
    if min(expected) < 0 or max(expected) >= MAX_SQL_INTEGER:
        misfits.append(("/expect", "out_of_bounds", "a version is 0 or more"))
    misfits += _name_misfits(names)
    if not all(names):
        misfits.append(("", "empty", "a document has a collection and a key"))
    if bodies and max(map(len, bodies)) > MAX_ENTRY_BYTES:
        misfits.append(("/body", "too_large", f"a body has at most {MAX_ENTRY_BYTES} bytes"))
    return misfits


def _name_misfits(names: Sequence[str]) -> list[_Misfit]:
    misfits = list[_Misfit]()
    if not is_storable("".join(names)):
        misfits.append(("", "not_storable", NOT_STORABLE))
    # A character takes at most four bytes, so most names are short enough without encoding them.
    if max(map(len, names)) > MAX_NAME_BYTES // 4 and any(map(is_too_long, names)):
        misfits.append(("", "too_long", TOO_LONG))
    return misfits


def _shared_misfits(shared: Sequence[tuple[str, Draft]]) -> list[_Misfit]:
    misfits = list[_Misfit]()
    for stream, (kind, key, _, author, _, salt) in shared:
        if stream not in SHARED_STREAMS:
            misfits.append(("", "unknown_stream", f"`{stream}` is not shared; use `{INDEX}` or `{CONTROL}`"))
        if len(salt) != SALT_BYTES:
            misfits.append(("/salt", "wrong_size", f"a salt has {SALT_BYTES} bytes"))
        if not is_storable(kind + key + author):
            misfits.append(("", "not_storable", NOT_STORABLE))
        if kind == ENTRY_ERASED:
            misfits.append(("", "not_erased", "an erasure is recorded by `Stores.erase`, which erases too"))
    return misfits


def _problem(pointer: str, code: str, detail: str) -> Problem:
    return Problem(pointer, code, detail)
