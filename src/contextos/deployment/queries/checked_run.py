"""Read a run together with the faults that its verification finds, so that nothing altered is shown as if it were true.

Checked are the chain of the run, its last signed head, its erased bodies, what the index states of it, and who gave the
answers in it. The work is bounded by the run itself: the whole index, the witness and the other runs are checked only
by `contextos verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from contextos.deployment.queries.run_view import RunView, run_view
from contextos.errors import ChainBroken, ContextOSError, Integrity, Unavailable
from contextos.trust.approvals.signers import require_signers
from contextos.trust.journal.chain import verify_once
from contextos.trust.journal.entry_acts import refuse_unerased, require_acts
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry, StoredRun
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store

UNREADABLE: Final = "unreadable"
"""The state of a run that does not verify, if its entries determine no state."""

_Told = TypeVar("_Told")
_MALFORMED: Final = (ContextOSError, ValueError, LookupError, TypeError, AttributeError)
"""The errors that reading altered bodies can raise."""


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """The entries of a run as of one moment. `fault` says what does not verify; None if all of it does."""

    tenant_id: str
    run_id: str
    entries: Sequence[Entry]
    fault: str | None

    def view(self) -> RunView:
        """Return the view of the run, in the state `unreadable` if altered entries give none or cannot be read."""
        unreadable = RunView(self.tenant_id, self.run_id, UNREADABLE, None, None, None)
        if self.fault is not None and not self.entries:
            return unreadable
        return self.told(lambda: run_view(self.tenant_id, self.run_id, self.entries), unreadable)

    def told(self, fold: Callable[[], _Told], otherwise: _Told) -> _Told:
        """Return what `fold` makes of the entries, or `otherwise` if the run does not verify and `fold` fails."""
        if self.fault is None:
            return fold()
        try:
            return fold()
        except _MALFORMED:
            return otherwise


async def read_checked(store: Store, tenant_id: str, keys: Keys, run_id: str) -> CheckedRun:
    """Read a run and check it. A run that the store does not have has no entries, and a fault if the index names it. A
    run that was altered so that the store cannot read it, or in which an erased body is back, also has no entries and
    has a fault.
    """
    try:
        stored = await store.read_run(run_id)
        await refuse_unerased(store, stored.entries, keys)
    except Integrity as fault:
        return CheckedRun(tenant_id, run_id, (), str(fault))
    entries = stored.entries
    try:
        await require_acts(store, entries, keys)
        _verify_run(tenant_id, run_id, stored, keys)
        await require_signers(store, entries, keys)
    except Unavailable:
        raise
    except ChainBroken as broken:
        return CheckedRun(tenant_id, run_id, entries, str(broken))
    except _MALFORMED as error:
        return CheckedRun(tenant_id, run_id, entries, f"`{run_id}` is malformed: {type(error).__name__}")
    return CheckedRun(tenant_id, run_id, entries, None)


def _verify_run(tenant_id: str, run_id: str, stored: StoredRun, keys: Keys) -> None:
    entries, heads, index_entries, _ = stored
    kinds = {entry.kind for entry in index_entries}
    if not entries and not index_entries:
        return
    if not entries:
        raise ChainBroken(run_id, 1, "is missing: the index names the run")
    verify_once(tenant_id, run_id, entries)
    verify_indexed(run_id, entries, index_entries)
    # The last signed head covers all entries before it.
    verify_heads(tenant_id, run_id, entries, heads[-1:], keys)
    if "run.indexed" not in kinds:
        raise ChainBroken(run_id, 1, "is in no line of the index")
    if entries[-1].kind == "run.ended" and "run.closed" not in kinds:
        raise ChainBroken(run_id, len(entries), "ends the run, and the index does not say so")
