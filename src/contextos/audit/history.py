"""Checks rules of the entries of every run besides the chain: bodies by kind, authors, times, and the ids of answers.

A chain and its signed heads prove that nothing was altered since; the holder of the key for heads can still sign
entries that no run has. This module refuses such entries.
Source: docs/reference/export.md, "What the entries of a run keep".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from contextos.contracts.encoding.pointer import resolve_pointer
from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.entries.kinds import KINDS, LedgerHeads
from contextos.contracts.entries.reading import read_body
from contextos.contracts.entries.row import ANY_AUTHOR, BY_RUNTIME
from contextos.contracts.journal import DECISION, LEDGERS, Entry, StoredRun, genesis
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.contracts.statements.questions import question_disagreement
from contextos.errors import ChainBroken
from contextos.trust.approvals.signers import require_signers
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.entry_acts import refuse_unerased, require_acts
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed

_SAME_IDS: Final = ("tool_call_id", "capability_id")
"""The members in which the answer of a call equals the call that was dispatched."""


async def verify_stored_run(
    store: Store, tenant_id: str, run_id: str, stored: StoredRun, keys: Keys
) -> tuple[str, tuple[int, ...]]:
    """Check everything that proves the entries of a stored run, which must not be empty; return the hash of the last
    entry and the numbers of the erased entries.

    Raises:
        ChainBroken: names the first entry that is missing or differs; an entry without a body before anything else.
    """
    entries = stored.entries
    erased = await require_acts(store, entries, keys)
    await refuse_unerased(store, entries, keys)
    head = verify_chain(tenant_id, run_id, entries)
    verify_history(run_id, entries)
    verify_ledgers(run_id, entries)
    verify_indexed(run_id, entries, stored.lines)
    verify_heads(tenant_id, run_id, entries, stored.heads, keys)
    await require_signers(store, entries, keys)
    return head, erased


def verify_history(run_id: str, entries: Sequence[Entry]) -> None:
    """Check the verified entries of a run, from the first one on.

    Raises:
        ChainBroken: names the first entry of an unknown kind or with a body that does not fit its kind, with an author
            who does not write this kind, with a time before the time of the entry before it, with the answer of another
            call than was dispatched, or with a question that is not bound to its content and to the entries before it.
    """
    dispatched: dict[str, Any] = {}
    at_us, last_hash = 0, genesis(entries[0].tenant, run_id) if entries else ""
    for entry in entries:
        if entry.at_us < at_us:
            raise ChainBroken(run_id, entry.seq, "is earlier than the entry before it")
        at_us = entry.at_us
        if entry.body is not None and (fault := body_fault(run_id, entry.kind, entry.body)):
            raise ChainBroken(run_id, entry.seq, f"is nothing that a run holds: {fault}")
        body = read_body(entry)
        if not _may_write(entry, body):
            raise ChainBroken(run_id, entry.seq, f"is by `{entry.by[:64]}`, who writes no `{entry.kind}` here")
        if entry.kind == "tool.dispatching":
            dispatched[entry.key] = body and body["envelope"]
        if fault := _call_fault(entry, body, dispatched):
            raise ChainBroken(run_id, entry.seq, fault)
        # So the signature of the person who answers covers the whole run up to the question.
        if entry.kind == "approval.asked" and body:
            if body["binding"].get("nonce") != last_hash:
                raise ChainBroken(run_id, entry.seq, "is a question that is not bound to the entries before it")
            if fault := question_disagreement(body):
                raise ChainBroken(run_id, entry.seq, f"is a question that nobody can sign: {fault}")
        last_hash = last_hash if entry.kind == "run.resumed" else entry.hash


def verify_ledgers(run_id: str, entries: Sequence[Entry]) -> None:
    """Check that each record of a run indexes its three ledgers as they are, for the entries that `verify_history`
    checked. A replay needs no such check: it builds the record again and compares all of it.

    Raises:
        ChainBroken: a record leaves out a ledger or names another one than the entries before it make, an admitted run
            has no decision ledger, or a run ended without a record.
    """
    ledgers, recorded = LedgerHeads(), False
    for entry in entries:
        if entry.kind == "record.revised":
            recorded = True
            body = read_body(entry)
            if body and (fault := _ledger_fault(body, ledgers)):
                raise ChainBroken(run_id, entry.seq, fault)
        if entry.kind == "run.ended" and not recorded:
            raise ChainBroken(run_id, entry.seq, "ends a run that has no record of its ledgers")
        ledgers.add(entry)


def _ledger_fault(record: Any, ledgers: LedgerHeads) -> str | None:
    """Return why a record does not index the three ledgers of the entries before it, or None.

    A run that was admitted has entries in its context and in its decision ledger; it can have had no effect.
    """
    stated_ledgers, actual_ledgers = (record.get("lineage") or {}).get("ledgers") or {}, ledgers.as_json()
    if missing := [name for name in LEDGERS if name not in stated_ledgers]:
        return f"is a record without the {missing[0]} ledger of its run"
    if differing := [name for name in LEDGERS if stated_ledgers[name] != actual_ledgers[name]]:
        entries = stated_ledgers[differing[0]]["entries"], actual_ledgers[differing[0]]["entries"]
        return f"names another {differing[0]} ledger ({entries[0]} entries) than the run has before it ({entries[1]})"
    if record.get("agent_identity") and not actual_ledgers[DECISION]["entries"]:
        return "is the record of an admitted run whose decision ledger is missing"
    return None


def _may_write(entry: Entry, body: Any) -> bool:
    """Return whether the author of an entry can have written it. An erased body no longer says whose act it was."""
    author = KINDS[entry.kind].author
    if author == ANY_AUTHOR:
        return entry.by != ""
    if entry.kind == "run.cancel_requested" and entry.key.startswith("before/"):
        author = BY_RUNTIME
    if not author.startswith("/"):
        return entry.by == author
    return body is None or entry.by == resolve_pointer(body, author)


def _call_fault(entry: Entry, body: Any, dispatched: dict[str, Any]) -> str | None:
    """Return why the call or the answer in an entry is not of this run and this call, or None."""
    if entry.kind not in ("tool.dispatching", "tool.returned") or body is None:
        return None
    envelope = body["envelope"]
    if entry.kind == "tool.dispatching":
        return "holds a call of another run" if envelope["run_id"] != entry.run else None
    if entry.key not in dispatched:
        return "is the answer of a call that was not dispatched"
    call = dispatched[entry.key]
    differing = [name for name in _SAME_IDS if call and envelope.get(name) != call.get(name)]
    return f"has another `{differing[0]}` than the call that was dispatched" if differing else None
