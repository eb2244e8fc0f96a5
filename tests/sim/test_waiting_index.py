"""After every commit of many small worlds, the index of waiting runs misses no run that waits for a person."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from contextos.contracts.journal import INDEX, Batch
from contextos.queries.run_view import run_view
from contextos.runtime.state_machine import TABLE
from contextos.sim import simulate_seed
from contextos.store.memory.stores import MemoryStore
from contextos.trust.journal.ledger import ASKING_STATES


def test_the_states_in_which_a_person_is_asked_are_in_the_run_table() -> None:
    assert set(TABLE) >= ASKING_STATES


def test_no_run_that_waits_for_a_person_is_missing_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter[str]()
    commit = MemoryStore.commit

    async def checked(self: MemoryStore, batch: Batch) -> None:
        await commit(self, batch)
        marked = {run for _, run in await self.waiting()}
        waits = set()
        for line in await self.read(INDEX):
            waiting: Any = run_view("", line.key, await self.read(line.key)).waiting
            if waiting is not None and waiting["for"] != "engine":
                waits.add(line.key)
        assert waits <= marked
        seen["waiting"] += len(waits)
        seen["marked"] += len(marked)
        seen["commits"] += 1

    monkeypatch.setattr(MemoryStore, "commit", checked)
    for seed in range(20):
        assert not simulate_seed(seed).violations
    assert seen["waiting"] > 20
    # An answered run is marked until the next commit of its driver.
    assert seen["waiting"] <= seen["marked"] < 2 * seen["waiting"]
