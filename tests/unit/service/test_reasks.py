"""A question is asked again by one act, whose entry says who, why and what was found changed."""

from __future__ import annotations

from pathlib import Path

from contextos.contracts.entries.reading import read_body
from contextos.service.reasks import reask_question
from tests.e2e.test_approvals import VOIDS
from tests.world import TENANT, open_world, request, run


def test_the_entry_says_who_had_it_asked_again_and_why(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await VOIDS["order_total"](world)
        await reask_question(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="we upgraded")
        entries = await world.stores.tenant(TENANT).read(waiting.run_id)
        body = read_body(next(one for one in entries if one.kind == "approval.reasked"))
        assert body is not None
        assert (body["by"], body["reason"]) == ("user_operator_5", "we upgraded")
        assert [one.rsplit("#", 1)[1] for one in body["changed"]] == ["order_lookup", "policy.eval"]
        world.close()

    run(go())
