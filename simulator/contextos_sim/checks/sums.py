"""Whether a sum is read from what is signed: a counted effect that the owner of the database alters must stop it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from contextos.contracts.documents.operations import COUNTED_EFFECTS, BucketEnd
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import Integrity
from contextos.trust.rows.counted_effects import SignedCounter
from contextos_sim.scheduler import immediately

_BUCKET: Final = "adp_payments.issue_refund/tenant/simulated"


def altered_sum(rng: Random, store: Store, tenant_id: str, keys: Keys) -> int | float | None:
    """Count some effects in an empty store, set the number of one to 0, and return what they add up to; None if the
    altered row is not believed.
    """
    counter, end = SignedCounter(store, tenant_id, keys), BucketEnd()
    for number in range(1, rng.randint(2, 5)):
        writes = counter.count(_BUCKET, end, f"adp_payments.issue_refund/ik_{number}", number, {"amount": number})
        immediately(store.commit(Batch(run=CONTROL, writes=writes)))
        end, _ = immediately(counter.read(_BUCKET, 0, limit=9))
    row = rng.choice(immediately(COUNTED_EFFECTS.page(store)))
    altered = COUNTED_EFFECTS.write(row.key, row.version, replace(row.body, numbers={"amount": 0}))
    immediately(store.commit(Batch(run=CONTROL, writes=(altered,))))
    try:
        _, effects = immediately(counter.read(_BUCKET, 0, limit=9))
    except Integrity:
        return None
    total: int | float = sum(one.numbers["amount"] for one in effects or ())
    return total
