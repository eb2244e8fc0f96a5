"""Check, before a person acts on a run, that its journal verifies and that texts are within bounds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from contextos.contracts.documents.collection import find_documents
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.contracts.ports.gates import checked_text
from contextos.contracts.ports.storage import Store
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ApprovalRefused, InvalidInput, NotFound, Problem
from contextos.trust.approvals.cancel_requests import proved_cancels
from contextos.trust.journal.chain import refuse_other_environment, verify_once
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed
from contextos.trust.redact import scan_unsafe

MAX_REASON_CHARS: Final = 2_000


async def verified_run(
    app: Deployment, tenant_id: str, run_id: str, roles: Collection[str] | None = None
) -> tuple[Store, Sequence[Entry]]:
    """Return the store of a tenant and the entries of a run, whose chain, index lines and last signed head verify.

    Raises:
        NotFound: no such run in this tenant; or `roles` are given, and its last question asks none of them.
        ChainBroken: an entry is missing or was changed.
    """
    store = app.ports.stores.tenant(tenant_id)
    entries, heads, index_entries, _ = await store.read_run(run_id)
    # Before the run is verified, so that nobody else learns of its faults.
    if not entries or (roles is not None and _asked_role(entries) not in roles):
        raise no_run(run_id)
    verify_once(tenant_id, run_id, entries)
    verify_indexed(run_id, entries, index_entries)
    verify_heads(tenant_id, run_id, entries, heads[-1:], app.ports.keys)
    return store, entries


async def stored_run(app: Deployment, tenant_id: str, run_id: str) -> tuple[Store, Sequence[Entry]]:
    """Return the store of a tenant and the stored entries of a run, unverified. Raises `NotFound`."""
    store = app.ports.stores.tenant(tenant_id)
    entries = await store.read(run_id)
    if not entries:
        raise no_run(run_id)
    return store, entries


async def answerable_run(
    app: Deployment, tenant_id: str, run_id: str, verdict: str, verified: Sequence[Entry] | None = None
) -> tuple[Store, Sequence[Entry]]:
    """As `verified_run`, for a run that this deployment drives on after the answer. Also raises `OtherEnvironment` if
    the run, or for the verdict `approved` the active set, is of another environment.

    `verified` are the entries of the run if the same request read and verified them before: they are not read again,
    and the commit of the answer fails if the run went on since.
    """
    entries = verified or (await verified_run(app, tenant_id, run_id))[1]
    refuse_other_environment(entries, app.config.environment)
    if verdict == "approved":  # a run whose request was erased states no environment
        await app.catalog(tenant_id).active()
    return app.ports.stores.tenant(tenant_id), entries


def _asked_role(entries: Sequence[Entry]) -> str | None:
    """Return the role to which the last question of a run was put; None if it asked none or it was erased."""
    asked = next((entry for entry in reversed(entries) if entry.kind == "approval.asked"), None)
    body = read_body(asked) if asked is not None else None
    return str(body["required_role"]) if body is not None else None


def no_run(run_id: str) -> NotFound:
    """Return the error about a run that does not exist."""
    return NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs list`")


def refuse_reason(reason: str) -> None:
    """Check the reason of an act before it is recorded. Raises `InvalidInput` if it is too long or has unsafe text."""
    checked_text(reason, "/reason", MAX_REASON_CHARS, empty=True)
    if problems := scan_unsafe(reason, declared_text=True):
        raise InvalidInput(Problem("/reason", problems[0].code, problems[0].detail, "remove it"))


def refuse_ended(view: RunView) -> None:
    """Raise `ApprovalRefused` (`not_waiting`) if the run has ended."""
    if view.ended:
        raise ApprovalRefused("not_waiting", f"`{view.run_id}` has ended as `{view.state}`")


def refuse_answer(verdict: str, reason: str) -> None:
    """Check a verdict (`approved` or `denied`) and its reason before they are signed. Raises `InvalidInput`."""
    if verdict not in ("approved", "denied"):
        detail = f"`{str(verdict)[:40]}` is not a verdict"
        raise InvalidInput(Problem("/verdict", "unknown_verdict", detail, "approve or deny"))
    refuse_reason(reason)


async def stored_cancel(app: Deployment, store: Store, run_id: str) -> tuple[int, bool]:
    """Return the version of the stored cancel request of a run (0: there is none), and whether a sealed act proves
    it.
    """
    version = (await find_documents(store, CANCELS.place(run_id))).version(CANCELS, run_id)
    return version, bool(version and await proved_cancels(store, app.ports.keys, run_id))
