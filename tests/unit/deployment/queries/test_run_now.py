"""A run as it is now: the paused result of the call that waits, and what the run has used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextos.contracts.envelopes.tool import ToolResultEnvelope
from tests.world import TENANT, TestWorld, open_world, request, run

PAYMENTS, GATE = "adp_payments.issue_refund", "GATE_FINANCE_APPROVAL"


async def bodies(world: TestWorld, run_id: str, kind: str) -> list[Any]:
    return [json.loads(one.body) for one in await world.stores.tenant(TENANT).read(run_id) if one.kind == kind]


def test_a_call_that_waits_for_an_approval_has_a_paused_result(tmp_path: Path) -> None:
    async def story() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(4200, "req_waits"))
        paused = ToolResultEnvelope.sealed_from(view.waiting["result"])
        [asked] = await bodies(world, view.run_id, "approval.asked")
        assert (paused.status, paused.capability_id, paused.mutations) == ("paused", PAYMENTS, ())
        assert paused.tool_call_id == asked["binding"]["tool_call_id"]
        assert paused.metadata["requires_approval_gate"] == GATE
        shown = await world.runs().get(TENANT, view.run_id)
        assert shown.paused == paused
        ended = await world.approve(view.run_id)
        assert (await world.runs().get(TENANT, ended.run_id)).paused is None
        sent = [one["envelope"] for one in await bodies(world, view.run_id, "tool.dispatching")]
        assert sent[-1]["tool_call_id"] == paused.tool_call_id
        await world.aclose()

    run(story())


def test_a_run_shows_what_it_has_used_of_its_budget_so_far(tmp_path: Path) -> None:
    async def story() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(4200, "req_used"))
        before = await world.runs().budget(await world.runs().get(TENANT, view.run_id))
        assert before.atomic_usage.tool_calls == 2
        [context] = await bodies(world, view.run_id, "run.context")
        assert "atomic_usage" not in context["run_budget"]
        ended = await world.approve(view.run_id)
        after = await world.runs().budget(await world.runs().get(TENANT, view.run_id))
        used = ended.record["budget_usage"]
        assert after.atomic_usage.to_json() == {
            "tokens": used["tokens"],
            "tool_calls": used["tool_calls"],
            "latency_ms": after.atomic_usage.latency_ms,
            "cost_cents": used["cost_usd_cents"],
        }
        assert after.atomic_usage.latency_ms >= used["wall_clock_ms"] > 0
        await world.aclose()

    run(story())
