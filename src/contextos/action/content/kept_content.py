"""Keep digests of the untrusted content that a write sends out, so that a later run that reads it again recognises it.

A later run can read the same text whole, within a longer text, or a part cut out of it. So three kinds of digests are
kept: of the whole text, of the words and addresses in it, and of a sample of its stretches of `STRETCH` characters.
Source: docs/adr/0040-where-arguments-come-from.md.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from contextos.action.content.text_forms import MIN_PART_CHARS, WorkExceeded, WorkLimit, decodings, fold, leaves, parts
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import UnvouchedWrite
from contextos.contracts.journal import Write

MAX_WRITES: Final = 1_000
"""The most writes through one adapter that are compared. With more, every answer of the adapter is untrusted."""
MAX_DIGESTS: Final = 4_096
"""The most digests that are kept of one write. A write with more makes every answer of its adapter untrusted."""
STRETCH: Final = 16
STRETCHES_PER_SAMPLE: Final = 4
"""About one in this many stretches is in the sample."""
MAX_WORK: Final = 64 << 20


class WrittenContent(Protocol):
    """The untrusted content that runs of a tenant wrote, as digests; each row is proved by a signed entry."""

    def keep(self, key: str, digests: tuple[str, ...] | None, at_us: int) -> Write:
        """Build the write that keeps digests of a call. `key` is an `unvouched_key`, `at_us` Unix microseconds."""
        ...

    async def through(self, adapter_id: str, *, limit: int) -> Sequence[StoredDocument[UnvouchedWrite]]:
        """Return the rows of writes through an adapter. Raises `Integrity` for a row that is altered or made up."""
        ...


async def repeated(written: WrittenContent, adapter_id: str, run_id: str, values: Sequence[str]) -> list[int] | None:
    """Return the indexes of the `values` that other runs wrote through the adapter; None if all can be written so."""
    rows = await written.through(adapter_id, limit=MAX_WRITES + 1)
    other_runs = [row.body.digests for row in rows if row.key.split("/")[1] != run_id]
    if len(rows) > MAX_WRITES or None in other_runs:
        return None
    known_digests = frozenset(digest for digests in other_runs for digest in digests or ())
    return [index for index, value in enumerate(values) if known_digests and _is_known(value, known_digests)]


def digests_of(sent: Any) -> tuple[str, ...] | None:
    """Return the digests by which sent content is recognised when it is read again; None if there are too many."""
    digests: dict[str, None] = {}
    work = WorkLimit(MAX_WORK)
    try:
        for text in leaves(sent):
            for form in (text, *decodings(text, work)):
                digests |= dict.fromkeys(_text_digests(form))
                if len(digests) > MAX_DIGESTS:
                    return None
    except WorkExceeded:
        return None
    return tuple(digests)


def _text_digests(text: str) -> Iterator[str]:
    folded = fold(text)
    if not folded:
        return
    yield _digest("whole", folded)
    yield from (_digest("inside", word) for word in _words_and_addresses(text))
    yield from _stretch_digests(folded)


def _is_known(value: str, digests: Collection[str]) -> bool:
    folded = fold(value)
    if _digest("whole", folded) in digests or _digest("inside", folded) in digests:
        return True
    try:
        value_parts = [part for part in map(fold, parts(value)) if len(part) >= MIN_PART_CHARS]
    except WorkExceeded:
        return True
    return (
        any(_digest("inside", part) in digests for part in value_parts)
        or any(_digest("whole", part) in digests for part in _words_and_addresses(value))
        or any(digest in digests for digest in _stretch_digests(folded))
    )


def _words_and_addresses(text: str) -> Iterable[str]:
    """Return the words and the addresses in a text, folded, that are long enough to be looked for."""
    words = dict.fromkeys([*map(fold, text.split()), *map(fold, parts(text))])
    return [word for word in words if len(word) >= MIN_PART_CHARS]


def _stretch_digests(folded: str) -> Iterator[str]:
    """Yield the digests of a sample of stretches. A stretch is chosen by its content, wherever it is in the text."""
    raw = folded.encode("utf-32-le")
    size = 4 * STRETCH
    for start in range(0, len(raw) - size + 1, 4):
        stretch = raw[start : start + size]
        if zlib.crc32(stretch) % STRETCHES_PER_SAMPLE == 0:
            yield _digest("stretch", stretch.decode("utf-32-le"))


def _digest(kind: str, text: str) -> str:
    return hashlib.blake2b(f"{kind}/{text}".encode(), digest_size=8).hexdigest()
