"""The effects that history buckets count, as a chain with a signed end: which of them are believed, and the next one.

Each row states its number and the end of its bucket before it, and the runtime signs the current end of the bucket. So
a row that is missing, moved, made up or altered is found where the bucket is added up, with one check of a signature.
`verify` compares a bucket with the runs, and so finds a bucket that was put back to an older state as a whole.
Source: docs/adr/0061-a-sum-is-read-from-a-signed-chain.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import (
    COUNTED_EFFECTS,
    HISTORY_BUCKETS,
    BucketEnd,
    CountedEffect,
    HistoryBucket,
    counted_key,
)
from contextos.contracts.journal import Write
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import Integrity, Unavailable
from contextos.trust.journal.signed_heads import head_payload, is_signed
from contextos.trust.rows.memories import MAX_READS


class SignedCounter:
    """The port `EffectCounter` over one tenant's documents."""

    def __init__(self, store: Store, tenant_id: str, keys: Keys) -> None:
        self._store, self._tenant, self._keys = store, tenant_id, keys

    async def read(self, bucket: str, since_us: int, *, limit: int) -> tuple[BucketEnd, Sequence[CountedEffect] | None]:
        for _ in range(MAX_READS):
            stored = await HISTORY_BUCKETS.one(self._store, bucket)
            # Without an end there must be no effect at all.
            rows = await self._rows(bucket, since_us if stored else 0, limit=limit)
            fault = self.end_fault(bucket, stored) or (None if rows is None else _fault(bucket, stored, rows, since_us))
            if fault is None:
                end = stored.body.end if stored else BucketEnd()
                return end, None if rows is None else [row.body for row in rows]
            if await HISTORY_BUCKETS.one(self._store, bucket) == stored:
                detail = f"the history bucket `{bucket[:160]}` {fault}; nothing is sent: "
                raise Integrity(detail + "find out who wrote it, and restore the documents from a backup")
        raise Unavailable("store", "effects are counted faster than they can be read")

    def count(
        self, bucket: str, end: BucketEnd, operation: str, at_us: int, numbers: Mapping[str, int | float]
    ) -> tuple[Write, ...]:
        # The time in a bucket never goes back, so the effects of a window are the last effects of the chain.
        effect = CountedEffect(operation, max(at_us, end.at_us), dict(numbers), end.number + 1, end)
        new_end = effect.end()
        kid, signature = self._keys.sign("head", self._end_payload(bucket, new_end))
        return (
            HISTORY_BUCKETS.write(bucket, end.number, HistoryBucket(new_end, kid, signature.hex())),
            COUNTED_EFFECTS.write(counted_key(bucket, effect), 0, effect),
        )

    def end_fault(self, bucket: str, stored: StoredDocument[HistoryBucket] | None) -> str | None:
        """Return why the stored end of a bucket is not believed, or None."""
        if stored is None:
            return None
        end = stored.body.end
        signed = (end.number, end.digest, stored.body.kid, stored.body.signature)
        if stored.version == end.number and is_signed(
            signed, self._tenant, _stream_name(bucket), self._keys, at_us=end.at_us
        ):
            return None
        return "does not end where the runtime signed that it ends"

    def _end_payload(self, bucket: str, end: BucketEnd) -> bytes:
        return head_payload(self._tenant, _stream_name(bucket), end.number, end.digest)

    async def _rows(self, bucket: str, since_us: int, *, limit: int) -> Sequence[StoredDocument[CountedEffect]] | None:
        rows = list[StoredDocument[CountedEffect]]()
        after = f"{bucket}/{since_us:020d}"
        while page := await COUNTED_EFFECTS.page(self._store, prefix=f"{bucket}/", after=after):
            rows += page
            after = page[-1].key
            if len(rows) > limit:
                return None
        return rows


def _fault(
    bucket: str,
    stored: StoredDocument[HistoryBucket] | None,
    rows: Sequence[StoredDocument[CountedEffect]],
    since_us: int,
) -> str | None:
    """Return why these rows are not the effects of a bucket since `since_us`, or None."""
    end = stored.body.end if stored else BucketEnd()
    for row in reversed(rows):
        if row.key != counted_key(bucket, row.body) or row.body.end() != end:
            return f"has not the effect {end.number} that its signed end states, or one more: `{row.key[-33:]}`"
        end = row.body.before
    return f"lacks the effect {end.number}" if end.number and end.at_us >= since_us else None


def _stream_name(bucket: str) -> str:
    return f"{HISTORY_BUCKETS.name}/{bucket}"
