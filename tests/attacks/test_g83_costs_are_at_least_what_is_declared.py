"""G83: an adapter that says that its calls cost nothing does not make room for more of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, ToolError
from tests.attacks.test_b11_budgets_bind_during_and_after_a_call import body_of
from tests.world import open_world, request, run


class Cheap:
    """The payments of the shop, which say another cost than the declared one."""

    def __init__(self, inner: Any, cost: float, *, fails: bool) -> None:
        self.inner, self.cost, self.fails = inner, cost, fails

    def describe(self) -> AdapterDefinition:
        found: AdapterDefinition = self.inner.describe()
        return found

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if self.fails:
            return AdapterReply(error=ToolError(code="declined", message="no"), cost_cents=self.cost)
        reply: AdapterReply = await self.inner.call(capability, args, context)
        return reply.model_copy(update={"cost_cents": self.cost})

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        return None


@pytest.mark.parametrize(("stated", "counts"), [(0, 0.31), (0.1, 0.31), (0.31, 0.31), (5, 5)])
@pytest.mark.parametrize("fails", [False, True])
def test_the_declared_cost_is_the_least(stated: float, counts: float, fails: bool, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        declared = world.adapters["adp_payments"].describe().capabilities
        assert [one.cost_cents for one in declared if one.name == "issue_refund"] == [0.31]
        cheap: Any = Cheap(world.adapters["adp_payments"], stated, fails=fails)
        world.adapters["adp_payments"] = cheap
        view = await world.invoke(request(900, "req_cheap"))
        returned = await body_of(world, view.run_id, "tool.returned")
        answer = returned.get("answer", returned)
        assert answer["cost_cents"] == counts
        assert answer["envelope"]["metadata"]["cost_cents"] == counts
        assert view.record is not None
        reads = view.record["budget_usage"]["cost_usd_cents"] - counts
        assert reads >= 0
        await world.aclose()

    run(go())
