"""Check, before a person acts on a run, that its journal verifies and that texts are within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from contextos.contracts.documents.collection import find_documents
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.journal import Entry
from contextos.contracts.ports.gates import checked_text
from contextos.contracts.ports.storage import Store
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidInput, NotFound, Problem
from contextos.trust.approvals.cancel_requests import proved_cancels
from contextos.trust.journal.chain import refuse_other_environment, verify_once
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed
from contextos.trust.redact import scan_unsafe

MAX_REASON_CHARS: Final = 2_000


async def verified_run(app: Deployment, tenant_id: str, run_id: str) -> tuple[Store, Sequence[Entry]]:
    """Return the store of a tenant and the entries of a run, whose chain, index lines and last signed head verify.

    Raises:
        NotFound: no such run in this tenant.
        ChainBroken: an entry is missing or was changed.
    """
    store = app.ports.stores.tenant(tenant_id)
    entries, heads, index_entries, _ = await store.read_run(run_id)
    if not entries:
        raise no_run(run_id)
    verify_once(tenant_id, run_id, entries)
    verify_indexed(run_id, entries, index_entries)
    verify_heads(tenant_id, run_id, entries, heads[-1:], app.ports.keys)
    return store, entries


async def answerable_run(app: Deployment, tenant_id: str, run_id: str, verdict: str) -> tuple[Store, Sequence[Entry]]:
    """As `verified_run`, for a run that this deployment drives on after the answer. Also raises `OtherEnvironment` if
    the run, or for the verdict `approved` the active set, is of another environment.
    """
    store, entries = await verified_run(app, tenant_id, run_id)
    refuse_other_environment(entries, app.config.environment)
    if verdict == "approved":  # a run whose request was erased states no environment
        await app.catalog(tenant_id).active()
    return store, entries


def no_run(run_id: str) -> NotFound:
    """Return the error about a run that does not exist."""
    return NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs list`")


def refuse_reason(reason: str) -> None:
    """Check the reason of an act before it is recorded. Raises `InvalidInput` if it is too long or has unsafe text."""
    checked_text(reason, "/reason", MAX_REASON_CHARS, empty=True)
    if problems := scan_unsafe(reason, declared_text=True):
        raise InvalidInput(Problem("/reason", problems[0].code, problems[0].detail, "remove it"))


async def stored_cancel(app: Deployment, store: Store, run_id: str) -> tuple[int, bool]:
    """Return the version of the stored cancel request of a run (0: there is none), and whether a sealed act proves
    it.
    """
    version = (await find_documents(store, CANCELS.place(run_id))).version(CANCELS, run_id)
    return version, bool(version and await proved_cancels(store, app.ports.keys, run_id))
