"""Signed heads: at every barrier the runtime signs how long a run is and where its chain stands.

Source: shared/design/journal.md, "Heads are signed at every barrier before an effect".
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
"""What somebody outside the loop appends. A person's key vouches for an answer to an approval and for a settlement; a
wish to cancel can only stop things; that a slot was answered only wakes the run, which reads the pick from the audit.
"""


def head_payload(tenant: str, stream: str, seq: int, head: str) -> bytes:
    """What a signature of a head is over."""
    return f"{tenant}\n{stream}\n{seq}\n{head}".encode()


def is_signed(signed: SignedHead, tenant: str, stream: str, keys: Keys) -> bool:
    """Whether a key that may sign heads made this signature of this head."""
    seq, head, kid, signature = signed
    if not re.fullmatch(r"[0-9a-f]{128}", signature):
        return False
    return keys.verify("head", kid, head_payload(tenant, stream, seq, head), bytes.fromhex(signature))


def verify_heads(tenant: str, run: str, entries: Sequence[Entry], heads: Iterable[SignedHead], keys: Keys) -> None:
    """Every head that was signed is still there and is what was signed, and whatever the loop wrote stands under one.

    Without the runtime's key nobody can put words into the loop's mouth, whatever they may write in the store.

    Raises:
        ChainBroken: naming the first entry that is missing, changed, or stands under no signed head.
    """
    signed = 0
    for seq, head, kid, signature in heads:
        if not 1 <= seq <= len(entries):
            raise ChainBroken(run, len(entries) + 1, f"is missing: a head was signed at entry {seq}")
        if entries[seq - 1].hash != head:
            raise ChainBroken(run, seq, "is not what was signed")
        if not is_signed((seq, head, kid, signature), tenant, run, keys):
            raise ChainBroken(run, seq, "has a signed head whose signature does not verify")
        signed = seq
    for entry in entries[signed:]:
        # Only what people say is appended unsigned; the next commit of the loop signs over it.
        if entry.kind not in UNSIGNED_KINDS:
            raise ChainBroken(run, entry.seq, "stands under no signed head")


async def read_signed(store: Store, stream: str) -> tuple[tuple[Entry, ...], Sequence[SignedHead]]:
    """A stream and its signed heads as of one moment; between two reads a driver may write.

    Raises:
        Unavailable: it was written to all the time.
    """
    heads = await store.signed_heads(stream)
    for _ in range(MAX_READS):
        entries = tuple(await store.read(stream))
        before, heads = heads, await store.signed_heads(stream)
        if len(before) == len(heads):
            return entries, heads
    raise Unavailable("store", f"`{stream}` is written to faster than it can be read")
