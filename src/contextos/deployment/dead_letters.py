"""The dead-letter list: runs that failed for good, until an operator retries them.

The list consists of documents of the tenant, apart from the journals. A dead letter states the length of the run's
journal and is void as soon as the journal grows, by a person's answer or by another drive. So a wrong or late dead
letter does no harm: it does not change when a run is due, and an engine only skips the runs on the list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import DEAD_LETTERS, LEASES, DeadLetterDocument, Lease
from contextos.contracts.journal import Batch, Write
from contextos.contracts.ports.storage import Store
from contextos.errors import Conflict, ContextOSError, Integrity, NotFound

MAX_DETAIL_CHARS: Final = 1_000
WORKER_LOST: Final = ("worker_lost", "every worker that drove it died; find out why before it is retried")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A run that failed so often that it is no longer driven: error code and message, time (Unix µs), number of
    failures.
    """

    run_id: str
    code: str
    detail: str
    failed_at_us: int
    failures: int


def failure_cause(fault: BaseException) -> tuple[str, str]:
    """Return the error code and message of a failed drive. The text of an exception from foreign code is left out."""
    if isinstance(fault, ContextOSError):
        return fault.code, str(fault)
    return type(
        fault
    ).__name__, "an exception from outside contextos; its text is in the log of the worker that drove the run"


async def journal_length(store: Store, run_id: str) -> int:
    """Return the number of entries of the run's journal, even if it was altered; 0 if the run has ended or does not
    exist.
    """
    length = await store.length(run_id)
    try:
        last = await store.read(run_id, after=length - 1) if length else ()
    except Integrity:
        return length
    return length if last and last[-1].kind != "run.ended" else 0


async def add(store: Store, run_id: str, cause: tuple[str, str], at_us: int, *, seen: int) -> bool:
    """Put a run on the dead-letter list (runs that are no longer driven) if its journal still has `seen` entries.

    `cause` is (error code, message), `at_us` Unix microseconds. Returns whether the run is on the list now. Raises
    `Unavailable`.
    """
    if not seen or await store.length(run_id) > seen:
        return False
    stored = await DEAD_LETTERS.one(store, run_id)
    code, detail = (text.encode("utf-8", "replace").decode() for text in cause)
    failures = stored.body.failures + 1 if stored else 1
    body = DeadLetterDocument(code, detail[:MAX_DETAIL_CHARS], at_us, True, seen, failures)
    dead_letter = DEAD_LETTERS.write(run_id, stored.version if stored else 0, body)
    try:
        await store.commit(Batch(run_id, writes=(dead_letter,)))
    except Conflict:
        return False
    return True


async def add_lost(store: Store, run_id: str, at_us: int, *, lease_version: int) -> None:
    """Put a run whose drivers all died on the list, and release the lease of the last driver. Raises `Unavailable`.

    After a retry the deaths of its drivers are counted anew.
    """
    stored, length = await DEAD_LETTERS.one(store, run_id), await journal_length(store, run_id)
    body = DeadLetterDocument(*WORKER_LOST, at_us, True, length, stored.body.failures + 1 if stored else 1)
    writes = (
        DEAD_LETTERS.write(run_id, stored.version if stored else 0, body),
        LEASES.write(run_id, lease_version, Lease("", 0)),
    )
    await store.commit(Batch(run_id, writes=writes))


async def listed_run_ids(store: Store) -> set[str]:
    """Return the ids of all runs on the dead-letter list of the store's tenant."""
    return {document.key async for document in _read_documents(store)}


async def list_dead_letters(store: Store, *, after: str = "", limit: int = 1000) -> Sequence[DeadLetter]:
    """Return at most `limit` dead letters (runs that are no longer driven) of a tenant, ordered by run id, behind
    `after`.
    """
    letters: list[DeadLetter] = []
    async for document in _read_documents(store, after):
        body = document.body
        letters.append(DeadLetter(document.key, body.code, body.detail, body.failed_at_us, body.failures))
        if len(letters) >= limit:
            break
    return letters


async def dead_letter(store: Store, run_id: str) -> StoredDocument[DeadLetterDocument]:
    """Return the dead letter of a run that is on the list now. Raises `NotFound`."""
    stored = await DEAD_LETTERS.one(store, run_id)
    if not stored or not await _is_dead(store, stored):
        detail = f"`{run_id[:64]}` is not on the dead-letter list of this tenant; see `contextos runs dead-letters`"
        raise NotFound(detail)
    return stored


def removal(known: StoredDocument[DeadLetterDocument]) -> Write:
    """Return the write that takes a run off the list."""
    return DEAD_LETTERS.write(known.key, known.version, replace(known.body, rests=False))


async def _read_documents(store: Store, after: str = "") -> AsyncIterator[StoredDocument[DeadLetterDocument]]:
    while page := await DEAD_LETTERS.page(store, after=after):
        after = page[-1].key
        for document in page:
            if await _is_dead(store, document):
                yield document


async def _is_dead(store: Store, document: StoredDocument[DeadLetterDocument]) -> bool:
    """Return whether a dead letter is still valid: it was not removed, and the run's journal has not grown."""
    body = document.body
    return body.rests and await store.length(document.key) <= body.entries
