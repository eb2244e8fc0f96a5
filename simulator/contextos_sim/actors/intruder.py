"""A writer of the database who holds no key, while runs go on: for a while, a payment that was made is stated as not
made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contextos.contracts.documents.operations import OPERATIONS, OperationDocument
from contextos.contracts.journal import Batch
from contextos_sim import example
from contextos_sim.scheduler import immediately, pause

if TYPE_CHECKING:
    from contextos_sim.world import SimulatedWorld


async def intruder(world: SimulatedWorld, key: str, made: OperationDocument) -> None:
    """Simulate the writer, who puts the row back after a while: a run that met the altered one goes on then."""
    store = world.stores.tenant(example.EXAMPLE_TENANT)
    for body in (replace(made, state="released", output=None, mutations=()), made):
        found = immediately(OPERATIONS.one(store, key))
        await store.commit(Batch(made.run_id, writes=(OPERATIONS.write(key, found.version, body),)))
        await pause(world.rng.randint(1_000_000, 600_000_000))
