"""B10: twelve refunds of 2,999 on one order do not slip under a limit of 3,000, one by one or all at once."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from contextos.deployment.operator import SettlementInput
from contextos.deployment.queries.run_view import RunView
from contextos.errors import LostReply
from tests.world import OPERATOR, TENANT, TestWorld, open_world, request, run

CAPABILITY = "adp_payments.issue_refund"
REFUNDED = {
    "capability": CAPABILITY,
    "aggregate": "sum",
    "of": "amount_inr",
    "over": "subject",
    "subject": "order_id",
    "window_s": 86_400,
}
TOGETHER = {">": [{"+": [{"var": "history.refunded"}, {"var": "args.amount_inr"}]}, 3000]}


def bundle_of(pack: dict[str, Any]) -> dict[str, Any]:
    bundle: dict[str, Any] = pack["policy_layer"]["policy_bundles"][0]
    return bundle


def limited(pack: dict[str, Any], fact: Mapping[str, Any] = REFUNDED, condition: Any = TOGETHER) -> None:
    """Deny a refund that with the earlier ones on its order is above INR 3000."""
    bundle = bundle_of(pack)
    bundle["history"] = {"refunded": dict(fact)}
    rule = copy.deepcopy(next(one for one in bundle["policy_dsl"]["rules"] if one["rule_id"] == "R_NOT_ELIGIBLE"))
    rule |= {"rule_id": "R_TOGETHER_ABOVE_LIMIT", "if": condition, "rationale": "small refunds add up"}
    bundle["policy_dsl"]["rules"].append(rule)


def refund(number: int, amount: int = 2_999, order: str = "ord_895") -> dict[str, Any]:
    """A refund on one order; each amount is another operation, so no idempotency key finds it again."""
    body = request(amount - number, f"req_history_{number}")
    body["input"]["context"]["order_id"] = order
    return body


def denied(view: RunView) -> bool:
    assert view.record is not None
    if view.state == "completed":
        return False
    assert view.state == "refused", view.record["rationale"]
    assert "R_TOGETHER_ABOVE_LIMIT" in view.record["rationale"]["failures"][0]["detail"]
    return True


async def open_limited(path: Path, stores: str, **options: Any) -> TestWorld:
    world = await open_world(path, stores=stores, pack=options.pop("pack", limited), **options)
    await world.stock("ord_x1", total_inr=250_000)
    return world


def test_twelve_refunds_one_after_the_other_move_one(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        world = await open_limited(tmp_path, stores)
        try:
            views = [await world.invoke(refund(number, order="ord_x1")) for number in range(12)]
            assert [denied(view) for view in views] == [False] + [True] * 11
            assert [one["amount_inr"] for one in world.refunds()] == [2_999]
            for view in views[:2]:
                assert view.record is not None
                assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        finally:
            await world.aclose()

    run(attack())


def test_twelve_refunds_at_the_same_time_move_one(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        world = await open_limited(tmp_path, stores)
        try:
            views = await asyncio.gather(*(world.invoke(refund(number, order="ord_x1")) for number in range(12)))
            assert sum(not denied(view) for view in views) == 1
            assert len(world.refunds()) == 1
        finally:
            await world.aclose()

    run(attack())


@pytest.mark.parametrize("happened", [True, False])
def test_an_effect_that_may_have_happened_counts_until_it_certainly_did_not(
    tmp_path: Path, stores: str, happened: bool
) -> None:
    answer = {"transaction_id": "txn_1", "refund_amount_inr": 2_999, "currency": "INR"}

    async def attack() -> None:
        world = await open_limited(tmp_path, stores, payments="none")
        lost: list[int] = []

        async def lose_the_first(args: Mapping[str, Any], _context: CallContext) -> AdapterReply:
            if not lost:
                lost.append(1)
                raise LostReply("the answer was lost")
            return AdapterReply(output=answer | {"refund_amount_inr": args["amount_inr"]}, mutations=("refund:txn_1",))

        try:
            definition = world.adapters["adp_payments"].describe()
            world.adapters["adp_payments"] = FunctionAdapter(definition, {"issue_refund": lose_the_first})
            first = await world.invoke(refund(0, order="ord_x1"))
            assert first.waiting
            assert denied(await world.invoke(refund(1, order="ord_x1"))), "it may have been paid"
            found = SettlementInput(happened, OPERATOR, "kg:order:ord_881#snapshot_kg_1", answer if happened else None)
            await world.settle(first.run_id, found)
            assert denied(await world.invoke(refund(2, order="ord_x1"))) is happened
        finally:
            await world.aclose()

    run(attack())


def test_an_effect_that_the_other_side_refused_does_not_count(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        world = await open_limited(tmp_path, stores)
        inner = world.adapters["adp_payments"]
        refused: list[int] = []

        async def refuse_the_first(args: Mapping[str, Any], context: CallContext) -> Any:
            if not refused:
                refused.append(1)
                raise BusinessError("closed", "the bank is closed")
            return await inner.call("issue_refund", args, context)

        try:
            world.adapters["adp_payments"] = FunctionAdapter(inner.describe(), {"issue_refund": refuse_the_first})
            first = await world.invoke(refund(0, order="ord_x1"))
            assert first.state != "completed"
            assert not denied(await world.invoke(refund(1, order="ord_x1")))
        finally:
            await world.aclose()

    run(attack())


@pytest.mark.parametrize("over", ["user", "agent", "tenant"])
def test_a_limit_over_all_orders_counts_all_orders_within_its_window(tmp_path: Path, over: str) -> None:
    fact = {"capability": CAPABILITY, "aggregate": "count", "over": over, "window_s": 60}
    condition = {">=": [{"var": "history.refunded"}, 2]}

    async def attack() -> None:
        world = await open_limited(tmp_path, "sqlite", pack=lambda pack: limited(pack, fact, condition))
        try:
            await world.stock("ord_x2", "ord_x3", "ord_x4", total_inr=250_000)
            views = [await world.invoke(refund(n, order=f"ord_x{n}")) for n in (1, 2, 3)]
            assert [denied(view) for view in views] == [False, False, True]
            world.clock.at_us += 61_000_000
            assert not denied(await world.invoke(refund(4, order="ord_x4"))), "the window is over"
        finally:
            await world.aclose()

    run(attack())


def test_the_last_refund_waits_for_a_person_while_others_are_paid(tmp_path: Path, stores: str) -> None:
    """What a person approved is decided again with the history of the moment at which it is sent."""

    def limited_to_5000(pack: dict[str, Any]) -> None:
        limited(pack, condition={">": [{"+": [{"var": "history.refunded"}, {"var": "args.amount_inr"}]}, 5_000]})

    async def attack() -> None:
        world = await open_limited(tmp_path, stores, pack=limited_to_5000)
        try:
            asked = await world.invoke(refund(0, 4_200, order="ord_x1"))
            assert asked.waiting

            async def pay_another() -> None:
                assert not denied(await world.invoke(refund(1, 2_000, order="ord_x1")))

            view = await world.approve(asked.run_id, then=pay_another)
            assert view.ended
            assert [one["amount_inr"] for one in world.refunds()] == [1_999]
        finally:
            await world.aclose()

    run(attack())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fact": {"of": "amount_usd"}}, "has no argument `amount_usd`"),
        ({"fact": {"subject": "order"}}, "has no argument `order`"),
        ({"fact": {"of": "currency"}}, "cannot be added up"),
        ({"fact": {"capability": "adp_orders.lookup", "of": None, "aggregate": "count"}}, "has no effects"),
        ({"condition": {">": [{"var": "history.refundd"}, 3000]}}, "no fact `history.refundd`"),
    ],
)
def test_a_history_that_would_never_count_stops_the_pack(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    fact = {name: value for name, value in (REFUNDED | change.get("fact", {})).items() if value is not None}

    async def attack() -> None:
        pack = partial(limited, fact=fact, condition=change.get("condition", TOGETHER))
        world = await open_world(tmp_path, pack=pack)
        view = await world.invoke(request(100, "req_refused"))
        assert view.record is not None
        assert (view.state, world.refunds()) == ("rejected", [])
        assert says in view.record["rationale"]["failures"][0]["detail"]
        await world.aclose()

    run(attack())
