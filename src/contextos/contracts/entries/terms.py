"""Computes the terms by which a search finds a run: the values in its entries, its state, and its decision's status.

A term is a number of 64 bits, the beginning of the SHA-256 of a criterion and its value. So a term has one size
whatever the value is, and a value can only be guessed and compared. Two values with the same term only make a search
read more.
Source: docs/adr/0078-runs-are-found-by-terms.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Final

from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import Logged

_TERM_READERS: Final = {kind: row.terms for kind, row in KINDS.items() if row.terms is not None}
_CACHED_TERMS: Final = 1024


@lru_cache(_CACHED_TERMS)
def term(criterion: str, value: str) -> int:
    """Return the term for a value of a criterion."""
    return int.from_bytes(
        sha256(f"{criterion}={value}".encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True
    )


ANY_RUN: Final = term("run", "")
"""The term of every run."""
LIVE: Final = term("live", "")
"""The term of every run that has not ended."""


def stated_terms(entries: Iterable[Logged]) -> set[int]:
    """Return the terms that these entries of a run state. An erased entry states none."""
    readers = [(read, entry.body) for entry in entries if (read := _TERM_READERS.get(entry.kind)) and entry.body]
    return {term(criterion, value) for read, body in readers for criterion, value in read(body)}


def standing_terms(state: str, status: str | None, *, ended: bool) -> tuple[int, ...]:
    """Return the terms of an ended run's state and status (None: its record was erased); else only `LIVE`."""
    if not ended:
        return (LIVE,)
    return (term("state", state), term("status", status)) if status else (term("state", state),)
