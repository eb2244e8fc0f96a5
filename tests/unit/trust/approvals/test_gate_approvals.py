"""Who is barred from an approval. The life of an approval is in `tests/e2e/test_approvals.py`."""

from __future__ import annotations

from pathlib import Path

import orjson

from tests.world import OPERATOR, TENANT, open_world, request, run


def test_nobody_behind_the_run_or_its_pack_can_approve_its_call(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(4200, "req_1"))
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        asked = next(orjson.loads(one.body or b"") for one in entries if one.kind == "approval.asked")
        behind = {"usr_771", "agent:contextos/support-refund@1.2.0", "agt_support", "usr_owner_1", OPERATOR}
        assert behind <= set(asked["barred"])
        world.close()

    run(go())
