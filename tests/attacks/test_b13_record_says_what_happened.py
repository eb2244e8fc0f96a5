"""H2, B13: the record says what happened: one per decision, under its key, with outputs and effects of any end.

The attacks: a run is refused before it has a plan and is filed under another decision of the pack; a payment is made
and the run escalates after it; a run makes two decisions and the first one has no record; a spec names an outcome that
never occurs.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.control.lint.pack import lint_pack
from contextos.errors import Unavailable
from tests.unit.control.example import pack as example_pack
from tests.world import TENANT, TestWorld, open_world, request, run

Body = dict[str, Any]
KEY, OTHER = "support.refund.execute", "support.zzz.close"
SPECS = "/decision_layer/decision_specs/0"


async def records(world: TestWorld, run_id: str) -> list[Body]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    return [read_body(one) for one in entries if one.kind == "record.revised"]


def with_another_spec(pack: Body) -> None:
    layer = pack["decision_layer"]
    layer["decision_specs"].append({**layer["decision_specs"][0], "decision_key": OTHER, "required_evidence": []})


def closing(pack: Body) -> None:
    """After the refund a second decision is made, about a last lookup."""
    with_another_spec(pack)
    template = pack["decision_layer"]["task_templates"][0]
    last = {**copy.deepcopy(template["steps"][0]), "id": "s4", "depends_on": ["s3"]}
    template["steps"].append(last)
    template["decision_checkpoints"].append({"decision_id": OTHER, "after_step": "s4"})
    pack["pack_meta"]["run_budget"]["max_tool_calls"] = 12


class Failing:
    """The orders of the shop, which are away from the second lookup on."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, 0

    def describe(self) -> AdapterDefinition:
        found: AdapterDefinition = self.inner.describe()
        return found

    async def call(self, capability: str, args: Body, context: CallContext) -> AdapterReply:
        self.calls += 1
        if self.calls > 1:
            raise Unavailable("adp_orders", "it is away")
        reply: AdapterReply = await self.inner.call(capability, args, context)
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        return None


def test_a_run_that_ends_before_its_plan_is_filed_under_its_own_decision(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=with_another_spec)
        body = request(900, "req_poor")
        body["runtime"] |= {"total_tokens": 1}
        view = await world.invoke(body)
        assert view.record is not None
        assert "plan.proposed" not in await world.kinds(view.run_id)
        assert (view.record["decision_key"], view.record["outcome"]) == (KEY, "escalated")
        await world.aclose()

    run(go())


def test_outputs_and_effects_of_a_run_that_escalates_later_are_in_its_record(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=closing)
        world.adapters["adp_orders"] = Failing(world.adapters["adp_orders"])  # type: ignore[assignment]
        view = await world.invoke(request(900, "req_later"))
        assert view.record is not None
        [paid] = [refund["transaction_id"] for refund in world.refunds()]
        assert (view.record["status"], view.record["decision_key"]) == ("ESCALATED", OTHER)
        assert view.record["outputs"]["transaction_id"] == paid
        [first, last] = (await records(world, view.run_id))[-2:]
        assert (first["decision_key"], first["status"], first["outcome"]) == (KEY, "DECIDED", "approved")
        [effect] = first["effects"]
        assert (effect["step_id"], effect["capability_id"], effect["state"], effect["made_by"]) == (
            "s3",
            "adp_payments.issue_refund",
            "happened",
            view.run_id,
        )
        assert last["record_hash"] == view.record["record_hash"] != first["record_hash"]
        assert last["record_id"] != first["record_id"]
        await world.aclose()

    run(go())


def test_an_effect_that_another_run_made_is_listed_as_its(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        first = await world.invoke(request(900, "req_first"))
        second = await world.invoke(request(900, "req_second"))
        assert second.record is not None
        assert [one["made_by"] for one in second.record["effects"]] == [first.run_id]
        await world.aclose()

    run(go())


@pytest.mark.parametrize("outcomes", [["approved"], ["approved", "denied", "escalated", "partly"], ["paid"]])
def test_a_spec_lists_the_outcomes_that_can_occur_and_no_other(outcomes: list[str]) -> None:
    problems = lint_pack(example_pack({f"{SPECS}/allowed_outcomes": outcomes}), None)
    assert {problem.pointer.rpartition("/allowed_outcomes")[0] for problem in problems} == {SPECS}
    assert {problem.code for problem in problems} <= {"outcome_never_occurs", "outcome_missing"}
