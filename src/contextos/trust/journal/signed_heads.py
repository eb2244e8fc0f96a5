"""Signed heads: before every effect the runtime signs the length of a run's journal and the hash of its last entry.

A process that can write to the store but has no signing key therefore cannot add, change or remove what the loop wrote.
Source: docs/design/journal.md, "Signed heads".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.bodies import INDEX_BODIES, body_fault
from contextos.contracts.entries.kinds import UNSIGNED_KINDS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import INDEX, Draft, Entry, SignedHead, body_digest
from contextos.contracts.ports.outside import Entropy, Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, Integrity
from contextos.trust.journal.chain import verify_once

_RECORD_PREFIXES: Final = {
    "approval.answered": "approval",
    "approval.reasked": "approval",
    "slot.answered": "slot",
    "effect.settled": "uncertain",
}
"""By the kind of an answer: the first part of the key of the deferred record (`record.revised`) that asks for it."""
_WAIT_REASONS: Final = {"approval": "approval", "slot": "slot", "uncertain": "settlement"}
"""By the first part of the key of a deferred record: what its run waits for."""
_INDEX_KINDS: Final = {"tool.dispatching": "run.dispatched", "record.revised": "run.waiting", "run.ended": "run.closed"}
"""By the kind of the last entry of a commit: the kind of the index entry that states how far the run is."""
_KINDS_WITH_HEAD: Final = frozenset(INDEX_BODIES) - {"run.indexed"}
"""The kinds of index entries that state how many entries a run has, and the hash of the last one."""


def head_payload(tenant: str, stream: str, seq: int, head: str) -> bytes:
    """Return the bytes that are signed for a stream: its length `seq`, and `head`, the hash of its last entry."""
    return f"{tenant}\n{stream}\n{seq}\n{head}".encode()


def signed_head(keys: Keys, last: Entry) -> tuple[str, str]:
    """Sign the length and last hash of a run that ends with the entry `last`; return (key id, signature in hex)."""
    kid, signature = keys.sign("head", head_payload(last.tenant, last.run, last.seq, last.hash))
    return kid, signature.hex()


def is_signed(signed: SignedHead, tenant: str, stream: str, keys: Keys, *, at_us: int) -> bool:
    """Return whether a trusted key of the purpose `head` signed the length and last hash of a stream.

    `signed` is (length, last hash, key id, signature in hex). A key retired before `at_us` (Unix µs) does not count.
    """
    seq, last_hash, kid, signature = signed
    if not re.fullmatch(r"[0-9a-f]{128}", signature):
        return False
    return keys.verify("head", kid, head_payload(tenant, stream, seq, last_hash), bytes.fromhex(signature), at_us=at_us)


def verify_heads(tenant: str, run: str, entries: Sequence[Entry], heads: Iterable[SignedHead], keys: Keys) -> None:
    """Check the signed heads (length and last hash) of a run against its entries.

    Raises:
        ChainBroken: an entry is missing, changed or not covered by a signed head; names the first one.
    """
    covered_count = 0
    for seq, last_hash, kid, signature in heads:
        if not 1 <= seq <= len(entries):
            raise ChainBroken(run, len(entries) + 1, f"is missing: a head was signed at entry {seq}")
        if entries[seq - 1].hash != last_hash:
            raise ChainBroken(run, seq, "differs from the one that was signed")
        if not is_signed((seq, last_hash, kid, signature), tenant, run, keys, at_us=entries[seq - 1].at_us):
            raise ChainBroken(run, seq, "has a signed head whose signature does not verify, or whose key was retired")
        covered_count = seq
    for entry in entries[covered_count:]:
        # The next commit of the loop signs over what people appended.
        if not is_unsigned(entry):
            raise ChainBroken(run, entry.seq, "is covered by no signed head")


def is_unsigned(entry: Entry) -> bool:
    """Return whether an entry needs no signed head, because the key of the person who appended it or a sealed act
    proves the entry. An answer by login needs a signed head: only the runtime that verified the login vouches for it.
    """
    if entry.kind != "approval.answered":
        return entry.kind in UNSIGNED_KINDS
    try:
        return bool(read_body(entry)["assertion"]["kind"] != "oidc")
    except (Integrity, ValueError, LookupError, TypeError):
        # The entry was erased or is not an answer. The code that uses the answer finds that.
        return True


def void_fault(entry: Entry, kinds: Sequence[str], key: str) -> str | None:
    """Return why an appended entry does not answer a run that waits for `key` with one of `kinds`.

    None for an entry that fits, for an erased entry, and for an entry of a kind that only a driver can append.
    """
    if entry.kind not in UNSIGNED_KINDS or entry.body is None:
        return None
    if entry.kind not in kinds or (entry.kind in _RECORD_PREFIXES and entry.key != key):
        return f"somebody appended `{entry.kind}` of `{entry.key[:64]}`, which does not answer it"
    fault = body_fault(entry.run, entry.kind, entry.body)
    return f"somebody appended a malformed `{entry.kind}`: {fault}" if fault else None


def verify_answers(run: str, entries: Sequence[Entry]) -> None:
    """Check that every answer of a person in a run is well formed, and that the run waited for it.

    Raises:
        ChainBroken: an entry is malformed, or does not follow the question that it answers.
    """
    record_key = ""
    for entry in entries:
        record_prefix = _RECORD_PREFIXES.get(entry.kind)
        is_awaited = record_prefix is None or record_key == f"{record_prefix}/{entry.key}"
        if fault := void_fault(entry, (entry.kind,) if is_awaited else (), entry.key):
            raise ChainBroken(run, entry.seq, f"is not an answer: {fault}; the run takes it as void")
        if entry.kind != "run.resumed":
            record_key = entry.key if entry.kind == "record.revised" else ""


def index_lines(pending: Sequence[Entry], entropy: Entropy) -> tuple[tuple[str, Draft], ...]:
    """Return the entries that the commit of `pending` adds to the tenant's index: the run began, sends a call, waits
    for a person, or ended. All but `run.indexed` state the length and last hash of the run.

    So a run whose entries from a call on are removed contradicts the index, whose head is witnessed outside the store.
    """
    if not pending:
        return ()
    last, index_entries = pending[-1], list[tuple[str, dict[str, Any]]]()
    if pending[0].seq == 1:
        index_entries.append(("run.indexed", {"run": last.run}))
    index_kind = _INDEX_KINDS.get(last.kind)
    waits_for = _WAIT_REASONS.get(last.key.partition("/")[0]) if index_kind == "run.waiting" else ""
    if index_kind and waits_for is not None:
        position = {"run": last.run, "entries": last.seq, "head": last.hash}
        index_entries.append((index_kind, {**position, "for": waits_for} if waits_for else position))
    fields = (last.run, last.at_us, "runtime")
    return tuple([(INDEX, Draft(kind, *fields, canonical(body), entropy.take(16))) for kind, body in index_entries])


def answered_line(answer: Entry, entropy: Entropy) -> tuple[str, Draft]:
    """Return the entry of the tenant's index about an answer or settlement that a person appended to a run."""
    position = {"run": answer.run, "entries": answer.seq, "head": answer.hash}
    return INDEX, Draft(answer.kind, answer.run, answer.at_us, "runtime", canonical(position), entropy.take(16))


def verify_indexed(run: str, entries: Sequence[Entry], lines: Sequence[Entry]) -> None:
    """Check that a run has every entry that the index states, and that the run ends where the index closes it.

    `lines` are the index entries about this run, none newer than `entries`. A `run.reopened` among them cancels the
    `run.closed` before it.

    Raises:
        ChainBroken: an entry is missing, surplus or differs, or an index entry about this run has no readable body.
    """
    closed_length = _closed_length(run, entries, lines)
    if closed_length and (len(entries) > closed_length or entries[-1].kind != "run.ended"):
        raise ChainBroken(run, closed_length + 1, f"is surplus: the index closed the run at {closed_length} entries")


def _closed_length(run: str, entries: Sequence[Entry], index_entries: Iterable[Entry]) -> int:
    """Return the number of entries at which the index closes the run, or 0. Each index entry must match the run."""
    closed_length = 0
    for entry in index_entries:
        if entry.kind not in _KINDS_WITH_HEAD:
            continue
        if entry.body is None or entry.salt is None or body_digest(entry.salt, entry.body) != entry.body_digest:
            raise ChainBroken(INDEX, entry.seq, "has no body that its digest covers")
        statement = read_body(entry)
        entry_count = statement["entries"]
        if len(entries) < entry_count:
            raise ChainBroken(run, len(entries) + 1, f"is missing: the index states {entry_count} entries")
        if entries[entry_count - 1].hash != statement["head"]:
            raise ChainBroken(run, entry_count, "is not the one that the index states")
        if entry.kind == "run.closed":
            closed_length = entry_count
        elif entry.kind == "run.reopened":
            closed_length = 0
    return closed_length


async def read_proved(
    store: Store, tenant_id: str, run_id: str, keys: Keys, *, answers: bool = False
) -> tuple[Entry, ...]:
    """Read and verify a run up to its last signed head; return these entries, or () if no head was signed. With
    `answers` also return the entries after this head, which no head proves.

    Raises:
        ChainBroken: an entry is missing or differs.
    """
    stored = await store.read_run(run_id)
    if not stored.heads:
        return ()
    verify_indexed(run_id, stored.entries, stored.lines)
    verify_once(tenant_id, run_id, stored.entries)
    verify_heads(tenant_id, run_id, stored.entries, stored.heads[-1:], keys)
    return stored.entries if answers else stored.entries[: stored.heads[-1][0]]
