"""One look at the store for all that is asked before a call, and another one where more is asked or time passed."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.action.barrier import Barrier
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ACTIVE_SETS
from contextos.contracts.documents.operations import OPERATIONS
from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos_sim.memory.stores import MemoryStores
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


def test_lines_of_control_are_found_by_key_and_looked_for_again_together() -> None:
    async def go() -> None:
        store: Any = Counted()
        barrier = Barrier(store, RUN, sought)
        said = Draft("cancel", "a", 5, "usr_1", b"{}", b"\0" * 16)
        await store.inner.commit(Batch(CONTROL, shared=((CONTROL, said), (CONTROL, said._replace(key="b")))))
        assert [one.key for one in await barrier.lines(CONTROL, "a", "c")] == ["a"]
        assert [one.key for one in await barrier.lines(CONTROL, "b")] == ["b"]
        assert len(store.looks) == 2
        barrier.anew()
        assert [one.key for one in await barrier.lines(CONTROL, "a", "b")] == ["a", "b"]
        await barrier.found(active=True)
        assert len(store.looks) == 3

    run(go())


@pytest.mark.parametrize("meanwhile", [Barrier.forget, lambda barrier: barrier.expect(prefixes=[("denials", "a/", 1)])])
def test_what_was_looked_at_before_time_passed_or_more_was_sought_is_not_kept(meanwhile: Any) -> None:
    """A question is looked at while its run goes on: what the one found is not an answer to what the other asks."""

    class Slow(Counted):
        async def look(self, places: Any, **more: Any) -> Any:
            found = await super().look(places, **more)
            if len(self.looks) == 1:
                meanwhile(barrier)
                await self.inner.commit(Batch(RUN, writes=(CANCELS.write(RUN, 0, CancelRequest("usr_1", "no")),)))
            return found

    store: Any = Slow()
    barrier = Barrier(store, RUN, sought)

    async def go() -> None:
        assert not (await barrier.found()).has(CANCELS, RUN)
        assert (await barrier.found()).has(CANCELS, RUN)

    run(go())
