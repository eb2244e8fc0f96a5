"""What a cancel request of a person meets in the store: an earlier request, and a run that ends at the same moment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from contextos.contracts.documents.collection import find_documents
from contextos.contracts.documents.runs import CANCELS, LEASES
from contextos.contracts.journal import Batch
from contextos.contracts.ports.storage import Store
from contextos.errors import ApprovalRefused, Conflict
from contextos.operations.deployment import Deployment
from contextos.operations.driver import MAX_CONFLICTS
from contextos.queries.run_view import RunView
from contextos.trust.approvals.cancel_requests import proved_cancels


async def stored_cancel(app: Deployment, store: Store, run_id: str) -> tuple[int, bool]:
    """Return the version of the stored cancel request of a run (0: there is none), and whether a sealed act proves
    it.
    """
    version = (await find_documents(store, CANCELS.place(run_id))).version(CANCELS, run_id)
    return version, bool(version and await proved_cancels(store, app.ports.keys, run_id))


async def commit_before_end(app: Deployment, tenant_id: str, batch: Batch) -> RunView:
    """Commit a request to stop, unless the run has ended meanwhile: it would be woken for ever, and read no request.

    Raises:
        ApprovalRefused: the run has ended (`not_waiting`).
    """
    store = app.ports.stores.tenant(tenant_id)
    for _ in range(MAX_CONFLICTS):
        # Every commit of a driver changes the lease, so the commit fails if the run went on after it was read.
        lease = await LEASES.one(store, batch.run)
        view = await app.view(tenant_id, batch.run)
        if view.ended:
            raise ApprovalRefused("not_waiting", f"`{batch.run}` has ended as `{view.state}`")
        stored, is_proved = await stored_cancel(app, store, batch.run)
        if is_proved:
            return view
        fence = LEASES.check(batch.run, lease.version if lease else 0)
        if stored and lease:
            # A document that nobody made is there and keeps its version, so no dispatch would notice this request by
            # it. With another version of the lease the next commit of the driver fails, and the run looks again.
            fence = LEASES.write(batch.run, lease.version, lease.body)
        with suppress(Conflict):
            await store.commit(replace(batch, writes=(*batch.writes, fence)))
            return view
    raise Conflict(batch.run)
