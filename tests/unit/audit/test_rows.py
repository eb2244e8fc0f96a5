"""The rows of runs verify while they change, and what is made up beside them does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.documents.operations import APPROVALS, DENIALS, OPERATIONS, Denial
from contextos.contracts.documents.runs import REQUESTS, RequestClaim
from contextos.contracts.journal import CONTROL, Batch
from contextos.errors import ChainBroken
from tests.world import APPROVER, TENANT, TestWorld, open_world, request, run


async def verify(world: TestWorld) -> None:
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)


async def wrote(world: TestWorld, *writes: Any) -> None:
    await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, writes=writes))


def test_each_state_of_a_question_verifies(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await verify(world)
        await world.answer(waiting.run_id)
        await verify(world)
        await world.deployment.advance(TENANT, waiting.run_id)
        await verify(world)
        late = await world.invoke(request(4300, "req_2"))
        world.clock.at_us += 30 * 86_400_000_000
        await world.deployment.advance(TENANT, late.run_id)
        denied = await world.invoke(request(4400, "req_3"))
        await world.approve(denied.run_id, "denied")
        await verify(world)
        states = {row.body.state for row in await APPROVALS.page(world.stores.tenant(TENANT))}
        assert states == {"consumed", "expired", "denied"}
        world.close()

    run(go())


def test_a_row_that_is_made_up_does_not_verify(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        paid = await world.invoke(request(900, "req_1"))
        await verify(world)
        await wrote(world, DENIALS.write("adp_payments.issue_refund/x/y", 0, Denial(paid.run_id, APPROVER)))
        with pytest.raises(ChainBroken, match="the denial `adp_payments"):
            await verify(world)
        world.close()
        other = await open_world(tmp_path)
        paid = await other.invoke(request(900, "req_1"))
        await wrote(other, REQUESTS.write("req_mine", 0, RequestClaim(paid.run_id, "sha256:0")))
        with pytest.raises(ChainBroken, match="of 2 claims of requests 1 are of no run"):
            await verify(other)
        other.close()

    run(go())


def test_an_operation_that_is_released_past_its_run_does_not_verify(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        paid = await world.invoke(request(900, "req_1"))
        (row,) = await world.stores.tenant(TENANT).scan("keys")
        said = OPERATIONS.decoded(row.key, orjson.dumps(orjson.loads(row.body) | {"tool_call_id": "tool_mine"}))
        await wrote(world, OPERATIONS.write(row.key, row.version, said))
        with pytest.raises(ChainBroken, match=rf"`{paid.run_id}`.*`keys/"):
            await verify(world)
        world.close()

    run(go())
