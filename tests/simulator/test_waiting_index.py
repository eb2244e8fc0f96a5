"""After every commit of many small worlds, the index of waiting runs misses no run that waits for a person."""

from __future__ import annotations

from collections import Counter

import pytest

from contextos.contracts.documents.runs import BLOCKED_RUNS
from contextos.contracts.journal import INDEX, Batch
from contextos.deployment.queries.run_view import run_view
from contextos.runtime.state_machine import TABLE
from contextos.trust.journal.ledger import ASKING_STATES
from contextos_sim import simulate_seed
from contextos_sim.memory.stores import MemoryStore


def test_the_states_in_which_a_person_is_asked_are_in_the_run_table() -> None:
    assert set(TABLE) >= ASKING_STATES


def test_no_run_that_waits_for_a_person_is_missing_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter[str]()
    commit = MemoryStore.commit

    async def checked(self: MemoryStore, batch: Batch) -> None:
        await commit(self, batch)
        marked = {run for _, run in await self.waiting()}
        waits, answered = set(), set()
        for line in await self.read(INDEX):
            view = run_view("", line.key, await self.read(line.key))
            if view.waiting is not None and view.waiting["for"] not in ("engine", "agent"):
                waits.add(line.key)
            elif view.state in ASKING_STATES or await BLOCKED_RUNS.one(self, line.key):
                answered.add(line.key)
        assert waits <= marked
        # An answered run is marked until the next commit of its driver, and one that waits for another run's operation.
        seen["beyond"] += len(marked - waits - answered)
        seen["waiting"] += len(waits)

    monkeypatch.setattr(MemoryStore, "commit", checked)
    for seed in range(12):
        assert not simulate_seed(seed).violations
    assert seen["waiting"] > 8
    assert seen["beyond"] < seen["waiting"] // 2
