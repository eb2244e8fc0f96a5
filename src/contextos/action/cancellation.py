"""Cancel a run: it looks for a cancel request before each call to the outside, and stops if there is one.

A person's request is a sealed act in the stream `control`. A document next to the act says that there is a request, so
the usual look costs one read. A document without an act stops nothing: it is recorded once, and the run goes on. A
request never interrupts a call that was sent.
Source: docs/design/contracts.md, "Run".
"""

from __future__ import annotations

from typing import Any

from contextos.action.barrier import Barrier
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.seams import Journal, ProvedCancels


async def find_cancel(journal: Journal, barrier: Barrier, proved: ProvedCancels, before: str) -> Failure | None:
    """Look for a cancel request of this run, and record it. Returns the failure that ends the run, or None.

    `before` names the call that is next; the recorded entry has the key `before/<before>`.
    """
    is_unproved = False

    async def look() -> dict[str, Any] | None:
        nonlocal is_unproved
        requests = await proved() if (await barrier.found()).has(CANCELS, journal.run_id) else None
        is_unproved = requests is not None and not requests
        return dict(requests[0]) if requests else None

    async def look_again() -> dict[str, Any] | None:
        if not is_unproved or journal.account.of("run.cancel_unproved"):
            return None
        return {}

    if await journal.record_found("run.cancel_requested", f"before/{before}", look) is None:
        if is_unproved or journal.on_tape:
            await journal.record_found("run.cancel_unproved", f"before/{before}", look_again)
        return None
    return Failure(code="cancelled", detail="the run was cancelled; nothing more was sent")
