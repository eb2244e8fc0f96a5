"""The outside witness: where a tenant's own streams stand is told where the store's owner cannot rewrite it.

`index` and `control` are chained but nobody outside holds their heads, so who owns the store can cut them, and a run
with them, and make all that is left fit. Against a witness the cut shows; without one it is not provable.

A restore is a cut that an operator stands for (`restoring`). From then on heads are witnessed under the stream's name
with the number of the restore (`index@1`), and the first of them says what was kept: of what was witnessed before,
more is gone and is counted, and everything else must still hold. Only the runtime's key begins a new number, so the
store's owner cannot pass a cut off as a restore.
Source: shared/design/journal.md; shared/design/architecture.md, "Tenancy".
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS
from contextos.contracts.journal import CONTROL, INDEX, Entry, WitnessedHead, genesis
from contextos.contracts.ports.outside import Clock, Keys, Witness
from contextos.contracts.ports.storage import Store, Stores
from contextos.errors import ChainBroken, Integrity, Unavailable
from contextos.operations.lru import keep_recent
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.signed_heads import head_payload, is_signed

STREAMS: Final = (INDEX, CONTROL)
MAX_KNOWN_TENANTS: Final = 16_384
"""Of so many tenants it is kept what the witness knows, some 2 kB each; of another the witness is asked again."""
_NAME: Final = re.compile(r"(index|control)(?:@([1-9][0-9]{0,8}))?")


class Restoration(NamedTuple):
    """What a restore left of a stream: `kept` entries of the `witnessed` ones; the others are `gone`."""

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
    """The furthest head under each name of a tenant's streams, and the epoch in which the witness was asked for it."""

    epoch: str | None = None
    heads: dict[str, WitnessedHead] = field(default_factory=dict)

    def learn(self, head: WitnessedHead) -> None:
        """Keep the furthest: two who tell at once may put theirs in any order."""
        before = self.heads.get(head.stream)
        if before is None or head.seq > before.seq:
            self.heads[head.stream] = head


@dataclass(slots=True)
class WitnessPublisher:
    """Tells the witness how far the streams of tenants have grown since it was told last."""

    stores: Stores
    witness: Witness
    keys: Keys
    clock: Clock
    _known: OrderedDict[str, KnownHeads] = field(default_factory=OrderedDict)

    async def check(self, tenant_id: str) -> None:
        """Whether what was witnessed last of a tenant is still there.

        Raises:
            ChainBroken: it is not.
            Unavailable: the witness or the store did not answer.
        """
        await self._moved(tenant_id)

    async def tell(self, tenants: Iterable[str]) -> int:
        """Put every head that moved, and say how many. Nothing of a tenant is put while an older head of it is gone.

        Raises:
            Integrity: what was witnessed before is not there any more, or the witness holds what nobody witnessed.
            Unavailable: the witness or the store did not answer; tell again.

        Either is raised once the heads of all other tenants were put, and what is broken before what may pass.
        """
        moved: list[WitnessedHead] = []
        failed: list[Integrity | Unavailable] = []
        for tenant_id in tenants:
            try:
                moved += await self._moved(tenant_id)
            except (Integrity, Unavailable) as error:
                failed.append(error)
        if moved:
            await self.witness.put(moved)
            for head in moved:
                self._of_tenant(head.tenant).learn(head)
        if failed:
            raise min(failed, key=lambda error: isinstance(error, Unavailable))
        return len(moved)

    async def left(self, tenant_id: str) -> list[WitnessedHead]:
        """What a restore left of the tenant's streams, signed; empty where the witness knows nothing of the tenant.

        Raises:
            ChainBroken: what is left does not chain, or the witness holds a head that the runtime never signed.
            Unavailable: the witness or the store did not answer.
        """
        heads = await self.witness.heads(tenant_id)
        for head in heads:
            _must_be_ours(head, self.keys)
        number = 1 + max((_number(head) for head in heads), default=0)
        return [await self._left(tenant_id, stream, number, heads) for stream in STREAMS] if heads else []

    async def accept(self, tenant_id: str, left: Sequence[WitnessedHead]) -> list[Restoration]:
        """Witness that `left` is what a restore left, and say what is gone. Raises `Unavailable`: say it again."""
        if left:
            await self.witness.put(left)
            self._of_tenant(tenant_id).epoch = None
        numbers = {_number(head) for head in left}
        return [one for one in restorations(await self.witness.heads(tenant_id)) if one.number in numbers]

    async def _left(self, tenant_id: str, stream: str, number: int, heads: Sequence[WitnessedHead]) -> WitnessedHead:
        """Where a stream stands before the first entry that it contradicts the witness about."""
        entries = await self.stores.tenant(tenant_id).read(stream)
        verify_chain(tenant_id, stream, entries)
        limits = _limits(heads)
        wrong = [
            head.seq
            for head in heads
            if _of(head)[0] == stream
            and head.seq <= limits[head.stream]
            and head.seq
            and (head.seq > len(entries) or entries[head.seq - 1].hash != head.hash)
        ]
        kept = min([len(entries), *(seq - 1 for seq in wrong)])
        return self._signed(tenant_id, f"{stream}@{number}", kept, _hash_at(tenant_id, stream, entries, kept))

    def _of_tenant(self, tenant_id: str) -> KnownHeads:
        """What is kept of a tenant; who was not asked about for longest is forgotten."""
        return keep_recent(self._known, tenant_id, KnownHeads(), MAX_KNOWN_TENANTS)

    async def _moved(self, tenant_id: str) -> list[WitnessedHead]:
        """Heads that the witness does not know yet, once what it knows is seen to stand."""
        store, known = self.stores.tenant(tenant_id), self._of_tenant(tenant_id)
        found = await EPOCHS.one(store, EPOCH_KEY)
        epoch = found.body.id if found else ""
        if known.epoch != epoch:
            return await self._asked_anew(store, tenant_id, known, epoch)
        try:
            return await self._grown_since(store, tenant_id, known)
        except ChainBroken as broken:
            # A restore may have been said in between, and only the witness knows.
            try:
                return await self._asked_anew(store, tenant_id, known, epoch)
            except Unavailable:
                raise broken from None

    async def _asked_anew(self, store: Store, tenant_id: str, known: KnownHeads, epoch: str) -> list[WitnessedHead]:
        heads = await self.witness.heads(tenant_id)
        before = max(map(_number, known.heads.values()), default=0)
        for head in heads:
            known.learn(head)
        moved = await self._grown_since(store, tenant_id, known)
        # An epoch is on record before the witness is told of it: until it was, it is asked each time.
        if known.epoch is None or not heads or max(map(_number, heads)) > before:
            known.epoch = epoch
        return moved

    async def _grown_since(self, store: Store, tenant_id: str, known: KnownHeads) -> list[WitnessedHead]:
        names = {stream: stream for stream in STREAMS}
        for head in sorted(known.heads.values(), key=_number):
            names[_of(head)[0]] = head.stream
        moved = [
            await self._grown(store, tenant_id, stream, name, known.heads.get(name)) for stream, name in names.items()
        ]
        return [head for head in moved if head]

    async def _grown(
        self, store: Store, tenant_id: str, stream: str, name: str, told: WitnessedHead | None
    ) -> WitnessedHead | None:
        if told:
            _must_be_ours(told, self.keys)
        if told is None or told.seq == 0:
            entries = await store.read(stream)
            verify_chain(tenant_id, stream, entries)
        else:
            entries = await store.read(stream, after=told.seq - 1)
            _must_hold(told, {entry.seq: entry for entry in entries[:1]})
            verify_chain(tenant_id, stream, entries[1:], after=entries[0])
        if not entries or (told and entries[-1].seq <= told.seq):
            return None
        return self._signed(tenant_id, name, entries[-1].seq, entries[-1].hash)

    def _signed(self, tenant_id: str, name: str, seq: int, head: str) -> WitnessedHead:
        kid, signature = self.keys.sign("head", head_payload(tenant_id, name, seq, head))
        return WitnessedHead(tenant_id, name, seq, head, kid, signature.hex(), self.clock.now_us())


def verify_witnessed(
    tenant_id: str, streams: Mapping[str, Sequence[Entry]], heads: Sequence[WitnessedHead], keys: Keys
) -> None:
    """Hold a tenant's own streams against what was witnessed of them and no restore took away.

    Raises:
        ChainBroken: naming the first entry that is gone or another; or a head that the runtime never signed.
    """
    for head in heads:
        if head.tenant != tenant_id or not _NAME.fullmatch(head.stream) or _of(head)[0] not in streams:
            raise ChainBroken(head.stream[:64], head.seq, "was witnessed of another tenant or of no such stream")
        _must_be_ours(head, keys)
    limits = _limits(heads)
    for head in heads:
        if head.seq <= limits[head.stream]:
            _must_hold(head, {entry.seq: entry for entry in streams[_of(head)[0]][max(head.seq - 1, 0) : head.seq]})


def witnessed_lengths(heads: Iterable[WitnessedHead]) -> dict[str, int]:
    """How far each stream was witnessed since it was restored last."""
    furthest: dict[str, tuple[int, int]] = {}
    for head in heads:
        stream, number = _of(head)
        furthest[stream] = max(furthest.get(stream, (0, 0)), (number, head.seq))
    return {stream: seq for stream, (_, seq) in furthest.items()}


def restorations(heads: Iterable[WitnessedHead]) -> list[Restoration]:
    """What restores left, as they were witnessed, in their order."""
    known: dict[str, dict[int, list[WitnessedHead]]] = {}
    for head in heads:
        stream, number = _of(head)
        known.setdefault(stream, {}).setdefault(number, []).append(head)
    made: list[Restoration] = []
    for stream, by_number in known.items():
        reach = 0
        for number, same in sorted(by_number.items()):
            first = min(same, key=lambda head: head.seq)
            if number:
                made.append(Restoration(number, stream, first.seq, reach, first.at_us))
            reach = max(head.seq for head in same)
    return sorted(made)


def _limits(heads: Sequence[WitnessedHead]) -> dict[str, int]:
    """Up to which entry the heads under a name must hold: what the restores after it kept."""
    cuts: dict[tuple[str, int], int] = {}
    for head in heads:
        place = _of(head)
        cuts[place] = min(cuts.get(place, head.seq), head.seq)
    return {
        head.stream: min(
            (kept for (stream, number), kept in cuts.items() if stream == _of(head)[0] and number > _number(head)),
            default=2**63,
        )
        for head in heads
    }


def _of(head: WitnessedHead) -> tuple[str, int]:
    """The stream of a head, and how many restores came before it."""
    named = _NAME.fullmatch(head.stream)
    return (named[1], int(named[2] or 0)) if named else (head.stream, 0)


def _number(head: WitnessedHead) -> int:
    return _of(head)[1]


def _hash_at(tenant_id: str, stream: str, entries: Sequence[Entry], seq: int) -> str:
    return entries[seq - 1].hash if seq else genesis(tenant_id, stream)


def _must_be_ours(head: WitnessedHead, keys: Keys) -> None:
    named = _NAME.fullmatch(head.stream)
    known = named and head.seq >= (0 if named[2] else 1)
    if not known or not is_signed((head.seq, head.hash, head.kid, head.signature), head.tenant, head.stream, keys):
        raise ChainBroken(head.stream[:64], head.seq, f"of `{head.tenant}` was witnessed with a signature that is none")


def _must_hold(head: WitnessedHead, there: Mapping[int, Entry]) -> None:
    when = datetime.fromtimestamp(head.at_us / 1e6, UTC).isoformat(timespec="seconds")
    stream = _of(head)[0]
    if head.seq == 0:
        return
    if head.seq not in there:
        raise ChainBroken(stream, head.seq, f"of `{head.tenant}` is missing: it was witnessed at {when}")
    if there[head.seq].hash != head.hash:
        raise ChainBroken(stream, head.seq, f"of `{head.tenant}` is not what was witnessed at {when}")
