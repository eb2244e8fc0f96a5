"""Acts on a run that ended: which value can be granted, and which ends only a person can decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.tool import CallContext
from contextos.deployment.acts.ended_runs import close_decision, reopen_run, resolve_escalation
from contextos.deployment.operator import erase_entry
from contextos.deployment.queries.decisions import decision_of
from contextos.errors import ApprovalRefused, InvalidInput, NotFound
from tests.world import TENANT, TestWorld, open_world, request, run


async def exhausted(world: TestWorld) -> str:
    body = request(900, "req_short")
    body["runtime"]["max_tool_calls"] = 1
    return (await world.invoke(body)).run_id


@pytest.mark.parametrize("to", [None, 0, 1, -3, 2.5, float("nan"), float("inf"), 2.0**60])
def test_a_value_that_is_no_higher_limit_is_refused(to: Any, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        run_id = await exhausted(world)
        before = await world.kinds(run_id)
        with pytest.raises(InvalidInput) as refused:
            await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason="more", to=to)
        assert refused.value.problems
        assert await world.kinds(run_id) == before
        world.close()

    run(go())


def test_a_failure_that_comes_again_is_only_resolved_or_closed(tmp_path: Path) -> None:
    async def fail(_args: Any, _context: CallContext) -> Any:
        raise RuntimeError("the till is broken")

    async def go() -> None:
        from contextos.adapters.function.adapter import FunctionAdapter

        world = await open_world(tmp_path)
        definition = world.adapters["adp_orders"].describe()
        names = [one.name for one in definition.capabilities]
        world.adapters["adp_orders"] = FunctionAdapter(definition, dict.fromkeys(names, fail))
        view = await world.invoke(request(900, "req_broken"))
        assert view.state == "escalated"
        with pytest.raises(ApprovalRefused, match="comes again; resolve or close it"):
            await reopen_run(world.deployment, TENANT, view.run_id, by=world.actor(), reason="again")
        await resolve_escalation(world.deployment, TENANT, view.run_id, "DECIDED", by=world.actor(), reason="by hand")
        stands = await decision_of(world.stores.tenant(TENANT), view, world.keys)
        assert (stands.status, stands.reason) == ("DECIDED", "by hand")
        world.close()

    run(go())


def test_a_run_whose_requester_was_erased_is_nobodys_to_act_on(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        run_id = await exhausted(world)
        seq = (await world.kinds(run_id)).index("identity.resolved") + 1
        await erase_entry(world.deployment, TENANT, run_id, seq, by=world.actor(), reason="by law")
        with pytest.raises(ApprovalRefused, match="was erased"):
            await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason="over")
        world.close()

    run(go())


def test_a_request_that_was_not_admitted_can_be_closed_by_another(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        body = request(900, "req_nobody")
        body["user"]["user_id"] = "usr_nobody"
        view = await world.invoke(body)
        assert view.state == "refused"
        await close_decision(world.deployment, TENANT, view.run_id, by=world.actor(), reason="a typo")
        assert (await decision_of(world.stores.tenant(TENANT), view, world.keys)).status == "CLOSED"
        with pytest.raises(NotFound):
            await close_decision(world.deployment, TENANT, "run_none", by=world.actor(), reason="a typo")
        world.close()

    run(go())
