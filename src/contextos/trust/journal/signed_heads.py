"""Signed heads: before every effect the runtime signs the length of a run's journal and the hash of its last entry.

A process that can write to the store but has no signing key therefore cannot add, change or remove what the loop wrote.
Source: docs/design/journal.md, "Signed heads".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from contextos.contracts.journal import Entry, SignedHead
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, Unavailable

MAX_READS: Final = 8
UNSIGNED_KINDS: Final = frozenset({"approval.answered", "run.cancel_requested", "effect.settled", "slot.answered"})
"""Entries that are appended outside the loop, until the loop's next commit signs over them. Approval answers and
settlements are signed by a person's key, a cancel request can only stop a run, and `slot.answered` only wakes the run,
which reads the answer from the audit stream.
"""


def head_payload(tenant: str, stream: str, seq: int, head: str) -> bytes:
    """Return the bytes that a signature of a head is made over."""
    return f"{tenant}\n{stream}\n{seq}\n{head}".encode()


def is_signed(signed: SignedHead, tenant: str, stream: str, keys: Keys) -> bool:
    """Return whether a key that is trusted for `head` made this signature of this head."""
    seq, head, kid, signature = signed
    if not re.fullmatch(r"[0-9a-f]{128}", signature):
        return False
    return keys.verify("head", kid, head_payload(tenant, stream, seq, head), bytes.fromhex(signature))


def verify_heads(tenant: str, run: str, entries: Sequence[Entry], heads: Iterable[SignedHead], keys: Keys) -> None:
    """Check that every signed head matches the entries, and that a signed head covers every entry the loop wrote.

    Raises:
        ChainBroken: an entry is missing, changed or not covered by a signed head; names the first one.
    """
    signed = 0
    for seq, head, kid, signature in heads:
        if not 1 <= seq <= len(entries):
            raise ChainBroken(run, len(entries) + 1, f"is missing: a head was signed at entry {seq}")
        if entries[seq - 1].hash != head:
            raise ChainBroken(run, seq, "differs from the one that was signed")
        if not is_signed((seq, head, kid, signature), tenant, run, keys):
            raise ChainBroken(run, seq, "has a signed head whose signature does not verify")
        signed = seq
    for entry in entries[signed:]:
        # The next commit of the loop signs over what people appended.
        if entry.kind not in UNSIGNED_KINDS:
            raise ChainBroken(run, entry.seq, "is covered by no signed head")


async def read_signed(store: Store, stream: str) -> tuple[tuple[Entry, ...], Sequence[SignedHead]]:
    """Read a stream and its signed heads as of one moment, although a driver can write between two reads.

    Raises:
        Unavailable: the stream changed during each of `MAX_READS` reads.
    """
    heads = await store.signed_heads(stream)
    for _ in range(MAX_READS):
        entries = tuple(await store.read(stream))
        before, heads = heads, await store.signed_heads(stream)
        if len(before) == len(heads):
            return entries, heads
    raise Unavailable("store", f"`{stream}` is written to faster than it can be read")
