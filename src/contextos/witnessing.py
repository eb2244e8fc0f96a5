"""The outside witness: where a tenant's own streams stand is told where the store's owner cannot rewrite it.

`index` and `control` are chained but nobody outside holds their heads, so who owns the store can cut them, and a run
with them, and make all that is left fit. Against a witness the cut shows; without one it is not provable.
Source: shared/design/journal.md; shared/design/architecture.md, "Tenancy".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from contextos.contracts.journal import CONTROL, INDEX, Entry, WitnessedHead
from contextos.contracts.ports import Clock, Keys, Stores, Witness
from contextos.errors import ChainBroken
from contextos.trust.chain import verify_chain
from contextos.trust.heads import head_payload, is_signed

STREAMS: Final = (INDEX, CONTROL)


@dataclass(slots=True)
class Witnessing:
    """Tells the witness how far the streams of tenants have grown since it was told last."""

    stores: Stores
    witness: Witness
    keys: Keys
    clock: Clock
    _told: dict[tuple[str, str], WitnessedHead] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)

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
            ChainBroken: what was witnessed before is not there any more; the other tenants' heads were put.
            Unavailable: the witness or the store did not answer; tell again.
        """
        moved: list[WitnessedHead] = []
        broken: ChainBroken | None = None
        for tenant_id in tenants:
            try:
                moved += await self._moved(tenant_id)
            except ChainBroken as error:
                broken = broken or error
        if moved:
            await self.witness.put(moved)
            self._learn(moved)
        if broken:
            raise broken
        return len(moved)

    def _learn(self, heads: Iterable[WitnessedHead]) -> None:
        """Keep the furthest head of each stream: two who tell at once may put theirs in any order."""
        for head in heads:
            known = self._told.get((head.tenant, head.stream))
            if known is None or head.seq > known.seq:
                self._told[head.tenant, head.stream] = head

    async def _moved(self, tenant_id: str) -> list[WitnessedHead]:
        """Heads that the witness does not know yet, once what it knows is seen to stand."""
        if tenant_id not in self._asked:
            self._learn(await self.witness.heads(tenant_id))
            self._asked.add(tenant_id)
        store, moved = self.stores.tenant(tenant_id), []
        for stream in STREAMS:
            told = self._told.get((tenant_id, stream))
            entries = await store.read(stream, after=told.seq - 1 if told else 0)
            if told:
                _must_be_ours(told, self.keys)
                _must_hold(told, {entry.seq: entry for entry in entries[:1]})
                verify_chain(tenant_id, stream, entries[1:], after=entries[0])
            else:
                verify_chain(tenant_id, stream, entries)
            if entries and (told is None or entries[-1].seq > told.seq):
                moved.append(self._signed(entries[-1]))
        return moved

    def _signed(self, last: Entry) -> WitnessedHead:
        kid, signature = self.keys.sign("head", head_payload(last.tenant, last.run, last.seq, last.hash))
        return WitnessedHead(
            last.tenant, last.run, last.seq, last.hash, kid, signature.hex(), self.clock.now_us()
        )  # fmt: skip


def verify_witnessed(
    tenant_id: str, streams: Mapping[str, Sequence[Entry]], heads: Iterable[WitnessedHead], keys: Keys
) -> None:
    """Hold a tenant's own streams against what was witnessed of them.

    Raises:
        ChainBroken: naming the first entry that is gone or another; or a head that the runtime never signed.
    """
    for head in heads:
        if head.tenant != tenant_id or head.stream not in streams:
            raise ChainBroken(head.stream[:64], head.seq, "was witnessed of another tenant or of no such stream")
        _must_be_ours(head, keys)
        _must_hold(head, {entry.seq: entry for entry in streams[head.stream][head.seq - 1 : head.seq]})


def _must_be_ours(head: WitnessedHead, keys: Keys) -> None:
    if head.seq < 1 or not is_signed((head.seq, head.hash, head.kid, head.signature), head.tenant, head.stream, keys):
        raise ChainBroken(head.stream[:64], head.seq, f"of `{head.tenant}` was witnessed with a signature that is none")


def _must_hold(head: WitnessedHead, there: Mapping[int, Entry]) -> None:
    when = datetime.fromtimestamp(head.at_us / 1e6, UTC).isoformat(timespec="seconds")
    if head.seq not in there:
        raise ChainBroken(head.stream, head.seq, f"of `{head.tenant}` is missing: it was witnessed at {when}")
    if there[head.seq].hash != head.hash:
        raise ChainBroken(head.stream, head.seq, f"of `{head.tenant}` is not what was witnessed at {when}")
