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

_AWAITED: Final = {
    "approval.answered": "approval",
    "approval.reasked": "approval",
    "slot.answered": "slot",
    "effect.settled": "uncertain",
}
"""By the kind of an answer: the first part of the key of the deferred record that it follows."""
_WAITS_FOR: Final = {"approval": "approval", "slot": "slot", "uncertain": "settlement"}
"""By the first part of the key of a deferred record: what its run waits for."""
_REACHES: Final = {"tool.dispatching": "run.dispatched", "record.revised": "run.waiting", "run.ended": "run.closed"}
"""By the kind of the last entry of a commit: the line of the index that states how far the run is."""
_STATES_HEAD: Final = frozenset(INDEX_BODIES) - {"run.indexed"}
"""The kinds of the index that state how many entries a run has, and the hash of the last one."""


def head_payload(tenant: str, stream: str, seq: int, head: str) -> bytes:
    """Return the bytes that are signed for a head: stream, length and hash of its last entry."""
    return f"{tenant}\n{stream}\n{seq}\n{head}".encode()


def signed_head(keys: Keys, last: Entry) -> tuple[str, str]:
    """Return the signature (key id, hex) of the head of a run that ends with the entry `last`."""
    kid, signature = keys.sign("head", head_payload(last.tenant, last.run, last.seq, last.hash))
    return kid, signature.hex()


def is_signed(signed: SignedHead, tenant: str, stream: str, keys: Keys, *, at_us: int) -> bool:
    """Return whether a trusted key of the purpose `head` made this signature over the length and last hash of a
    stream. A key that was retired before `at_us` (Unix microseconds) does not count.
    """
    seq, head, kid, signature = signed
    if not re.fullmatch(r"[0-9a-f]{128}", signature):
        return False
    return keys.verify("head", kid, head_payload(tenant, stream, seq, head), bytes.fromhex(signature), at_us=at_us)


def verify_heads(tenant: str, run: str, entries: Sequence[Entry], heads: Iterable[SignedHead], keys: Keys) -> None:
    """Check the signed heads (length and last hash) of a run against its entries.

    Raises:
        ChainBroken: an entry is missing, changed or not covered by a signed head; names the first one.
    """
    signed = 0
    for seq, head, kid, signature in heads:
        if not 1 <= seq <= len(entries):
            raise ChainBroken(run, len(entries) + 1, f"is missing: a head was signed at entry {seq}")
        if entries[seq - 1].hash != head:
            raise ChainBroken(run, seq, "differs from the one that was signed")
        if not is_signed((seq, head, kid, signature), tenant, run, keys, at_us=entries[seq - 1].at_us):
            raise ChainBroken(run, seq, "has a signed head whose signature does not verify, or whose key was retired")
        signed = seq
    for entry in entries[signed:]:
        # The next commit of the loop signs over what people appended.
        if not is_unsigned(entry):
            raise ChainBroken(run, entry.seq, "is covered by no signed head")


def is_unsigned(entry: Entry) -> bool:
    """Return whether an entry needs no signed head: a person appended it, and a key of their own or a sealed act proves
    it. A login is proved by nothing but the runtime that verified it, so it needs one.
    """
    if entry.kind != "approval.answered":
        return entry.kind in UNSIGNED_KINDS
    try:
        return bool(read_body(entry)["assertion"]["kind"] != "oidc")
    except (Integrity, ValueError, LookupError, TypeError):
        # It was erased or is no answer, which is found where it is used.
        return True


def void_fault(entry: Entry, kinds: Sequence[str], key: str) -> str | None:
    """Return why an entry that any process with store access could append does not answer a run that waits for `key`
    with one of `kinds`; None for one that fits, and for one that only a driver can append.
    """
    if entry.kind not in UNSIGNED_KINDS or entry.body is None:
        return None
    if entry.kind not in kinds or (entry.kind in _AWAITED and entry.key != key):
        return f"somebody appended `{entry.kind}` of `{entry.key[:64]}`, which does not answer it"
    fault = body_fault(entry.run, entry.kind, entry.body)
    return f"somebody appended a malformed `{entry.kind}`: {fault}" if fault else None


def verify_answers(run: str, entries: Sequence[Entry]) -> None:
    """Check that every answer of a person in a run is well formed, and that the run waited for it.

    Raises:
        ChainBroken: an entry is malformed, or follows no question that it answers.
    """
    asked = ""
    for entry in entries:
        of = _AWAITED.get(entry.kind)
        waits = of is None or asked == f"{of}/{entry.key}"
        if fault := void_fault(entry, (entry.kind,) if waits else (), entry.key):
            raise ChainBroken(run, entry.seq, f"is no answer: {fault}; the run takes it as void")
        if entry.kind != "run.resumed":
            asked = entry.key if entry.kind == "record.revised" else ""


def index_lines(pending: Sequence[Entry], entropy: Entropy) -> tuple[tuple[str, Draft], ...]:
    """Return the entries that the commit of `pending` adds to the tenant's index: a run began, sends a call, waits for
    a person, or ended at this head.

    So a run that is cut behind its head before a call contradicts the index, and with it the witness.
    """
    if not pending:
        return ()
    last, lines = pending[-1], list[tuple[str, dict[str, Any]]]()
    if pending[0].seq == 1:
        lines.append(("run.indexed", {"run": last.run}))
    line = _REACHES.get(last.kind)
    waits_for = _WAITS_FOR.get(last.key.partition("/")[0]) if line == "run.waiting" else ""
    if line and waits_for is not None:
        reached = {"run": last.run, "entries": last.seq, "head": last.hash}
        lines.append((line, {**reached, "for": waits_for} if waits_for else reached))
    made = (last.run, last.at_us, "runtime")
    return tuple([(INDEX, Draft(kind, *made, canonical(body), entropy.take(16))) for kind, body in lines])


def answered_line(answer: Entry, entropy: Entropy) -> tuple[str, Draft]:
    """Return the entry of the tenant's index about what a person appended to a run: an answer or a settlement."""
    reached = {"run": answer.run, "entries": answer.seq, "head": answer.hash}
    return INDEX, Draft(answer.kind, answer.run, answer.at_us, "runtime", canonical(reached), entropy.take(16))


def verify_indexed(run: str, entries: Sequence[Entry], lines: Sequence[Entry]) -> None:
    """Check that the run has every entry that a line of the index states, and that it ends where the index closes it.

    A line `run.reopened` behind a closing line says that the run goes on. `lines` are those about the run, not newer
    than its entries.

    Raises:
        ChainBroken: an entry is missing or differs, or a line about this run has no readable body.
    """
    closed_at = _closed_at(run, entries, lines)
    if closed_at and (len(entries) > closed_at or entries[-1].kind != "run.ended"):
        raise ChainBroken(run, closed_at + 1, f"is surplus: the index closed the run at {closed_at} entries")


def _closed_at(run: str, entries: Sequence[Entry], lines: Iterable[Entry]) -> int:
    """Return the number of entries at which the index closes the run, or 0. Each line must match the run's entries."""
    closed_at = 0
    for line in lines:
        if line.kind not in _STATES_HEAD:
            continue
        if line.body is None or line.salt is None or body_digest(line.salt, line.body) != line.body_digest:
            raise ChainBroken(INDEX, line.seq, "has no body that its digest covers")
        said = read_body(line)
        stated = said["entries"]
        if len(entries) < stated:
            raise ChainBroken(run, len(entries) + 1, f"is missing: the index states {stated} entries")
        if entries[stated - 1].hash != said["head"]:
            raise ChainBroken(run, stated, "is not the one that the index states")
        if line.kind == "run.closed":
            closed_at = stated
        elif line.kind == "run.reopened":
            closed_at = 0
    return closed_at


async def read_proved(
    store: Store, tenant_id: str, run_id: str, keys: Keys, *, answers: bool = False
) -> tuple[Entry, ...]:
    """Read and verify a run up to its last signed head; return these entries, or () if no head was signed. With
    `answers` also return the entries that were appended after it, which no head proves.

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
