"""Checks cancel requests: only those that a sealed act of a person in the stream `control` states are believed.

The document beside the act is only where a run looks first. A writer of the database can add or alter it.
Source: docs/design/journal.md, "Rows that the journal proves".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import CONTROL, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.seams import Journal, ProvedCancels
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken
from contextos.trust.approvals.acts import counted_act
from contextos.trust.pages import stream_pages


async def proved_cancels(store: Store, keys: Keys, run_id: str) -> Sequence[dict[str, str]]:
    """Return the cancel requests of a run that a sealed act proves (`by`, `reason`). An act that is not sealed proves
    nothing.
    """
    requests = requests_in(await store.lines(CONTROL, run_id), keys)
    return [{"by": request.by, "reason": request.reason} for _, request in requests]


async def is_unproved(journal: Journal, key: str, said: Any, proved: ProvedCancels) -> bool:
    """Return whether no sealed act proves `said`, the cancel request that ended the wait for `key`; that is then
    recorded. Any process with store access can append such an entry to a run that waits.
    """

    async def look() -> dict[str, str] | None:
        return None if said in await proved() else {}

    return await journal.record_found("run.cancel_unproved", key, look) is not None


async def verify_cancels(store: Store, upto: int, keys: Keys) -> None:
    """Check that an act states each stored cancel request, and that the request of each act is stored.

    `upto` is the number of entries that `control` had before the call. Acts that are added meanwhile prove
    stored requests, but their own requests need not be stored yet.

    Raises:
        ChainBroken: a request is missing, made up or altered; names its run.
        Integrity: a stored request is malformed.
    """
    stored = list[StoredDocument[CancelRequest]]()
    while page := await CANCELS.page(store, after=stored[-1].key if stored else ""):
        stored += page
    proved = set[tuple[str, CancelRequest]]()
    async for entries in stream_pages(store, CONTROL, upto=upto):
        proved.update(requests_in(entries, keys))
    all_proved = proved.union(requests_in(await store.read(CONTROL, after=upto), keys))
    for document in stored:
        if (document.key, document.body) not in all_proved:
            detail = f"is the last, and no sealed act states the stored cancel request of `{document.key[:64]}`"
            raise ChainBroken(CONTROL, upto, detail)
    for run_id in sorted({run_id for run_id, _ in proved} - {document.key for document in stored}):
        raise ChainBroken(CONTROL, upto, f"is the last, and the cancel request of `{run_id[:64]}` is gone")


def requests_in(control: Iterable[Entry], keys: Keys) -> list[tuple[str, CancelRequest]]:
    """Return the runs that sealed acts in these entries of `control` cancel, each with the request."""
    requests = []
    for entry in control:
        act = counted_act(entry, keys) if entry.kind == "run.cancelled" else None
        if act is not None and act.arguments.get("run") == entry.key:
            requests.append((entry.key, CancelRequest(act.actor, str(act.arguments.get("reason", "")))))
    return requests
