"""What is logged while a run is driven can name it and its trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextos.runtime.logged_run import LOGGED_RUN
from tests.world import open_world, request, run


def test_a_drive_names_its_run_and_the_trace_of_the_request_until_it_is_over(tmp_path: Path) -> None:
    seen: list[tuple[str, str, bool]] = []

    async def go() -> None:
        world = await open_world(tmp_path)
        inner = world.adapters["adp_orders"]

        class Looking:
            describe = inner.describe
            lookup = inner.lookup

            async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> Any:
                logged = LOGGED_RUN.get()
                assert logged is not None
                seen.append((logged.run_id, logged.trace_id, logged.is_driven))
                return await inner.call(capability, args, context)

        world.adapters["adp_orders"] = Looking()  # type: ignore[assignment]
        body = request(4200, "req_1")
        view = await world.invoke(body)
        after = LOGGED_RUN.get()
        assert after is not None
        assert (after.run_id, after.is_driven) == (view.run_id, False)
        assert seen == [(view.run_id, body["trace"]["trace_id"], True)]
        await world.approve(view.run_id)

    run(go())
