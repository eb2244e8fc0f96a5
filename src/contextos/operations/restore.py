"""Record that an operator restored a store from a backup.

A backup takes the store back in time, but external systems keep their state. So the store begins a new epoch:
approvals that were requested before it are void, and an older run reconciles each effect before it sends it, because
it may have been sent already. Entries that came after the backup are not reconstructed.
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
    """The epoch that a tenant's store began, and what is gone from each stream (empty without a witness)."""

    tenant_id: str
    epoch_id: str
    restored: tuple[Restoration, ...]


async def record_restore(
    app: Deployment, publisher: WitnessPublisher | None, tenant_id: str, *, by: str
) -> RestoreReport:
    """Begin a new epoch of a tenant's store, recorded in its control stream, and publish to the witness what is left.

    Call it again after a failure: each call begins another epoch. `by` is recorded and not checked.

    Raises:
        ChainBroken: the restored entries do not form a chain; the backup is damaged, take another one.
        Conflict: another process changed the store at the same moment; stop all processes that use it, call again.
        Unavailable: the witness or the store did not answer; call again.
    """
    ports, store = app.ports, app.ports.stores.tenant(tenant_id)
    left = {stream: await store.read(stream) for stream in (INDEX, CONTROL)}
    found = await EPOCHS.one(store, EPOCH_KEY)
    # The epoch must not be older than any entry of the backup, whatever this machine's clock says.
    at_us = max([ports.clock.now_us(), *(entry.at_us for entries in left.values() for entry in entries)])
    epoch_id = ports.entropy.take(8).hex()
    body = {"by": by, "epoch": epoch_id, "left": {name: len(entries) for name, entries in left.items()}}
    line = Draft("store.restored", epoch_id, at_us, by, canonical(body), ports.entropy.take(16))
    write = EPOCHS.write(EPOCH_KEY, found.version if found else 0, Epoch(epoch_id, at_us, by))
    heads = await publisher.restored_heads(tenant_id) if publisher else []
    await store.commit(Batch(run=CONTROL, writes=(write,), shared=((CONTROL, line),)))
    # Last: as long as the older approvals are not void, the witness still reports the cut.
    restored = await publisher.publish_restore(tenant_id, heads) if publisher else []
    return RestoreReport(tenant_id, epoch_id, tuple(restored))
