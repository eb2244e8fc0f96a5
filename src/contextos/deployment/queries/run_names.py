"""Find a run by its id, or by the id of the request that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contextos.contracts.documents.collection import find_documents
from contextos.contracts.documents.runs import LEASES, REQUESTS, RequestClaim, request_key
from contextos.contracts.entries.reading import MAX_REFUSED_ENTRIES, is_refused, read_body
from contextos.contracts.facts import nearest_name
from contextos.errors import ChainBroken, Integrity, NotFound

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.storage import Store

MAX_REQUESTS_OF_AN_ID: Final = 16
"""How often one id can be used: for a request, and for the requests that correct a refused one."""


async def run_named(store: Store, name: str) -> str:
    """Return the id of a run. `name` is the id of the run, or of the request that made it.

    Raises:
        Integrity: the store names a run for this request that another request made.
        NotFound: there is no such request.
    """
    if name.startswith("run_"):
        return name
    claim, _ = await claimed_run(store, name)
    if claim is None:
        raise await no_such_run(store, name)
    return claim.run_id


async def claimed_run(store: Store, request_id: str, fingerprint: str = "") -> tuple[RequestClaim | None, int]:
    """Return the claim of the request with this id and fingerprint, or else of the last request with this id, or None;
    and how many requests with this id there were. Each later one corrects a refused one.

    Raises:
        Integrity: the store names a run for this request that another request made.
    """
    stored = await _read_claims(store, request_id, range(1, 3))
    if len(stored) == 2:
        stored += await _read_claims(store, request_id, range(3, MAX_REQUESTS_OF_AN_ID + 1))
    if not stored:
        return None, 0
    claim = next((candidate for candidate in stored if candidate.fingerprint == fingerprint), stored[-1])
    count = len(stored)
    try:
        entries = await store.read(claim.run_id, limit=1)
    except ChainBroken:
        # The next read of the run reports what is altered.
        return claim, count
    recorded_id = _recorded_request_id(entries[0]) if entries else None
    if recorded_id is not None and recorded_id != request_id:
        raise Integrity(f"the store names `{claim.run_id}` for `{request_id[:64]}`, but `{recorded_id}` made that run")
    return claim, count


async def _read_claims(store: Store, request_id: str, numbers: range) -> list[RequestClaim]:
    """Return the claims of the requests with this id and these numbers, as far as they exist."""
    keys = [request_key(request_id, number) for number in numbers] if "#" not in request_id else []
    documents = await find_documents(store, *map(REQUESTS.place, keys))
    return [document.body for document in (documents.one(REQUESTS, key) for key in keys) if document is not None]


async def was_refused(store: Store, run_id: str) -> bool:
    """Return whether a run was refused before it did anything, so that its request can be sent again, corrected."""
    length = await store.length(run_id)
    # A session asks this at each call, so a run that goes on must cost only one read entry.
    if not 0 < length < MAX_REFUSED_ENTRIES or not is_refused(await store.read(run_id, after=length - 1, limit=1)):
        return False
    return is_refused(await store.read(run_id))


async def no_such_run(store: Store, name: str) -> NotFound:
    """Return the error for an unknown run name. It suggests the most similar name among those that begin alike."""
    collection, prefix_chars, noun = (LEASES, 8, "run") if name.startswith("run_") else (REQUESTS, 2, "run or request")
    keys: list[str] = await anext(collection.key_pages(store, prefix=name[:prefix_chars]), [])
    nearest = nearest_name(name[:200], [key for key in keys if "#" not in key])
    remedy = f"did you mean `{nearest}`?" if nearest else "list them with `contextos runs list`"
    return NotFound(f"there is no {noun} `{name[:64]}` in this tenant; {remedy}")


def _recorded_request_id(entry: Entry) -> str | None:
    """Return the id of the request in a `run.received` entry; None if its body was erased."""
    try:
        answer = read_body(entry)
        return str(answer["request"]["request_id"]) if answer is not None else None
    except (ValueError, LookupError, TypeError):
        raise Integrity(f"entry 1 of `{entry.run}` was altered; name the run itself, and verify") from None
