"""What a cancel request of a person meets in the store: an earlier request."""

from __future__ import annotations

from contextos.contracts.documents.collection import find_documents
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.ports.storage import Store
from contextos.operations.deployment import Deployment
from contextos.trust.approvals.cancel_requests import proved_cancels


async def stored_cancel(app: Deployment, store: Store, run_id: str) -> tuple[int, bool]:
    """Return the version of the stored cancel request of a run (0: there is none), and whether a sealed act proves
    it.
    """
    version = (await find_documents(store, CANCELS.place(run_id))).version(CANCELS, run_id)
    return version, bool(version and await proved_cancels(store, app.ports.keys, run_id))
