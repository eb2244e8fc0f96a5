"""Record that an operator restored a store from a backup.

A backup takes the store back in time and the world stays where it is. So the store begins a new epoch: approvals that
were asked before it are void, and what an older run would send is reconciled first, as if it might have been sent
already. Nothing of what came after the backup is invented.
Source: docs/adr/0013-a-restore-is-said-and-begins-an-epoch.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS, Epoch
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, INDEX, Batch, Draft
from contextos.operations.deployment import Deployment
from contextos.operations.witness import Restoration, WitnessPublisher


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The epoch that a tenant's store began, and by stream what the witness says is gone (empty without a witness)."""

    tenant_id: str
    epoch_id: str
    restored: tuple[Restoration, ...]


async def record_restore(
    app: Deployment, witnessing: WitnessPublisher | None, tenant_id: str, *, by: str
) -> RestoreReport:
    """Begin a new epoch of a tenant's store, on record in its control stream, and tell the witness what is left.

    May be repeated: each time begins another epoch, so that whatever failed in the middle is made good by saying it
    again. `by` is recorded and not checked.

    Raises:
        ChainBroken: what is left does not chain: the backup is damaged, take another one.
        Conflict: somebody acts on the store at the same moment; stop what runs on it and say it again.
        Unavailable: the witness or the store did not answer; say it again.
    """
    ports, store = app.ports, app.ports.stores.tenant(tenant_id)
    left = {stream: await store.read(stream) for stream in (INDEX, CONTROL)}
    found = await EPOCHS.one(store, EPOCH_KEY)
    # No run of the backup may look newer than the epoch, whatever the clock of this machine says.
    at_us = max([ports.clock.now_us(), *(entry.at_us for entries in left.values() for entry in entries)])
    epoch_id = ports.entropy.take(8).hex()
    body = {"by": by, "epoch": epoch_id, "left": {name: len(entries) for name, entries in left.items()}}
    line = Draft("store.restored", epoch_id, at_us, by, canonical(body), ports.entropy.take(16))
    write = EPOCHS.write(EPOCH_KEY, found.version if found else 0, Epoch(epoch_id, at_us, by))
    heads = await witnessing.left(tenant_id) if witnessing else []
    await store.commit(Batch(run=CONTROL, writes=(write,), shared=((CONTROL, line),)))
    # Last, so that a cut is still named for as long as the approvals of before are not void.
    told = await witnessing.accept(tenant_id, heads) if witnessing else []
    return RestoreReport(tenant_id, epoch_id, tuple(told))
