"""A cancel request is believed as the sealed acts of its run state it, and `verify` compares every stored one."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import CONTROL, Batch
from contextos.deployment.operator import request_cancel
from contextos.errors import ChainBroken
from contextos.trust.approvals.cancel_requests import proved_cancels, verify_cancels
from contextos.trust.seal import KeyRing
from tests.world import OPERATOR, TENANT, TestWorld, open_world, request, run


async def cancelled(path: Path) -> tuple[TestWorld, str]:
    world = await open_world(path)
    run_id = (await world.invoke(request(900, "req_1") | {"mode": "long_running"})).run_id
    await request_cancel(world.deployment, TENANT, run_id, by=world.actor(), reason="twice")
    return world, run_id


def test_a_request_is_proved_for_its_own_run_by_an_act_that_the_runtime_sealed(tmp_path: Path) -> None:
    async def act() -> None:
        world, run_id = await cancelled(tmp_path)
        store = world.stores.tenant(TENANT)
        assert await proved_cancels(store, world.keys, run_id) == [{"by": OPERATOR, "reason": "twice"}]
        assert await proved_cancels(store, world.keys, "run_0123456789abcdef") == []
        assert await proved_cancels(store, KeyRing.from_seed(b"o" * 32), run_id) == []
        world.close()

    run(act())


def test_a_stored_request_of_a_run_that_no_act_cancels_does_not_verify(tmp_path: Path) -> None:
    async def act() -> None:
        world, run_id = await cancelled(tmp_path)
        store = world.stores.tenant(TENANT)
        before = await store.read(CONTROL)
        await verify_cancels(store, len(before), world.keys)
        await verify_cancels(store, 1, world.keys)
        made_up = CANCELS.write("run_0123456789abcdef", 0, CancelRequest(OPERATOR, "twice"))
        await store.commit(Batch(run=run_id, writes=(made_up,)))
        with pytest.raises(ChainBroken, match="`run_0123456789abcdef`"):
            await verify_cancels(store, len(before), world.keys)
        world.close()

    run(act())
