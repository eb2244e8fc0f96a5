"""Parameters are on record before anything uses them, and a replay takes the same ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from contextos.audit.replay import replay
from tests.world import TENANT, open_world, request


def test_what_the_request_gives_is_recorded_before_retrieval_and_a_fact_after_it(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        body = request(900, "req_1", order_id="ord_882")
        body["input"]["message"] = "Refund order ord_881"
        del body["input"]["context"]["refund_amount"]
        view = await world.invoke(body)
        entries = await world.deployment.ports.stores.tenant(TENANT).read(view.run_id)
        kinds = [(one.kind, one.key) for one in entries]
        stated, read, known = (
            kinds.index(one)
            for one in (("parameters.taken", "request"), ("evidence.retrieved", ""), ("parameters.taken", "evidence"))
        )
        assert stated < read < known < kinds.index(("context.compiled", "0"))
        [total] = json.loads(entries[known].body)["parameters"]
        assert (total["name"], total["value"], total["origin"]) == ("refund_amount", 1500, "evidence")
        assert [one["order_id"] for one in world.refunds()] == ["ord_882"]
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        world.close()

    asyncio.run(go())
