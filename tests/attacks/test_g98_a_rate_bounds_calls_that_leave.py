"""Calls of mode `network` have a rate: a read that leaves the machine is counted, over runs, and no more are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function.adapter import FunctionAdapter
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.envelopes.tool import CallContext
from tests.world import TENANT, TestWorld, open_world, request, run

ELIGIBLE, HOST, RATE = "adp_policy.eval", "rules.example:443", 3


def rated(pack: dict[str, Any]) -> None:
    """At most three questions to the rules service per minute, of all runs of the tenant."""
    pack["tooling_layer"]["egress"] = [HOST]
    pack["decision_layer"]["decision_specs"][0]["required_evidence"] = ["order_lookup"]
    template = pack["decision_layer"]["task_templates"][0]
    first, asks, _ = template["steps"]
    asks |= {"approval_mode": "network", "depends_on": [first["id"]]}
    template["decision_checkpoints"][0]["after_step"] = first["id"]
    bundle = pack["policy_layer"]["policy_bundles"][0]
    bundle["history"] = {"asked": {"capability": ELIGIBLE, "aggregate": "count", "over": "tenant", "window_s": 60}}
    scope = {"capability": ELIGIBLE}
    bundle["policy_dsl"]["rules"] += [
        {"rule_id": "R_ASK_RULES", "applies_to": scope, "if": True, "then": {"allow": True}},
        {
            "rule_id": "R_RATE",
            "applies_to": scope,
            "if": {">=": [{"var": "history.asked"}, RATE]},
            "then": {"allow": False},
        },
    ]


async def opened(path: Path, sent: list[str], stores: str) -> TestWorld:
    world = await open_world(path, stores=stores, pack=rated, egress={TENANT: (HOST,)})
    inner = world.adapters["adp_policy"]
    told = inner.describe()

    async def call(args: Mapping[str, Any], context: CallContext) -> Any:
        sent.append(context.run_id)
        return await inner.call("eval", args, context)

    (one,) = told.capabilities
    reaching = {"egress": (HOST,), "capabilities": (one.model_copy(update={"approval_mode": "network"}),)}
    world.adapters["adp_policy"] = FunctionAdapter(told.model_copy(update=reaching), {"eval": call})
    return world


def asked_for(number: int) -> dict[str, Any]:
    return request(900 + number, f"req_rate_{number}")


def refused(view: Any) -> bool:
    failures = [one["detail"] for one in view.record["rationale"]["failures"]]
    return view.state == "refused" and any("R_RATE" in one for one in failures)


@pytest.mark.parametrize("at_once", [False, True])
def test_no_more_reads_leave_than_the_rate_says(at_once: bool, stores: str, tmp_path: Path) -> None:
    sent: list[str] = []

    async def attack() -> None:
        world = await opened(tmp_path, sent, stores)
        try:
            bodies = [asked_for(number) for number in range(6)]
            views = (
                await asyncio.gather(*map(world.invoke, bodies))
                if at_once
                else [await world.invoke(body) for body in bodies]
            )
            assert len(sent) == RATE
            assert sum(map(refused, views)) == len(bodies) - RATE
            for view in views:
                assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
            world.clock.at_us += 61_000_000
            assert not refused(await world.invoke(asked_for(7)))
            assert len(sent) == RATE + 1
        finally:
            await world.aclose()

    run(attack())
