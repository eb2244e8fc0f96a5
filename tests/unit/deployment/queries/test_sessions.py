"""Sessions are the runs of the mode `long_running`, and those of which nobody can tell."""

from __future__ import annotations

from pathlib import Path

from contextos.deployment.queries.sessions import list_sessions
from tests.world import TENANT, open_world, request, run


def test_only_long_running_runs_are_listed_each_with_its_deadline_before_admission(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_short"))
        long = await world.invoke({**request(900, "req_long"), "mode": "long_running"})
        page = await list_sessions(world.stores.tenant(TENANT), TENANT, world.keys, limit=5)
        [one] = page.sessions
        assert (one.run_id, one.request_id, one.fault, one.checkpoint) == (long.run_id, "req_long", None, None)
        assert one.started_at_us > 0

    run(act())
