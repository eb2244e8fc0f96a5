"""A cancel request is recorded once it is found and proved, and a replay finds it in the same place without a store."""

from __future__ import annotations

from typing import Any

from contextos.action.barrier import Barrier
from contextos.action.cancellation import find_cancel
from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import Batch
from contextos.runtime.state_machine import START, transition
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.live_driver import LiveDriver
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores
from tests.world import TENANT, ManualClock, SystemEntropy, run

RUN = "run_00000000000000aa"


def barrier(store: Any) -> Barrier:
    return Barrier(store, RUN, dict)


async def nothing() -> Any:
    return {}


async def none() -> tuple[dict[str, str], ...]:
    return ()


async def one() -> tuple[dict[str, str], ...]:
    return ({"by": "usr_1", "reason": "a mistake"},)


async def admitted(journal: RunJournal) -> None:
    await journal.record("run.received", "", {}, nothing)
    journal.derive("run.context", "", {})


def test_a_cancel_request_is_found_where_it_was_recorded_and_nowhere_else() -> None:
    clock = ManualClock()
    store = MemoryStores(clock=clock).tenant(TENANT)
    live = LiveDriver(store, clock, SystemEntropy(), KeyRing.from_seed(b"k" * 32), "owner", 1_000_000)

    async def lived() -> None:
        journal = RunJournal(TENANT, RUN, (), transition, START, live)
        await admitted(journal)
        assert await find_cancel(journal, barrier(store), none, "first") is None
        await store.commit(Batch(run=RUN, writes=(CANCELS.write(RUN, 0, CancelRequest("usr_1", "a mistake")),)))
        assert await find_cancel(journal, barrier(store), none, "unproved") is None
        assert await find_cancel(journal, barrier(store), none, "unproved again") is None
        found = await find_cancel(journal, barrier(store), one, "second")
        assert found is not None
        assert found.code == "cancelled"
        await journal.commit()

    async def replayed() -> None:
        elsewhere = MemoryStores(clock=clock).tenant(TENANT)
        entries = await store.read(RUN)
        assert [(entry.kind, entry.key) for entry in entries[2:]] == [
            ("run.cancel_unproved", "before/unproved"),
            ("run.cancel_requested", "before/second"),
        ]
        journal = RunJournal(TENANT, RUN, entries, transition, START, None)
        await admitted(journal)
        assert await find_cancel(journal, barrier(elsewhere), none, "first") is None
        assert await find_cancel(journal, barrier(elsewhere), none, "unproved") is None
        assert await find_cancel(journal, barrier(elsewhere), none, "unproved again") is None
        assert await find_cancel(journal, barrier(elsewhere), none, "second") is not None

    run(lived())
    run(replayed())
