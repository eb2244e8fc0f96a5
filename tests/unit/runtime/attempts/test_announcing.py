"""What is announced at compile: the rules and gates whose facts are known, and no rule that waits for a step."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.world import TENANT, open_world, request


async def compiled_and_planned(path: Path, amount: int, pack: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    world = await open_world(path, pack=pack)
    view = await world.invoke(request(amount, "req_1"))
    entries = await world.deployment.ports.stores.tenant(TENANT).read(view.run_id)
    bodies = {one.kind: json.loads(one.body) for one in entries}
    world.close()
    return bodies["context.compiled"], bodies["plan.proposed"]


@pytest.mark.parametrize(("amount", "gates"), [(900, []), (4200, ["GATE_FINANCE_APPROVAL"])])
def test_a_gate_whose_facts_are_known_is_announced(tmp_path: Path, amount: int, gates: list[str]) -> None:
    compiled, plan = asyncio.run(compiled_and_planned(tmp_path, amount))
    [bundle] = compiled["manifests"]["policy_manifest"]
    assert compiled["runtime_controls"]["approval_gates_active"] == gates
    assert plan["steps"][2].get("requires", []) == gates
    assert "R_REFUND_REQUIRES_IDV" in bundle["rule_ids"]
    # They wait for the returns policy, which a step asks.
    assert not {"R_NOT_ELIGIBLE", "R_MORE_THAN_REFUNDABLE"} & set(bundle["rule_ids"])


def test_an_intent_without_parameters_announces_nothing(tmp_path: Path) -> None:
    def as_before(pack: dict[str, Any]) -> None:
        text = json.dumps(pack)
        for name in ("order_id", "refund_amount", "currency"):
            now = {"from": "parameter", "pointer": f"/{name}"}
            text = text.replace(
                json.dumps(now), json.dumps({"from": "request", "pointer": f"/input/context/{name}"})
            ).replace(f"/parameters/{name}", f"/input/context/{name}")
        pack.clear()
        pack.update(json.loads(text))
        del pack["decision_layer"]["intents"][0]["parameters"]

    compiled, plan = asyncio.run(compiled_and_planned(tmp_path, 4200, as_before))
    assert compiled["runtime_controls"]["approval_gates_active"] == []
    assert "requires" not in plan["steps"][2]
