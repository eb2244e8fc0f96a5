"""One look at the store for all that is asked before a call, and another one where more is asked or time passed."""

from __future__ import annotations

from typing import Any

from contextos.action.barrier import Barrier
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ACTIVE_SETS
from contextos.contracts.documents.operations import OPERATIONS
from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import Batch
from contextos.store.memory.stores import MemoryStores
from tests.world import TENANT, run

RUN = "run_00000000000000aa"


class Counted:
    """A store that counts how often it is looked at."""

    def __init__(self) -> None:
        self.inner, self.looks = MemoryStores().tenant(TENANT), list[Any]()

    async def look(self, places: Any, **more: Any) -> Any:
        self.looks.append((set(places), more))
        return await self.inner.look(places, **more)


def sought() -> dict[str, Any]:
    return {"places": (ACTIVE_SETS.place(ACTIVE_SET_KEY),), "lines": ((ACTIVE_SET_KEY, 7),)}


def test_what_is_expected_is_found_in_one_look() -> None:
    async def go() -> None:
        store: Any = Counted()
        barrier = Barrier(store, RUN, sought)
        barrier.expect(active=True, places=[OPERATIONS.place("a/k")])
        assert not (await barrier.found()).has(CANCELS, RUN)
        await store.inner.commit(Batch(RUN, writes=(CANCELS.write(RUN, 0, CancelRequest("usr_1", "no")),)))
        assert not (await barrier.found(active=True, places=[OPERATIONS.place("a/k")])).has(CANCELS, RUN)
        ((places, more),) = store.looks
        assert places == {CANCELS.place(RUN), OPERATIONS.place("a/k"), ACTIVE_SETS.place(ACTIVE_SET_KEY)}
        assert more == {"prefixes": [], "lines": [(ACTIVE_SET_KEY, 7)]}

    run(go())


def test_what_was_not_sought_and_what_is_forgotten_is_looked_at_again() -> None:
    async def go() -> None:
        store: Any = Counted()
        barrier = Barrier(store, RUN, sought)
        await barrier.found()
        await store.inner.commit(Batch(RUN, writes=(CANCELS.write(RUN, 0, CancelRequest("usr_1", "no")),)))
        assert not (await barrier.found()).has(CANCELS, RUN)
        assert (await barrier.found(prefixes=[("drift_incidents", "a/", 1)])).has(CANCELS, RUN)
        assert len(store.looks) == 2
        barrier.forget()
        await barrier.found()
        assert store.looks[-1] == ({CANCELS.place(RUN)}, {"prefixes": [], "lines": []})

    run(go())
