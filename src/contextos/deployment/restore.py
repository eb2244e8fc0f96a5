"""Record that an operator restored a store from a backup.

A backup takes the store back in time, but external systems keep their state. So the store begins a new epoch: approvals
that were requested before it are void, and an older run reconciles each effect before it sends it, because it may have
been sent already. Entries that came after the backup are not reconstructed.

A failover to a replica that had everything is recorded in the same way. If the store ends exactly where the witness
does, the store lacks nothing that the witness knows, so approvals stay valid. Older runs still reconcile, so that a
payment made after the witness was last written is not made twice.
Source: docs/adr/0013-a-recorded-restore-begins-an-epoch.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS, Epoch
from contextos.contracts.journal import CONTROL, INDEX, Batch, WitnessedHead
from contextos.deployment.acts.act import Actor, prove_with_listing
from contextos.deployment.deployment import Deployment
from contextos.deployment.witness import Restoration, WitnessPublisher, witnessed_lengths
from contextos.errors import Integrity


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The epoch of a tenant's store after a restore, and what each stream lost (empty without a witness).

    `lost_nothing`: the store ends where the witness does, so the epoch goes on and its approvals stay valid.
    """

    tenant_id: str
    epoch_id: str
    restored: tuple[Restoration, ...]
    lost_nothing: bool


async def record_restore(
    app: Deployment, publisher: WitnessPublisher | None, tenant_id: str, *, by: Actor
) -> RestoreReport:
    """Record that a tenant's store was restored from a backup, and publish the heads that are left to the witness.

    The store begins a new epoch: older approvals become void. If the witness shows that nothing was lost, the epoch
    goes on, and approvals stay valid. After each call, older runs reconcile every effect before they send it.

    Raises:
        ApprovalRefused: as `prove_act` in `deployment.acts.act`.
        ChainBroken: the restored entries do not form a chain; the backup is damaged, take another one.
        Conflict: another process changed the store at the same moment; stop all processes that use it, call again.
        Unavailable: the witness or the store did not answer; call again.
    """
    ports, store = app.ports, app.ports.stores.tenant(tenant_id)
    streams = {stream: await store.read(stream) for stream in (INDEX, CONTROL)}
    stored = await EPOCHS.one(store, EPOCH_KEY)
    # The epoch must not be older than any entry of the backup, whatever this machine's clock says.
    at_us = max([ports.clock.now_us(), *(entry.at_us for entries in streams.values() for entry in entries)])
    restore_id, lengths = ports.entropy.take(8).hex(), {name: len(entries) for name, entries in streams.items()}
    heads = await publisher.restored_heads(tenant_id) if publisher else []
    lost_nothing = publisher is not None and lengths == await _full_lengths(publisher, tenant_id, heads)
    before = stored.body.id if stored else ""
    epoch_id = before if lost_nothing else restore_id
    arguments = {"epoch": epoch_id, "at_us": at_us, "left": lengths, "lost_nothing": lost_nothing}
    version = stored.version if stored else 0
    proposed = ProposedAct("store.restored", restore_id, arguments, version, not_before_us=at_us)
    # In one commit: a remote database accepts no other commit before the epoch begins, not even the listing of the
    # actor.
    control = await prove_with_listing(ports, app.config, tenant_id, proposed, by)
    write = EPOCHS.write(EPOCH_KEY, version, Epoch(epoch_id, at_us, by.id))
    await store.commit(Batch(run=CONTROL, writes=(write,), shared=control))
    # Published last: until the older approvals are void, the witness still reports the cut.
    is_cut = publisher is not None and not lost_nothing
    restored = await publisher.publish_restore(tenant_id, heads) if publisher and is_cut else []
    return RestoreReport(tenant_id, epoch_id, tuple(restored), lost_nothing)


async def _full_lengths(
    publisher: WitnessPublisher, tenant_id: str, agreed_heads: Sequence[WitnessedHead]
) -> dict[str, int] | None:
    """Return the length of each stream at the witness, or None if the store differs from the witness or the witness has
    no heads.

    `agreed_heads` are heads on which the store and the witness agree. A witness that was cut itself proves nothing.
    """
    try:
        heads = await publisher.witnessed_heads(tenant_id)
    except Integrity:
        return None
    witness_lengths = {INDEX: 0, CONTROL: 0, **witnessed_lengths(heads)}
    agreed_lengths = {head.stream.partition("@")[0]: head.seq for head in agreed_heads}
    return agreed_lengths if heads and agreed_lengths == witness_lengths else None
