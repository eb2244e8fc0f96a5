"""H2, B13: evidence counts only for the arguments that it is about, and an answer only for what was asked.

The attacks: a pack checks another order than it refunds; the request names one order, whose customer is verified, and
another one is refunded; the payment service is asked for INR 1006 and answers that it paid USD 1; a refund that
another run made is shown as the own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.deployment.queries.timeline import tell_story
from tests.world import TENANT, TestWorld, open_world, request, run

Body = dict[str, Any]
OTHER = "ord_890"


async def results(world: TestWorld, run_id: str) -> list[Body]:
    """The results of the run's calls, from its journal."""
    entries = await world.stores.tenant(TENANT).read(run_id)
    return [read_body(one)["envelope"] for one in entries if one.kind in ("tool.returned", "tool.refused") and one.body]


async def story(world: TestWorld, run_id: str) -> str:
    """The history of the run, as `contextos runs show` prints it."""
    told = tell_story(await world.stores.tenant(TENANT).read(run_id))
    return "\n".join(moment.text for moments in told.values() for moment in moments)


def steps_of(pack: Body) -> list[Body]:
    found: list[Body] = pack["decision_layer"]["task_templates"][0]["steps"]
    return found


def checks_another_order(pack: Body) -> None:
    steps_of(pack)[1]["params"]["order_id"] = OTHER


def looks_up_another_order(pack: Body) -> None:
    steps_of(pack)[0]["params"]["order_id"] = OTHER


def checks_another_amount(pack: Body) -> None:
    pack["tooling_layer"]["permissions"][1]["agrees_with"] = {}
    steps_of(pack)[1]["params"]["amount_inr"] = 1


def refunds_another_order(pack: Body) -> None:
    """Every call is about another order; only the verified identity is that of the order in the request."""
    pack["tooling_layer"]["permissions"][2]["agrees_with"].pop("order_id")
    for step in steps_of(pack):
        step["params"]["order_id"] = OTHER


@pytest.mark.parametrize(
    ("pack", "named"),
    [
        (checks_another_order, "order_lookup"),
        (looks_up_another_order, "order_lookup"),
        (checks_another_amount, "policy.eval"),
        (refunds_another_order, "identity_verified"),
    ],
)
def test_evidence_about_something_else_satisfies_nothing(
    pack: Callable[[Body], None], named: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=pack)
        view = await world.invoke(request(1006, "req_other"))
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert (world.refunds(), view.record["status"] == "DECIDED") == ([], False)
        assert failure["code"] in ("missing_evidence", "policy_eval_error"), failure
        assert named in failure["detail"], failure
        await world.aclose()

    run(go())


def test_a_rule_reads_no_evidence_about_something_else(stores: str, tmp_path: Path) -> None:
    """The spec asks for nothing; the rules that allow read the check, and it is of another order."""

    def pack(body: Body) -> None:
        checks_another_order(body)
        body["decision_layer"]["decision_specs"][0]["required_evidence"] = []

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=pack)
        view = await world.invoke(request(1006, "req_rule"))
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert (world.refunds(), failure["code"]) == ([], "policy_eval_error")
        assert "evidence.policy.eval.eligible" in failure["detail"]
        await world.aclose()

    run(go())


class Answering:
    """The payments of the shop, which pay what was asked and answer something else."""

    def __init__(self, inner: Any, answer: Mapping[str, Any]) -> None:
        self.inner, self.answer = inner, answer

    def describe(self) -> AdapterDefinition:
        found: AdapterDefinition = self.inner.describe()
        return found

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        reply: AdapterReply = await self.inner.call(capability, args, context)
        assert reply.output is not None
        return reply.model_copy(update={"output": {**reply.output, **self.answer}})

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        found: AdapterReply | None = await self.inner.lookup(capability, idempotency_key, context)
        return found


@pytest.mark.parametrize("answer", [{"refund_amount_inr": 1, "currency": "USD"}, {"refund_amount_inr": 1}])
def test_an_answer_that_differs_from_what_was_asked_is_not_decided(answer: Body, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.adapters["adp_payments"] = Answering(world.adapters["adp_payments"], answer)  # type: ignore[assignment]
        view = await world.invoke(request(1006, "req_usd"))
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert (view.record["status"], failure["code"]) == ("ESCALATED", "output_disagrees")
        assert "amount_inr" in failure["detail"]
        paid = (await results(world, view.run_id))[-1]
        assert (paid["status"], paid["withheld"]["code"]) == ("completed", "output_disagrees")
        assert [one["state"] for one in view.record["effects"]] == ["happened"]
        # The payment happened: nobody sends it again under another request.
        again = await world.invoke(request(1006, "req_usd_again"))
        assert again.record is not None
        assert (len(world.refunds()), again.record["status"]) == (1, "ESCALATED")
        await world.aclose()

    run(go())


def test_a_replayed_operation_says_which_run_made_it(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        first = await world.invoke(request(900, "req_first"))
        second = await world.invoke(request(900, "req_second"))
        assert len(world.refunds()) == 1
        [replayed] = [one for one in await results(world, second.run_id) if one["metadata"].get("idempotent_replayed")]
        made = replayed["metadata"]["made_by"]
        paid = [
            one for one in await results(world, first.run_id) if one["capability_id"] == "adp_payments.issue_refund"
        ]
        assert made == {"run_id": first.run_id, "tool_call_id": paid[0]["tool_call_id"]}
        assert replayed["citations"] == paid[0]["citations"], "the answer is cited from the call that was made"
        assert first.run_id in await story(world, second.run_id)
        await world.aclose()

    run(go())
