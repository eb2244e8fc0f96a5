"""Publish signed heads (length and last hash of a stream) to a witness that the store's owner cannot rewrite.

The streams `index` and `control` are hash chains, but nobody except the store holds their heads. So the store's owner
can cut them, and a run with them, and the rest still verifies. A witness shows such a cut; without one it cannot be
proved.

A restore is a cut that an operator records (`deployment.restore`). After it, heads are published under the stream's
name with the number of the restore (`index@1`), and the first of them states how many entries the restore kept.
Entries that were witnessed before and come after these are counted as gone; all others must be unchanged. Only the
runtime's key can begin a new number, so the store's owner cannot present a cut as a restore.
Source: docs/design/journal.md, "Streams of a tenant"; docs/design/architecture.md, "Tenancy".
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS, PUBLISHED_HEADS, PublishedHeads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, INDEX, SALT_BYTES, Batch, Draft, Entry, WitnessedHead, genesis
from contextos.contracts.ports.outside import Clock, Entropy, Keys, Witness
from contextos.contracts.ports.storage import Store, Stores
from contextos.deployment.lru import keep_recent
from contextos.errors import ChainBroken, Conflict, Integrity, Unavailable
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.signed_heads import head_payload, is_signed

STREAMS: Final = (INDEX, CONTROL)
MAX_KNOWN_TENANTS: Final = 16_384
"""Cache size in tenants (about 2 kB each). The heads of a tenant that is not cached are read from the witness again."""
MAX_PLACE_CHARS: Final = 180
_STREAM_NAME: Final = re.compile(r"(index|control)(?:@([1-9][0-9]{0,8}))?")


class Restoration(NamedTuple):
    """One restore of one stream: the backup had `kept` of the `witnessed` entries; `gone` entries were lost."""

    number: int
    stream: str
    kept: int
    witnessed: int
    at_us: int

    @property
    def gone(self) -> int:
        return max(self.witnessed - self.kept, 0)


@dataclass(slots=True)
class KnownHeads:
    """The latest head (length and last hash) of each of a tenant's streams at the witness.

    `epoch` is the id of the store's epoch when the heads were read, or None before. `gave_up`: the witness did not
    answer when this process first asked about the tenant.
    """

    epoch: str | None = None
    gave_up: bool = False
    heads: dict[str, WitnessedHead] = field(default_factory=dict)

    def learn(self, head: WitnessedHead) -> None:
        """Keep the head if it is later than the known one. Two processes that publish at once can store their heads in
        any order.
        """
        before = self.heads.get(head.stream)
        if before is None or head.seq > before.seq:
            self.heads[head.stream] = head


@dataclass(slots=True)
class WitnessPublisher:
    """Publishes the heads (length and last hash, signed) of tenants' streams to a witness outside the database.

    `place` names the witness in the `control` entry that records its first use, and in the document of the heads that
    were published to it. Without `entropy` nothing is recorded, and a witness that was emptied or cut is taken for a
    whole one.
    """

    stores: Stores
    witness: Witness
    keys: Keys
    clock: Clock
    entropy: Entropy | None = None
    place: str = "witness"
    _known: OrderedDict[str, KnownHeads] = field(default_factory=OrderedDict)

    async def check(self, tenant_id: str) -> None:
        """Check that the store still holds the last witnessed entry of each stream of a tenant.

        Raises:
            Integrity: the entry is missing or differs, or the witness lacks heads that were published to it.
            Unavailable: the witness or the store did not answer.
        """
        await self._unpublished_heads(tenant_id, grow=False)

    async def check_once(self, tenant_id: str) -> None:
        """Do `check` before this process first uses a tenant; afterwards do nothing. If the witness does not answer, it
        is not asked again here, because a caller would wait for it: the next publication compares.
        """
        known = self._known_heads(tenant_id)
        if known.epoch is not None or known.gave_up:
            return
        try:
            await self.check(tenant_id)
        except Unavailable:
            known.gave_up = True
            raise

    async def publish(self, tenants: Iterable[str]) -> int:
        """Publish every journal head (length and last hash) that changed; return how many there were. Skips a tenant
        with missing entries.

        Raises:
            Integrity: a witnessed entry is missing or differs, or the witness holds a head that we did not sign.
            Unavailable: the witness or the store did not answer; publish again.

        Either error is raised after the heads of all other tenants were published. If both occurred, `Integrity` is
        raised.
        """
        new_heads: list[WitnessedHead] = []
        errors: list[Integrity | Unavailable] = []
        for tenant_id in tenants:
            try:
                new_heads += await self._unpublished_heads(tenant_id)
            except (Integrity, Unavailable) as error:
                errors.append(error)
        if new_heads:
            await self.witness.put(new_heads)
            for head in new_heads:
                self._known_heads(head.tenant).learn(head)
            for tenant_id in sorted({head.tenant for head in new_heads}):
                await self._record_heads(tenant_id, [head for head in new_heads if head.tenant == tenant_id])
        if errors:
            raise min(errors, key=lambda error: isinstance(error, Unavailable))
        return len(new_heads)

    async def witnessed_heads(self, tenant_id: str, *, since_us: int = 0) -> Sequence[WitnessedHead]:
        """Return a tenant's heads at the witness. With `since_us` (Unix microseconds) the witness can leave out older
        heads, except the last of each stream.

        Raises:
            Integrity: the store recorded later heads than the witness has now, or the witness has no heads although it
                had some.
            Unavailable: the witness or the store did not answer.
        """
        store = self.stores.tenant(tenant_id)
        # The store's records are read first: the witness can grow in between.
        begun_entries, published = await store.lines(CONTROL, self.place), await PUBLISHED_HEADS.one(store, self.place)
        heads = await self.witness.heads(tenant_id, since_us=since_us)
        if begun_entries and not heads:
            detail = (
                f"the witness `{self.place}` has no head of `{tenant_id}`, and it had some: it was emptied or moved"
            )
            raise Integrity(f"{detail}; bring it back, or record what is left with `contextos store restored`")
        for stream, last_seq in (published.body.last if published else {}).items():
            held_seq = max((head.seq for head in heads if head.stream == stream), default=0)
            if held_seq < last_seq:
                detail = f"the witness `{self.place}` ends at entry {held_seq} of `{stream}` of `{tenant_id}`"
                message = f"{detail}, and entry {last_seq} was published to it: its end was cut, or it is an older copy"
                raise Integrity(f"{message}; bring it back, or record what is left with `contextos store restored`")
        return heads

    async def _record_heads(self, tenant_id: str, heads: Sequence[WitnessedHead], *, restart: bool = False) -> None:
        """Record which heads the witness holds now, and once in `control` that it holds some. So a witness that was cut
        or emptied is found. `restart`: the witness is known to lack heads that were recorded before.
        """
        if self.entropy is None:
            return
        store, drafts = self.stores.tenant(tenant_id), list[tuple[str, Draft]]()
        if not await store.lines(CONTROL, self.place):
            body, salt = canonical({"witness": self.place}), self.entropy.take(SALT_BYTES)
            drafts = [(CONTROL, Draft("witness.begun", self.place, self.clock.now_us(), "runtime", body, salt))]
        stored = await PUBLISHED_HEADS.one(store, self.place)
        last = dict(stored.body.last) if stored and not restart else {}
        for head in heads:
            last[head.stream] = max(head.seq, last.get(head.stream, 0))
        write = PUBLISHED_HEADS.write(self.place, stored.version if stored else 0, PublishedHeads(last))
        # If two processes publish at once, the second leaves its heads to the next record.
        with suppress(Conflict):
            await store.commit(Batch(run=CONTROL, writes=(write,), shared=tuple(drafts)))

    async def restored_heads(self, tenant_id: str) -> list[WitnessedHead]:
        """Return signed heads (length and last hash) of a tenant's streams after a restore. The list is empty if the
        tenant never had witnessed heads.

        Raises:
            ChainBroken: the restored entries form no chain, or the witness holds a head that the runtime never signed.
            Unavailable: the witness or the store did not answer.
        """
        heads = await self.witness.heads(tenant_id)
        for head in heads:
            _check_signature(head, self.keys)
        number = 1 + max((_restore_number(head) for head in heads), default=0)
        if not heads and not await self.stores.tenant(tenant_id).lines(CONTROL, self.place):
            return []
        return [await self._restored_head(tenant_id, stream, number, heads) for stream in STREAMS]

    async def publish_restore(self, tenant_id: str, restored: Sequence[WitnessedHead]) -> list[Restoration]:
        """Publish the heads that `restored_heads` returned, and return what each stream lost. Raises `Unavailable`:
        call again.
        """
        if restored:
            await self.witness.put(restored)
            await self._record_heads(tenant_id, restored, restart=True)
            self._known_heads(tenant_id).epoch = None
        numbers = {_restore_number(head) for head in restored}
        return [item for item in restorations(await self.witness.heads(tenant_id)) if item.number in numbers]

    async def _restored_head(
        self, tenant_id: str, stream: str, number: int, heads: Sequence[WitnessedHead]
    ) -> WitnessedHead:
        """Return the signed head of a stream just before the first entry that contradicts the witness."""
        entries = await self.stores.tenant(tenant_id).read(stream)
        verify_chain(tenant_id, stream, entries)
        limits = _restore_limits(heads)
        contradicted = [
            head.seq
            for head in heads
            if _stream_and_number(head)[0] == stream
            and head.seq <= limits[head.stream]
            and head.seq
            and (head.seq > len(entries) or entries[head.seq - 1].hash != head.hash)
        ]
        kept = min([len(entries), *(seq - 1 for seq in contradicted)])
        return self._signed_head(tenant_id, f"{stream}@{number}", kept, _hash_at(tenant_id, stream, entries, kept))

    def _known_heads(self, tenant_id: str) -> KnownHeads:
        """Return the cached heads of a tenant. A full cache drops the least recently used tenant."""
        return keep_recent(self._known, tenant_id, KnownHeads(), MAX_KNOWN_TENANTS)

    async def _unpublished_heads(self, tenant_id: str, *, grow: bool = True) -> list[WitnessedHead]:
        """Check the heads that the witness has, and return those that it lacks; without `grow` only check."""
        store, known = self.stores.tenant(tenant_id), self._known_heads(tenant_id)
        stored = await EPOCHS.one(store, EPOCH_KEY)
        epoch = stored.body.id if stored else ""
        if known.epoch != epoch:
            return await self._reread_witness(store, tenant_id, known, epoch, grow=grow)
        try:
            return await self._heads_after(store, tenant_id, known, grow=grow)
        except ChainBroken as broken:
            # A restore can have been recorded in between; only the witness shows it.
            try:
                return await self._reread_witness(store, tenant_id, known, epoch, grow=grow)
            except Unavailable:
                raise broken from None

    async def _reread_witness(
        self, store: Store, tenant_id: str, known: KnownHeads, epoch: str, *, grow: bool
    ) -> list[WitnessedHead]:
        heads = await self.witnessed_heads(tenant_id)
        before = max(map(_restore_number, known.heads.values()), default=0)
        for head in heads:
            known.learn(head)
        new_heads = await self._heads_after(store, tenant_id, known, grow=grow)
        # An epoch is recorded before its heads are published; until they are, the witness is read each time.
        if known.epoch is None or not heads or max(map(_restore_number, heads)) > before:
            known.epoch = epoch
        return new_heads

    async def _heads_after(self, store: Store, tenant_id: str, known: KnownHeads, *, grow: bool) -> list[WitnessedHead]:
        names = {stream: stream for stream in STREAMS}
        for head in sorted(known.heads.values(), key=_restore_number):
            names[_stream_and_number(head)[0]] = head.stream
        if not grow:
            for head in (known.heads[name] for name in names.values() if name in known.heads):
                _check_signature(head, self.keys)
                await _check_stored(store, head)
            return []
        new_heads = [
            await self._grown_head(store, tenant_id, stream, name, known.heads.get(name))
            for stream, name in names.items()
        ]
        return [head for head in new_heads if head]

    async def _grown_head(
        self, store: Store, tenant_id: str, stream: str, name: str, witnessed: WitnessedHead | None
    ) -> WitnessedHead | None:
        if witnessed:
            _check_signature(witnessed, self.keys)
        if witnessed is None or witnessed.seq == 0:
            entries = await store.read(stream)
            verify_chain(tenant_id, stream, entries)
        else:
            entries = await store.read(stream, after=witnessed.seq - 1)
            _check_entry(witnessed, {entry.seq: entry for entry in entries[:1]})
            verify_chain(tenant_id, stream, entries[1:], after=entries[0])
        if not entries or (witnessed and entries[-1].seq <= witnessed.seq):
            return None
        return self._signed_head(tenant_id, name, entries[-1].seq, entries[-1].hash)

    def _signed_head(self, tenant_id: str, name: str, seq: int, head: str) -> WitnessedHead:
        kid, signature = self.keys.sign("head", head_payload(tenant_id, name, seq, head))
        return WitnessedHead(tenant_id, name, seq, head, kid, signature.hex(), self.clock.now_us())


def witness_place(named: str) -> str:
    """Return the name by which a journal records its witness: the end of its path, or its URL without credentials.

    >>> witness_place("https://name:password@sink.example/heads"), witness_place("/srv/heads.jsonl")
    ('sink.example/heads', '/srv/heads.jsonl')
    """
    parts = urlsplit(named) if named.startswith(("https://", "http://")) else None
    place = f"{parts.netloc.rpartition('@')[2]}{parts.path}" if parts else named
    return place.encode("utf-8", "replace").decode()[-MAX_PLACE_CHARS:]


async def verify_witnessed(store: Store, tenant_id: str, heads: Sequence[WitnessedHead], keys: Keys) -> None:
    """Compare a tenant's own streams (`index`, `control`) with the heads at the witness. Entries that a restore lost
    are left out. Only the entry of each head is read: the chain of its stream is verified elsewhere.

    Raises:
        ChainBroken: an entry is missing or differs, or the runtime never signed a head; the error names the first one.
    """
    for head in heads:
        if head.tenant != tenant_id or not _STREAM_NAME.fullmatch(head.stream):
            raise ChainBroken(head.stream[:64], head.seq, "was witnessed for another tenant or an unknown stream")
        _check_signature(head, keys)
    limits = _restore_limits(heads)
    for head in heads:
        if head.seq <= limits[head.stream]:
            await _check_stored(store, head)


def witnessed_lengths(heads: Iterable[WitnessedHead]) -> dict[str, int]:
    """Return, by stream, the number of the last entry that the witness has. Only heads after the last restore count."""
    lengths: dict[str, tuple[int, int]] = {}
    for head in heads:
        stream, number = _stream_and_number(head)
        lengths[stream] = max(lengths.get(stream, (0, 0)), (number, head.seq))
    return {stream: seq for stream, (_, seq) in lengths.items()}


def restorations(heads: Iterable[WitnessedHead], *, whole: bool = True) -> list[Restoration]:
    """Return the restores that these heads record, in order. Without `whole` the first heads can be missing, so a
    restore counts only if a head from before it is there.
    """
    by_stream: dict[str, dict[int, list[WitnessedHead]]] = {}
    for head in heads:
        stream, number = _stream_and_number(head)
        by_stream.setdefault(stream, {}).setdefault(number, []).append(head)
    restores: list[Restoration] = []
    for stream, by_number in by_stream.items():
        reached = 0
        for number, group in sorted(by_number.items()):
            first = min(group, key=lambda head: head.seq)
            if number and (whole or reached):
                restores.append(Restoration(number, stream, first.seq, reached, first.at_us))
            reached = max(head.seq for head in group)
    return sorted(restores)


def _restore_limits(heads: Sequence[WitnessedHead]) -> dict[str, int]:
    """Return, by stream name, the last entry that its heads must match: later restores kept all up to it."""
    kept_lengths: dict[tuple[str, int], int] = {}
    for head in heads:
        place = _stream_and_number(head)
        kept_lengths[place] = min(kept_lengths.get(place, head.seq), head.seq)
    return {
        head.stream: min(
            (
                kept
                for (stream, number), kept in kept_lengths.items()
                if stream == _stream_and_number(head)[0] and number > _restore_number(head)
            ),
            default=2**63,
        )
        for head in heads
    }


def _stream_and_number(head: WitnessedHead) -> tuple[str, int]:
    """Return the stream of a head, and the number of the restore that the head comes after (0: no restore)."""
    match = _STREAM_NAME.fullmatch(head.stream)
    return (match[1], int(match[2] or 0)) if match else (head.stream, 0)


def _restore_number(head: WitnessedHead) -> int:
    return _stream_and_number(head)[1]


def _hash_at(tenant_id: str, stream: str, entries: Sequence[Entry], seq: int) -> str:
    return entries[seq - 1].hash if seq else genesis(tenant_id, stream)


def _check_signature(head: WitnessedHead, keys: Keys) -> None:
    match = _STREAM_NAME.fullmatch(head.stream)
    is_valid_name = match and head.seq >= (0 if match[2] else 1)
    signed = (head.seq, head.hash, head.kid, head.signature)
    if not is_valid_name or not is_signed(signed, head.tenant, head.stream, keys, at_us=head.at_us):
        raise ChainBroken(head.stream[:64], head.seq, f"of `{head.tenant}` was witnessed with an invalid signature")


async def _check_stored(store: Store, head: WitnessedHead) -> None:
    """Check that the store holds the entry of a witnessed head."""
    stored = await store.read(_stream_and_number(head)[0], after=max(head.seq - 1, 0), limit=1)
    _check_entry(head, {entry.seq: entry for entry in stored})


def _check_entry(head: WitnessedHead, stored: Mapping[int, Entry]) -> None:
    time = datetime.fromtimestamp(head.at_us / 1e6, UTC).isoformat(timespec="seconds")
    stream = _stream_and_number(head)[0]
    if head.seq == 0:
        return
    if head.seq not in stored:
        remedy = "bring back the store that has it, or record the loss with `contextos store restored`"
        raise ChainBroken(stream, head.seq, f"of `{head.tenant}` is missing: it was witnessed at {time}; {remedy}")
    if stored[head.seq].hash != head.hash:
        raise ChainBroken(
            stream,
            head.seq,
            f"of `{head.tenant}` is not what was witnessed at {time}; keep both, and find out who changed it",
        )
