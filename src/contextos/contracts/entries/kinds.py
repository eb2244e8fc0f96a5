"""Defines `KINDS`, the rows of all kinds of entries that a run can have, and the fold of a run by these rows.

Each entry changes the account as the row of its kind says: in a live run, in a replay and in a stored run alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from contextos.contracts.entries import of_context, of_decision, of_effect, of_model, of_run
from contextos.contracts.entries.account import LedgerSoFar, RunAccount
from contextos.contracts.entries.row import Kind
from contextos.contracts.journal import LEDGERS, NONE, Entry, Logged

KINDS: Final[dict[str, Kind]] = {
    **of_run.RUN_KINDS,
    **of_context.CONTEXT_KINDS,
    **of_model.MODEL_KINDS,
    **of_decision.DECISION_KINDS,
    **of_effect.EFFECT_KINDS,
}

UNSIGNED_KINDS: Final = frozenset(kind for kind, row in KINDS.items() if row.appended)
"""The kinds of entries that are appended outside the loop and that no head signs until the loop's next commit. Approval
answers, settlements and selections for slots have a person's own proof; a cancel request and the request to ask a
question again count only with their sealed act.
"""


class LedgerHeads:
    """The three ledgers of a run so far."""

    def __init__(self) -> None:
        self._ledgers = {name: LedgerSoFar() for name in LEDGERS}

    def add(self, entry: Logged | Entry) -> None:
        """Add the next entry of the run. Raises `KeyError` for an entry of an unknown kind."""
        if (ledger := self._ledgers.get(KINDS[entry.kind].ledger)) is not None:
            ledger.add(entry.hash)

    def as_json(self) -> dict[str, dict[str, Any]]:
        """Return the ledgers as a record names them."""
        return {name: ledger.as_json() for name, ledger in self._ledgers.items()}


def account_of(run_id: str, log: Iterable[Logged]) -> RunAccount:
    """Return the account of a run from its entries."""
    account = RunAccount(run_id)
    for entry in log:
        fold_entry(account, entry)
    return account


def fold_entry(account: RunAccount, entry: Logged) -> None:
    """Add the next entry of the run to its account. An erased entry counts only by its kind, time and hash."""
    _, kind, _, at_us, _, body, entry_hash = entry
    if not account.by_kind:
        account.began_us = account.now_us = at_us
    account.by_kind[kind].append(entry)
    if (row := KINDS.get(kind)) is not None:
        if row.ledger != NONE:
            account.ledgers[row.ledger].add(entry_hash)
        if row.wakes:
            account.waited_us += at_us - account.now_us
        if row.fold is not None and body is not None:
            row.fold(account, entry)
    account.now_us = at_us
