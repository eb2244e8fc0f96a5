"""A run found by its id or by its request."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.deployment.queries.run_names import run_named
from contextos.errors import NotFound
from tests.world import TENANT, open_world, request, run


def test_a_request_names_the_run_that_it_made(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        made = (await world.invoke(request(900, "req_1"))).run_id
        store = world.stores.tenant(TENANT)
        assert await run_named(store, "req_1") == await run_named(store, made) == made
        with pytest.raises(NotFound, match="no run or request `req_2`"):
            await run_named(store, "req_2")

    run(act())
