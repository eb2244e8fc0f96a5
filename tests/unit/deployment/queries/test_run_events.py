"""Lines of the index as events: what a line says is compared with the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX, Batch, Draft
from contextos.deployment.queries.run_events import read_events
from tests.world import TENANT, open_world, request, run


@pytest.mark.parametrize(
    ("kind", "says"),
    [("run.closed", "is `tool.returned`"), ("approval.answered", "is `tool.returned`"), ("run.paid", "unknown kind")],
)
def test_a_line_that_says_what_its_run_does_not_show_is_an_event_with_a_fault(
    tmp_path: Path, kind: str, says: str
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        store = world.stores.tenant(TENANT)
        returned = next(one for one in await store.read(run_id) if one.kind == "tool.returned")
        body = canonical({"run": run_id, "entries": returned.seq, "head": returned.hash})
        forged = Draft(kind, run_id, returned.at_us, "runtime", body, bytes(16))
        before, last = await read_events(store, TENANT, world.keys, None)
        await store.commit(Batch(run=run_id, shared=((INDEX, forged),)))
        events, _ = await read_events(store, TENANT, world.keys, last)
        assert {one.fault for one in before} == {None}
        assert len(events) == 1
        assert events[0].fault is not None

        if kind == "run.closed":
            assert "surplus" in events[0].fault, "the run goes on behind the line that closes it"
        else:
            assert says in events[0].fault

    run(act())


def test_pages_of_events_continue_each_other(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        for number in range(4):
            await world.invoke(request(900, f"req_{number}"))
        store = world.stores.tenant(TENANT)
        every, _ = await read_events(store, TENANT, world.keys, None)
        found, last = [], None
        while True:
            page, last = await read_events(store, TENANT, world.keys, last, limit=3)
            if not page:
                break
            found += page
        assert found == every

    run(act())
