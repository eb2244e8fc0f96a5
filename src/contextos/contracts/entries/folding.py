"""The fold of a run: each entry changes the account as the row of its kind says, live, in a replay and when stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from contextos.contracts.entries.account import LedgerSoFar, RunAccount
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import LEDGERS, Entry, Logged


class LedgerHeads:
    """The three ledgers of a run so far."""

    def __init__(self, entries: Iterable[Logged | Entry] = ()) -> None:
        self._ledgers = {name: LedgerSoFar() for name in LEDGERS}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Logged | Entry) -> None:
        """Add the next entry of the run. Raises `KeyError` for one of no known kind."""
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
    """Add the next entry of the run to its account. Of an erased one only that it was there, and when, is known."""
    kind, at_us = entry.kind, entry.at_us
    known = account.by_kind.get(kind)
    if known is None:
        if not account.by_kind:
            account.began_us = account.now_us = at_us
        account.by_kind[kind] = [entry]
    else:
        known.append(entry)
    if (row := KINDS.get(kind)) is not None:
        if (ledger := account.ledgers.get(row.ledger)) is not None:
            ledger.add(entry.hash)
        if row.wakes:
            account.waited_us += at_us - account.now_us
        if row.fold is not None and entry.body is not None:
            row.fold(account, entry)
    account.now_us = at_us
