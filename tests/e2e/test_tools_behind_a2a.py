"""The refund example with its tools behind an A2A agent: an approved run, a task that outlives its call, and one that
asks for input.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition
from tests.servers.adapters import agent_adapter, reviewed_agent
from tests.servers.processes import agent_connection
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow


def written(definition: AdapterDefinition, strategy: str) -> AdapterDefinition:
    """The same definition, with a write that has two seconds and this strategy."""
    said = definition.to_json()
    for one in said["capabilities"]:
        if one["kind"] == "write":
            one |= {"idempotency": {"strategy": strategy}, "timeout_s": 2}
    return AdapterDefinition.model_validate(said)


@pytest.mark.parametrize("strategy", ["keyed", "lookup"])
def test_a_refund_is_approved_and_paid_once_and_its_run_replays(strategy: str, tmp_path: Path) -> None:
    """With `lookup`, the agent still works on the paid refund when the time of the call is over."""

    async def whole(world: TestWorld) -> None:
        view = await world.invoke(request(4200, "req_1"))
        assert view.waiting, view
        view = await world.approve(view.run_id)
        for _ in range(20):
            if view.state == "completed":
                break
            world.clock.at_us += 1_000_000
            await world.deployment.advance(TENANT, view.run_id)
            view = await world.deployment.view(TENANT, view.run_id)
        assert view.state == "completed", view.record
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        attempts = (await world.kinds(view.run_id)).count("tool.retry_due")
        assert (attempts > 0) == (strategy == "lookup")
        await replay(world.deployment, TENANT, view.run_id)

    world = run(open_world(tmp_path))
    with ExitStack() as on_exit:
        on_exit.callback(world.close)
        work_s = 3 if strategy == "lookup" else 0
        connection = on_exit.enter_context(agent_connection("shop_agent.py", tmp_path, work_s=work_s))
        for adapter_id, adapter in list(world.adapters.items()):
            definition = adapter.describe()
            said = written(definition, strategy) if strategy == "lookup" else definition
            world.adapters[adapter_id] = agent_adapter(reviewed_agent(said, connection))
        run(whole(world))


@pytest.mark.parametrize("asks", ["lookup", "issue_refund"])
def test_a_task_that_asks_for_input_pauses_a_read_and_leaves_a_write_to_a_person(asks: str, tmp_path: Path) -> None:
    """The agent paid before it asked. Nobody answers it, and nothing is paid twice."""

    async def whole(world: TestWorld) -> None:
        view = await world.invoke(request(900, "req_1"))
        if asks == "issue_refund":
            assert view.waiting, view
            assert view.waiting["for"] == "settlement"
            view = await world.settle(view.run_id, world.by_the_books())
            assert (view.state, len(world.refunds())) == ("completed", 1)
        else:
            assert view.ended
            assert [one["code"] for one in view.record["rationale"]["failures"]] == ["missing_evidence"]
            assert world.refunds() == []
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        answers = [read_body(one) or {} for one in entries if one.kind == "tool.returned"]
        errors = [one["envelope"]["error"]["code"] for one in answers if one["envelope"].get("error")]
        assert errors == ["input_required" if asks == "lookup" else "effect_uncertain"]
        assert {one["envelope"]["status"] for one in answers if one["envelope"].get("error")} == {"paused"}
        assert (await replay(world.deployment, TENANT, view.run_id)).compared == len(entries)
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)

    world = run(open_world(tmp_path))
    with ExitStack() as on_exit:
        on_exit.callback(world.close)
        connection = on_exit.enter_context(agent_connection("shop_agent.py", tmp_path, asks=asks))
        for adapter_id, adapter in list(world.adapters.items()):
            world.adapters[adapter_id] = agent_adapter(reviewed_agent(written(adapter.describe(), "none"), connection))
        run(whole(world))
