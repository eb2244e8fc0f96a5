"""The example's shop: it pays once where it says so, and breaks where a test asks it to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from contextos.action.registry import Registry
from contextos.adapters.function.adapter import FunctionAdapter
from contextos.adapters.function.loading import load_function_adapters, source_digest
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from contextos.errors import LostReply

ROOT = Path(__file__).resolve().parents[2] / "examples" / "support_refund"
KEY = "ik_0123456789abcdef"
REFUND = {"order_id": "ord_881", "amount_inr": 4200, "currency": "INR"}


def context(key: str | None = KEY, *, not_after_us: int = 1 << 60) -> CallContext:
    return CallContext("tenant_acme_prod", "run_1", "tool_0f1e2d3c4b5a6978", key, not_after_us, 60_000)


class Opened:
    """The shop in a directory, by capability."""

    def __init__(self, workspace: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHOP_PAYMENTS", mode)
        self.workspace = workspace
        self.adapters: dict[str, FunctionAdapter] = {}
        digest = source_digest("shop.py:adapters", root=ROOT)
        for adapter in load_function_adapters("shop.py:adapters", digest, root=ROOT, workspace=workspace).adapters:
            assert isinstance(adapter, FunctionAdapter)
            self.adapters[adapter.describe().adapter_id] = adapter
        self.module: ModuleType = sys.modules[self.adapters["adp_orders"]._functions["lookup"].__module__]

    def call(self, capability: str, args: dict[str, Any], given: CallContext | None = None) -> AdapterReply:
        adapter, _, name = capability.partition(".")
        return asyncio.run(self.adapters[adapter].call(name, args, given or context()))

    def refund(self, key: str = KEY, **changes: Any) -> AdapterReply:
        return self.call("adp_payments.issue_refund", REFUND | changes, context(key))

    def lookup(self, key: str = KEY) -> AdapterReply | None:
        return asyncio.run(self.adapters["adp_payments"].lookup("issue_refund", key, context(key)))

    def paid(self) -> list[tuple[str, int, str]]:
        shop = self.module.Shop(self.workspace / "shop.db")
        try:
            return [(row["order_id"], row["amount_inr"], row["key"]) for row in shop.refunds()]
        finally:
            shop.close()


@pytest.fixture(params=["keyed", "lookup", "none"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(tmp_path, request.param, monkeypatch)


def mode_of(shop: Opened) -> str:
    return shop.adapters["adp_payments"].describe().capabilities[0].idempotency.strategy


def test_the_definitions_fit_the_registry_and_the_answers_fit_their_schemas(shop: Opened) -> None:
    registry = Registry()
    capabilities = registry.register([adapter.describe() for adapter in shop.adapters.values()])
    given = {
        "adp_orders.lookup": {"order_id": "ord_881"},
        "adp_policy.eval": {"order_id": "ord_881", "amount_inr": 4200},
        "adp_payments.issue_refund": REFUND,
    }
    assert given.keys() == capabilities.keys()
    for name, args in given.items():
        assert registry.check(capabilities[name], "input", args) is None
        assert registry.check(capabilities[name], "output", shop.call(name, args).output) is None


def test_an_order_is_read_as_it_is(shop: Opened) -> None:
    order = shop.call("adp_orders.lookup", {"order_id": "ord_881"}).output
    assert order == {
        "order_id": "ord_881",
        "customer_id": "cus_77",
        "total_inr": 9900,
        "currency": "INR",
        "status": "delivered",
    }


def test_an_order_that_is_not_there_is_a_business_error(shop: Opened) -> None:
    for name, args in (("adp_orders.lookup", {}), ("adp_policy.eval", {"amount_inr": 1})):
        error = shop.call(name, {"order_id": "ord_none", **args}).error
        assert error is not None
        assert error.code == "order_not_found"


def test_eligibility_subtracts_earlier_refunds(shop: Opened) -> None:
    ask = {"order_id": "ord_881", "amount_inr": 6000}
    before = shop.call("adp_policy.eval", ask).output
    shop.refund()
    after = shop.call("adp_policy.eval", ask).output
    assert before == {"eligible": True, "refundable_inr": 9900, "policy_version": "returns-4"}
    assert after == {"eligible": False, "refundable_inr": 5700, "policy_version": "returns-4"}


def test_an_order_that_was_not_delivered_is_not_refundable(shop: Opened) -> None:
    answer = shop.call("adp_policy.eval", {"order_id": "ord_883", "amount_inr": 100}).output
    assert answer == {"eligible": False, "refundable_inr": 0, "policy_version": "returns-4"}


def test_a_refund_names_its_mutation_and_its_cost(shop: Opened) -> None:
    reply = shop.refund()
    assert reply.output is not None
    assert (reply.output["refund_amount_inr"], reply.output["currency"]) == (4200, "INR")
    assert reply.mutations == (f"refund:{reply.output['transaction_id']}",)
    assert reply.cost_cents == 0.31
    assert shop.paid() == [("ord_881", 4200, KEY)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"amount_inr": 9901}, "not_refundable"),
        ({"currency": "USD"}, "wrong_currency"),
        ({"order_id": "ord_none"}, "order_not_found"),
    ],
)
def test_the_shop_says_no_by_itself_and_pays_nothing(shop: Opened, changes: dict[str, Any], code: str) -> None:
    error = shop.refund(**changes).error
    assert error is not None
    assert error.code == code
    assert shop.paid() == []


def test_the_same_key_pays_once_only_where_payments_are_keyed(shop: Opened) -> None:
    first, second = shop.refund(), shop.refund()
    assert (first.output == second.output) is (mode_of(shop) == "keyed")
    assert len(shop.paid()) == (1 if mode_of(shop) == "keyed" else 2)


def test_another_key_is_another_refund(shop: Opened) -> None:
    assert shop.refund().output != shop.refund("ik_other00000000000").output
    assert len(shop.paid()) == 2


def test_only_a_shop_with_lookup_can_be_asked_about_a_key(shop: Opened) -> None:
    if mode_of(shop) != "lookup":
        with pytest.raises(LostReply):
            shop.lookup()
        return
    assert shop.lookup() is None
    paid = shop.refund()
    assert shop.lookup() == paid


def test_only_a_shop_with_lookup_refuses_a_call_that_comes_late(shop: Opened) -> None:
    reply = shop.call("adp_payments.issue_refund", REFUND, context(not_after_us=time.time_ns() // 1000 - 1))
    late = mode_of(shop) == "lookup"
    assert (reply.error is not None and reply.error.code == "too_late") is late
    assert len(shop.paid()) == (0 if late else 1)


def test_a_reply_can_be_lost_after_the_payment_is_durable(shop: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_FAILPOINT", "lose_reply")
    with pytest.raises(LostReply, match="answer was lost"):
        shop.refund()
    assert len(shop.paid()) == 1
    monkeypatch.delenv("SHOP_FAILPOINT")
    if mode_of(shop) == "keyed":
        assert shop.refund().output is not None
    if mode_of(shop) == "lookup":
        assert shop.lookup() is not None
    assert len(shop.paid()) == 1


DIES = """
import asyncio, sys
from pathlib import Path
from contextos.adapters.function.loading import load_function_adapters
from contextos.contracts.envelopes.tool import CallContext
given = CallContext("t", "run_1", "tool_1", "ik_0123456789abcdef", 1 << 60, 60_000)
root, workspace = map(Path, sys.argv[1:])
adapters = load_function_adapters("shop.py:adapters", None, root=root, workspace=workspace).adapters
args = {"order_id": "ord_881", "amount_inr": 4200, "currency": "INR"}
asyncio.run(adapters[2].call("issue_refund", args, given))
"""


def test_the_process_can_die_after_the_payment_is_durable(shop: Opened) -> None:
    source = str(ROOT.parents[1] / "src")
    env = {**os.environ, "SHOP_FAILPOINT": "after_payment", "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(ROOT), str(shop.workspace)], env=env, check=False, capture_output=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert shop.paid() == [("ord_881", 4200, KEY)]


def test_asking_again_for_one_refund_is_one_act_over_all_runs(shop: Opened) -> None:
    declared = shop.adapters["adp_payments"].describe().capabilities[0]
    assert declared.idempotency.scope == "tenant"
    assert declared.idempotency.identity_args == ("order_id", "amount_inr", "currency")
    assert declared.idempotency.honours_not_after is (mode_of(shop) == "lookup")
