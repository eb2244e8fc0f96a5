"""`read_stream`: the events of a run that verifies, and the place behind which they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.deployment.stream.folding import BEFORE_ALL
from contextos.deployment.stream.reading import read_stream
from contextos.errors import InvalidInput, NotFound
from tests.world import TENANT, open_world, request, run


def test_what_is_behind_an_event_is_exactly_what_follows_it(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        store, run_id = world.stores.tenant(TENANT), (await world.invoke(request(900, "req_1"))).run_id
        read = await read_stream(store, TENANT, world.keys, run_id)
        assert (read.after, read.ended, read.entries) == (BEFORE_ALL, True, await store.length(run_id))
        assert read.behind(BEFORE_ALL) == list(read.events)
        for number, event in enumerate(read.events, 1):
            again = await read_stream(store, TENANT, world.keys, run_id, event.id)
            assert again.behind(again.after) == list(read.events[number:])
        with pytest.raises(InvalidInput, match="not an event of this run"):
            await read_stream(store, TENANT, world.keys, run_id, "run_1.1.0.0000000000000000")
        with pytest.raises(NotFound, match="there is no run"):
            await read_stream(store, TENANT, world.keys, "run_0000000000000000")

    run(act())
