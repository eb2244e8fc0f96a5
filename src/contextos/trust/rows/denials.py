"""Checks denials: one counts only if the run that was denied shows it and did not find it void.

The row by which the next request finds a denial is a hint that a writer of the database can make up.
Source: docs/design/journal.md, "Rows that the journal proves".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import DENIALS, Denial, bound_denial, denial_place
from contextos.contracts.entries.account import void_answers
from contextos.contracts.entries.reading import logged, read_body
from contextos.contracts.journal import Entry, Write
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, Integrity
from contextos.trust.approvals.signers import require_signers
from contextos.trust.journal.signed_heads import read_proved


@dataclass(frozen=True, slots=True)
class ShownDenial:
    """A denial in the entry `seq`, of the operation with the key `of` (None: the question was erased). `erased`: the
    answer was erased, so it can also have been an approval whose call was not sent. `void`: the run did not count it.
    """

    seq: int
    of: str | None
    approver: str
    erased: bool
    void: bool


def shown_denials(entries: Sequence[Entry]) -> Collection[ShownDenial]:
    """Return the denials in a run, also those that it found void."""
    operations, void = (
        dict[str, str | None](),
        void_answers(logged(entry for entry in entries if entry.kind.startswith("approval."))),
    )
    denials_by_question: dict[str, list[ShownDenial]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "approval.asked":
            body = read_body(entry)
            operations[entry.key] = bound_denial(body["binding"]) if body else None
        elif entry.kind == "approval.answered" and entry.key in operations:
            body = read_body(entry)
            erased = entry.body is None
            if erased or (body and body["verdict"] == "denied"):
                denial = ShownDenial(entry.seq, operations[entry.key], entry.by, erased, entry.seq in void)
                denials_by_question[entry.key].append(denial)
        elif entry.kind == "tool.dispatching":
            denials_by_question.pop(entry.key.rpartition("/")[0], None)
    return [denial for denials in denials_by_question.values() for denial in denials]


async def proving_denial(
    store: Store, keys: Keys, entries: Sequence[Entry], row: StoredDocument[Denial], among: Collection[ShownDenial]
) -> ShownDenial | None:
    """Return the denial of `among` that proves the row, or None if none does: the row's approver has to have given it,
    as `control` proves. `among` are denials in these verified entries.
    """
    key = row.key.partition("#")[0]
    for denial in sorted(among, key=lambda shown: shown.of is None):
        if denial.of in (key, None) and denial.approver == row.body.approver:
            try:
                await require_signers(store, entries[: denial.seq], keys)
            except ChainBroken:
                continue
            return denial
    return None


async def unproved_denials(store: Store, tenant_id: str, keys: Keys, key: str) -> int | None:
    """Return None if a stored denial of the operation with this key counts; else the number of its stored denials, of
    which none counts. Such a row stays, and the next denial gets the next place.

    Raises:
        Integrity: the journal of a run that such a row names does not verify.
    """
    for number in count():
        row = await DENIALS.one(store, denial_place(key, number))
        if row is None:
            return number
        try:
            entries = await read_proved(store, tenant_id, row.body.run_id, keys, answers=True)
        except ChainBroken as error:
            detail = f"whether `{key}` was denied is not known: {error}"
            raise Integrity(f"{detail}; nothing is sent: restore the run from a backup") from None
        valid_denials = [denial for denial in shown_denials(entries) if not denial.void]
        if await proving_denial(store, keys, entries, row, valid_denials):
            return None
    raise AssertionError("counting does not end")


async def denial_writes(store: Store, tenant_id: str, keys: Keys, key: str, said: Denial) -> list[Write]:
    """Build the write that keeps a denial of the operation with this key. Several runs can wait for an approval of the
    same operation: the first denial that counts is kept. Raises as `unproved_denials`.
    """
    unproved = await unproved_denials(store, tenant_id, keys, key)
    return [] if unproved is None else [DENIALS.write(denial_place(key, unproved), 0, said)]
