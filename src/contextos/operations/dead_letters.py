"""The dead-letter list: runs that failed for good, until an operator retries them.

It is a list of documents of the tenant, and no part of a journal. A letter says how long the run's journal was; as
soon as anybody adds to that, a person's answer or another drive, it counts no more. So a letter that is wrong or late
costs nothing: when a run is due stays as the store has it, and engines pass over what rests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import DEAD_LETTERS, LEASES, DeadLetterDocument
from contextos.contracts.journal import Batch
from contextos.contracts.ports.storage import Store
from contextos.errors import Conflict, ContextOSError, NotFound

MAX_DETAIL_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a run rests: a stable code and a sentence; when (Unix time in microseconds), and how often by now."""

    run_id: str
    code: str
    detail: str
    failed_at_us: int
    failures: int


def failure_cause(fault: BaseException) -> tuple[str, str]:
    """The error code and message of a failed drive. The text of a foreign exception is left out."""
    if isinstance(fault, ContextOSError):
        return fault.code, str(fault)
    return type(fault).__name__, "an exception that is none of ours; its text is where the worker that drove it says it"


async def journal_length(store: Store, run_id: str) -> int:
    """The number of entries of the run's journal; 0 if the run has ended or does not exist."""
    entries = await store.read(run_id)
    return entries[-1].seq if entries and entries[-1].kind != "run.ended" else 0


async def add(store: Store, run_id: str, cause: tuple[str, str], at_us: int, *, seen: int) -> bool:
    """Put a run on the list, if its journal has the `seen` entries that the failed drive began with, and no more.

    Says whether it rests now. Raises: `Unavailable`.
    """
    if not seen or await store.read(run_id, after=seen, limit=1):
        return False
    known = await DEAD_LETTERS.one(store, run_id)
    code, detail = (text.encode("utf-8", "replace").decode() for text in cause)
    failures = known.body.failures + 1 if known else 1
    body = DeadLetterDocument(code, detail[:MAX_DETAIL_CHARS], at_us, True, seen, failures)
    letter = DEAD_LETTERS.write(run_id, known.version if known else 0, body)
    try:
        await store.commit(Batch(run_id, writes=(letter,)))
    except Conflict:
        return False
    return True


async def has_lost_driver(store: Store, run_id: str) -> bool:
    """Whether a driver began the run and never let it go: it is being driven, or its driver is dead."""
    lease = await LEASES.one(store, run_id)
    return lease is not None and lease.body.until_us > 0


async def listed_run_ids(store: Store) -> set[str]:
    """The ids of all runs on a tenant's dead-letter list."""
    return {document.key async for document in _listed(store)}


async def list_dead_letters(store: Store, *, limit: int = 1000) -> Sequence[DeadLetter]:
    """The list of a tenant, by run id, at most `limit`."""
    listed: list[DeadLetter] = []
    async for document in _listed(store):
        body = document.body
        listed.append(DeadLetter(document.key, body.code, body.detail, body.failed_at_us, body.failures))
        if len(listed) >= limit:
            break
    return listed


async def remove(store: Store, run_id: str) -> None:
    """Take a run off the list. It is driven when it is due; if it fails again, it is put back.

    Raises:
        NotFound: it is not on the list of this tenant.
        Conflict: somebody else changed it at this moment; look again.
    """
    known = await DEAD_LETTERS.one(store, run_id)
    if not known or not await _rests(store, known):
        detail = f"`{run_id[:64]}` is not on the dead-letter list of this tenant; see `contextos dead-letters`"
        raise NotFound(detail)
    taken = DEAD_LETTERS.write(run_id, known.version, replace(known.body, rests=False))
    await store.commit(Batch(run_id, writes=(taken,)))


async def _listed(store: Store) -> AsyncIterator[StoredDocument[DeadLetterDocument]]:
    after = ""
    while page := await DEAD_LETTERS.page(store, after=after):
        after = page[-1].key
        for document in page:
            if await _rests(store, document):
                yield document


async def _rests(store: Store, document: StoredDocument[DeadLetterDocument]) -> bool:
    """Whether nobody took it off the list: not by a retry, and not by adding to the run's journal."""
    body = document.body
    return body.rests and not await store.read(document.key, after=body.entries, limit=1)
