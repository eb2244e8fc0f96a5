"""The refund example with its tools behind an A2A agent: an approved run, and a task that outlives its call."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterDefinition
from tests.servers.adapters import agent_adapter, agent_connection, reviewed_agent
from tests.world import TENANT, TestWorld, open_world, request, run


def looked_up(definition: AdapterDefinition) -> AdapterDefinition:
    """The same definition, with a write that has two seconds and can be looked up."""
    said = definition.to_json()
    for one in said["capabilities"]:
        if one["kind"] == "write":
            one |= {"idempotency": {"strategy": "lookup"}, "timeout_s": 2}
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
            said = looked_up(definition) if strategy == "lookup" else definition
            world.adapters[adapter_id] = agent_adapter(reviewed_agent(said, connection))
        run(whole(world))
