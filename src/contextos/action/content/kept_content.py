"""What a write sends outside that nothing trusted has, as digests by which a later run knows it when it reads it again.

A later run reads the same text whole, inside of a longer one, or cut out of it. So three kinds of digests are kept of
it: of the whole, of the words and the addresses inside, and of a sample of its stretches of `STRETCH` characters.
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
"""How many writes through one adapter are compared with. After more of them every answer of it counts as untrusted."""
MAX_DIGESTS: Final = 4_096
"""How many digests are kept of one write. One that has more makes every answer of its adapter count as untrusted."""
STRETCH: Final = 16
STRETCHES_PER_SAMPLE: Final = 4
"""About one stretch in this many is kept."""
MAX_WORK: Final = 64 << 20


class WrittenContent(Protocol):
    """What runs of a tenant wrote that nothing trusted had, each row proved by what this runtime signed."""

    def keep(self, key: str, digests: tuple[str, ...] | None, at_us: int) -> Write:
        """Build the write that keeps these digests of a call, whose key is an `unvouched_key`."""
        ...

    async def through(self, adapter_id: str, *, limit: int) -> Sequence[StoredDocument[UnvouchedWrite]]:
        """Return what is kept of writes through an adapter. Raises `Integrity` for a row that is altered or made up."""
        ...


async def repeated(written: WrittenContent, adapter_id: str, run_id: str, values: Sequence[str]) -> list[int] | None:
    """Return which of the values that an adapter answered other runs wrote through it; None if all can be."""
    found = await written.through(adapter_id, limit=MAX_WRITES + 1)
    others = [one.body.digests for one in found if one.key.split("/")[1] != run_id]
    if len(found) > MAX_WRITES or None in others:
        return None
    known = frozenset(one for digests in others for one in digests or ())
    return [place for place, value in enumerate(values) if known and _is_known(value, known)]


def digests_of(sent: Any) -> tuple[str, ...] | None:
    """Return the digests by which what a call sends is known when it is read again; None for more than is kept."""
    digests: dict[str, None] = {}
    work = WorkLimit(MAX_WORK)
    try:
        for text in leaves(sent):
            for form in (text, *decodings(text, work)):
                digests |= dict.fromkeys(_kept_of(form))
                if len(digests) > MAX_DIGESTS:
                    return None
    except WorkExceeded:
        return None
    return tuple(digests)


def _kept_of(text: str) -> Iterator[str]:
    folded = fold(text)
    if not folded:
        return
    yield _digest("whole", folded)
    yield from (_digest("inside", one) for one in _inside(text))
    yield from _stretches(folded)


def _is_known(value: str, known: Collection[str]) -> bool:
    folded = fold(value)
    if _digest("whole", folded) in known or _digest("inside", folded) in known:
        return True
    try:
        named = [one for one in map(fold, parts(value)) if len(one) >= MIN_PART_CHARS]
    except WorkExceeded:
        return True
    return (
        any(_digest("inside", one) in known for one in named)
        or any(_digest("whole", one) in known for one in _inside(value))
        or any(one in known for one in _stretches(folded))
    )


def _inside(text: str) -> Iterable[str]:
    """The words and the addresses in a text that are long enough to be looked for."""
    found = dict.fromkeys([*map(fold, text.split()), *map(fold, parts(text))])
    return [one for one in found if len(one) >= MIN_PART_CHARS]


def _stretches(folded: str) -> Iterator[str]:
    """The same stretches are in the sample wherever they stand."""
    raw = folded.encode("utf-32-le")
    size = 4 * STRETCH
    for start in range(0, len(raw) - size + 1, 4):
        one = raw[start : start + size]
        if zlib.crc32(one) % STRETCHES_PER_SAMPLE == 0:
            yield _digest("stretch", one.decode("utf-32-le"))


def _digest(kind: str, text: str) -> str:
    return hashlib.blake2b(f"{kind}/{text}".encode(), digest_size=8).hexdigest()
