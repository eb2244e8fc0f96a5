"""The dead-letter list: runs that failed for good rest on it until an operator has them tried again.

Putting a run on it takes it out of `due` in the same commit, so it rests in every process of a deployment and hides
no other run. It is a list of documents of the tenant, and no part of a journal: it says nothing about what a run did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from contextos.contracts.journal import Batch, Document, Write
from contextos.contracts.ports import Store
from contextos.errors import Conflict, NotFound

COLLECTION: Final = "dead_letters"
MAX_DETAIL_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a run rests: a stable code and a sentence; when (Unix time in microseconds), and how often by now."""

    run_id: str
    code: str
    detail: str
    failed_at_us: int
    failures: int


def why(fault: BaseException) -> tuple[str, str]:
    """The code and the sentence of what stopped a drive."""
    return str(getattr(fault, "code", type(fault).__name__)), str(fault) or type(fault).__name__


async def bury(store: Store, run_id: str, cause: tuple[str, str], at_us: int) -> None:
    """Put a run on the list. One that has ended, or that somebody else drives at this moment, is left alone.

    Raises: `Unavailable`: it is still due, so it is driven and buried again.
    """
    leases = await store.scan("leases", key=run_id)
    known = await store.scan(COLLECTION, key=run_id)
    code, detail = cause
    entries = await store.read(run_id)
    if entries and entries[-1].kind == "run.ended":
        return
    body = {
        "code": code, "detail": detail[:MAX_DETAIL_CHARS], "failed_at_us": at_us, "rests": True,
        "failures": _body(known[0])["failures"] + 1 if known else 1, "entries": entries[-1].seq if entries else 0,
    }  # fmt: skip
    letter = Write(COLLECTION, run_id, known[0].version if known else 0, orjson.dumps(body))
    as_left = Write("leases", run_id, leases[0].version if leases else 0, None)
    try:
        await store.commit(Batch(run_id, writes=(letter, as_left), wake_at_us=0))
    except Conflict:
        return


async def dead_letters(store: Store, *, limit: int = 1000) -> Sequence[DeadLetter]:
    """The list of a tenant, by run id, at most `limit`."""
    listed: list[DeadLetter] = []
    after = ""
    while len(listed) < limit and (page := await store.scan(COLLECTION, after=after)):
        after = page[-1].key
        listed += [_letter(document) for document in page if await _rests(store, document)]
    return listed[:limit]


async def retry(store: Store, run_id: str, at_us: int) -> None:
    """Have a run of the list tried again: it is due at `at_us`, and fails onto the list again or goes on.

    Raises:
        NotFound: it is not on the list of this tenant.
        Conflict: somebody else changed it at this moment; look again.
    """
    known = await store.scan(COLLECTION, key=run_id)
    if not known or not await _rests(store, known[0]):
        detail = f"`{run_id[:64]}` is not on the dead-letter list of this tenant; see `contextos dead-letters`"
        raise NotFound(detail)
    taken = Write(COLLECTION, run_id, known[0].version, orjson.dumps({**_body(known[0]), "rests": False}))
    await store.commit(Batch(run_id, writes=(taken,), wake_at_us=at_us))


def _body(document: Document) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(document.body)
    return body


def _letter(document: Document) -> DeadLetter:
    body = _body(document)
    return DeadLetter(document.key, body["code"], body["detail"], body["failed_at_us"], body["failures"])


async def _rests(store: Store, document: Document) -> bool:
    """Whether nobody took it off the list: not by a retry, and not by driving the run on."""
    body = _body(document)
    return body["rests"] and not await store.read(document.key, after=body["entries"], limit=1)
