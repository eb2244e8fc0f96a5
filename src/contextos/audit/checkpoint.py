"""The checkpoint of a verification: which lines of a tenant's index, and which runs, were verified, and by when.

The runtime signs it with a key of its own purpose. It is a file of the operator and never in the store: a process that
can rewrite the database must not be able to state what is verified already.
Source: docs/auditing.md, "Large stores"; docs/adr/0029-what-was-verified-is-signed-and-kept-outside.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import orjson
from pydantic import Strict

from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.ids import RUN
from contextos.contracts.journal import CONTROL, INDEX
from contextos.contracts.model import Count, ListOnly, Model, Name, Positive
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, InvalidInput, Problem, SignatureInvalid
from contextos.trust.seal import open_sealed, seal

CHECKPOINT_TYPE: Final = "application/vnd.contextos.checkpoint+json"
CHECKPOINT_VERSION: Final = 1
MAX_CHECKPOINT_BYTES: Final = 64 << 20
MAX_CHECKPOINT_NODES: Final = 4_000_000

WHOLE_REMEDY: Final = "verify without it, and write a new one"


class OpenRun(Model):
    """A run that had not ended, or whose end the covered lines do not state: its number, how many entries it had, and
    the hash of the last one.
    """

    run: Annotated[str, RUN]
    number: Positive
    entries: Positive
    head: Name


class Checkpoint(Model):
    """The lines `first` to `last` of a tenant's index, and every run whose first line is among them, verified.

    `before` is the hash that line `first` continues, and `head` the hash of line `last`. `runs` is the number of runs.
    Each was read and verified between `begun_at_us` and `at_us` (Unix microseconds). Runs not in `open` had ended.
    Erasures are taken into account up to entry `control` of the stream `control`, whose hash is `control_head`.
    `compared`: every run that was driven, and every run in the audit of slots, was found in the index.
    """

    v: Positive
    tenant_id: Name
    runtime: Name
    begun_at_us: Count
    at_us: Count
    first: Positive
    before: Name
    last: Count
    head: Name
    control: Count
    control_head: Name
    compared: bool
    runs: Count
    open: Annotated[tuple[OpenRun, ...], Strict(False), ListOnly()]


def seal_checkpoint(checkpoint: Checkpoint, keys: Keys) -> bytes:
    """Return the bytes of a checkpoint file.

    Raises:
        InvalidSettings: there is no key to sign with.
        InvalidInput: so many runs are open that the file could not be read again.
    """
    raw = canonical(seal(CHECKPOINT_TYPE, canonical(checkpoint.to_json()), keys, "checkpoint")) + b"\n"
    if len(raw) > MAX_CHECKPOINT_BYTES:
        detail = f"{len(checkpoint.open)} runs are open, which is too many for one checkpoint"
        raise _refusal("too_large", detail, "write one for each of several ranges")
    return raw


def read_checkpoint(raw: bytes, tenant_id: str, keys: Keys) -> Checkpoint:
    """Return the checkpoint in the bytes of a file. It counts only if the runtime signed it for this tenant.

    Raises:
        InvalidInput: the file is not a checkpoint, is of another tenant, or of a version unknown to this runtime.
        SignatureInvalid: the file was altered, or made without the key.
    """
    envelope = _envelope(raw)
    if envelope is None:
        raise _refusal("not_a_checkpoint", "this is not a checkpoint", "name a file that `--checkpoint` wrote")
    try:
        payload = open_sealed(envelope, keys, "checkpoint", {CHECKPOINT_TYPE})
        version = orjson.loads(payload).get("v")
        if version != CHECKPOINT_VERSION:
            detail = f"the checkpoint has version {str(version)[:20]}, and this runtime knows {CHECKPOINT_VERSION}"
            raise _refusal("unknown_version", detail, WHOLE_REMEDY)
        checkpoint = parse(Checkpoint, payload, max_bytes=MAX_CHECKPOINT_BYTES, max_nodes=MAX_CHECKPOINT_NODES)
        open_sealed(envelope, keys, "checkpoint", {CHECKPOINT_TYPE}, at_us=checkpoint.at_us)
    except SignatureInvalid:
        detail = "this checkpoint was altered, or no key that counted at its time signed it"
        raise SignatureInvalid(f"{detail}; {WHOLE_REMEDY}") from None
    if checkpoint.tenant_id != tenant_id:
        detail = f"the checkpoint is of the tenant `{checkpoint.tenant_id[:64]}`, not of `{tenant_id[:64]}`"
        raise _refusal("other_tenant", detail, "name the file of this tenant")
    return checkpoint


def is_checkpoint(raw: bytes) -> bool:
    """Return whether the bytes of a file have the form of a checkpoint. Nothing is verified."""
    return _envelope(raw) is not None


def joined(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """Join checkpoints, each of which begins where another ends, into one. Returns None if there are none.

    Raises:
        InvalidInput: there is a gap between two of them, or they overlap.
        ChainBroken: two of them are about different indexes.
    """
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.first)
    union = ordered[0] if ordered else None
    for other in ordered[1:]:
        assert union is not None
        if other.first != union.last + 1:
            detail = f"one checkpoint ends at line {union.last} of the index, and the next begins at line {other.first}"
            raise _refusal("not_adjacent", detail, "name checkpoints of adjacent ranges")
        if other.before != union.head:
            raise ChainBroken(INDEX, union.last, "is not the same in two checkpoints: the index was rewritten between")
        earlier = min(union, other, key=lambda candidate: candidate.control)
        union = other.model_copy(
            update={
                "begun_at_us": min(union.begun_at_us, other.begun_at_us),
                "at_us": max(union.at_us, other.at_us),
                "first": union.first,
                "before": union.before,
                "control": earlier.control,
                "control_head": earlier.control_head,
                "compared": union.compared or other.compared,
                "runs": union.runs + other.runs,
                "open": union.open + other.open,
            }
        )
    return union


async def require_stored(store: Store, checkpoint: Checkpoint) -> None:
    """Check that the store still has the lines at which a checkpoint ends.

    Raises:
        ChainBroken: the store is behind the checkpoint, or is another store.
    """
    verified_at = utc(checkpoint.at_us)
    for stream, seq, head in (
        (INDEX, checkpoint.last, checkpoint.head),
        (CONTROL, checkpoint.control, checkpoint.control_head),
    ):
        page = await store.read(stream, after=seq - 1, limit=1) if seq else ()
        if seq and (not page or page[0].seq != seq):
            detail = f"is missing: it was there at {verified_at}, so the store was cut or restored, or is another one"
            raise ChainBroken(stream, seq, f"{detail}; find out which, then {WHOLE_REMEDY}")
        if page and page[0].hash != head:
            detail = f"is not what it was at {verified_at}: the store was rewritten, or is another one"
            raise ChainBroken(stream, seq, f"{detail}; find out which, then {WHOLE_REMEDY}")


def utc(at_us: int) -> str:
    """Return a time (Unix microseconds) as text, to the second.

    >>> utc(1_793_000_000_000_000)
    '2026-10-26T07:33:20+00:00'
    """
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")


def _envelope(raw: bytes) -> dict[str, Any] | None:
    try:
        envelope = loads(raw, max_bytes=MAX_CHECKPOINT_BYTES)
    except InvalidInput:
        return None
    fits = isinstance(envelope, dict) and envelope.get("payloadType") == CHECKPOINT_TYPE
    return envelope if fits else None


def _refusal(code: str, detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem("", code, detail, remedy))
