"""A sum counts every tool that has the effect, whatever its arguments are called, and each has its limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.ports.gates import Done, Refused
from contextos.errors import InvalidArtifact, InvalidInput
from tests.bank import PAY, TENANT, WIRE, in_bank, open_gate

OVER: dict[str, dict[str, Any]] = {
    "tenant": {"over": "tenant", "also": {WIRE: {"of": "rupees"}}},
    "user": {"over": "user", "also": {WIRE: {"of": "rupees"}}},
    "subject": {"over": "subject", "subject": "order", "also": {WIRE: {"of": "rupees", "subject": "bill"}}},
}


def fact(over: str) -> dict[str, Any]:
    return {"capability": PAY, "aggregate": "sum", "of": "amount", "window_s": 86_400, **OVER[over]}


def limit(tool: str, argument: str) -> dict[str, Any]:
    return {
        "rule_id": f"R_HOUSE_{tool.rpartition('.')[2].upper()}",
        "applies_to": {"capability": tool},
        "if": {">": [{"+": [{"var": "history.paid"}, {"var": [f"args.{argument}", 0]}]}, 1500]},
        "then": {"allow": False},
    }


LIMITS = (limit(PAY, "amount"), limit(WIRE, "rupees"))


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("first", [PAY, WIRE])
def test_a_second_tool_for_the_same_payment_is_in_the_sum(over: str, first: str) -> None:
    async def play(app: Any, paid: list[Any]) -> None:
        gate = await open_gate(app, "both")
        calls = {PAY: {"order": "ord_1", "amount": 1400}, WIRE: {"bill": "ord_1", "rupees": 1400}}
        second = WIRE if first == PAY else PAY
        assert isinstance(await gate.call(first, calls[first], call_id="one"), Done)
        refused = await gate.call(second, calls[second], call_id="two")
        assert isinstance(refused, Refused), paid
        assert refused.reasons[0].code == "policy_denied"
        small = {"order": "ord_1", "amount": 100} if second == PAY else {"bill": "ord_1", "rupees": 100}
        assert isinstance(await gate.call(second, small, call_id="three"), Done)
        assert paid == [("ord_1", 1400), ("ord_1", 100)]
        view = await gate.finish("approved")
        assert (await replay(app.deployment, TENANT, gate.run_id)).record_hash == view.record["record_hash"]
        await verify_tenant(app.deployment.ports.stores.tenant(TENANT), TENANT, app.keys)

    in_bank(play, *LIMITS, history={"paid": fact(over)})


def test_both_tools_at_the_same_time_do_not_pass_the_limit_together() -> None:
    async def play(app: Any, paid: list[Any]) -> None:
        gates = [await open_gate(app, f"s{number}") for number in range(4)]
        calls = [(PAY, {"order": "ord_1", "amount": 1400}), (WIRE, {"bill": "ord_2", "rupees": 1400})] * 2
        await asyncio.gather(*(gate.call(*call, call_id="one") for gate, call in zip(gates, calls, strict=True)))
        assert sum(amount for _, amount in paid) == 1400

    in_bank(play, *LIMITS, history={"paid": fact("tenant")})


def test_a_sum_about_one_tool_alone_is_not_filled_by_another_in_the_same_bucket() -> None:
    alone = {"capability": PAY, "aggregate": "count", "over": "tenant", "window_s": 60}
    once = {
        "rule_id": "R_HOUSE_ONCE",
        "applies_to": {"capability": PAY},
        "if": {">=": [{"var": "history.pays"}, 1]},
        "then": {"allow": False},
    }

    async def play(app: Any, paid: list[Any]) -> None:
        gate = await open_gate(app, "alone")
        assert isinstance(await gate.call(WIRE, {"bill": "ord_1", "rupees": 1}, call_id="one"), Done)
        assert isinstance(await gate.call(PAY, {"order": "ord_1", "amount": 1}, call_id="two"), Done)
        assert isinstance(await gate.call(PAY, {"order": "ord_2", "amount": 1}, call_id="three"), Refused)
        assert paid == [("ord_1", 1), ("ord_1", 1)]

    in_bank(play, *LIMITS, once, history={"paid": fact("tenant"), "pays": alone})


@pytest.mark.parametrize(
    ("also", "rules", "said"),
    [
        ({WIRE: {"of": "rupees"}}, LIMITS[:1], "its calls are counted and not limited"),
        ({"bank.wir": {"of": "rupees"}}, LIMITS, "declares no tool `bank.wir`"),
        ({"bank.*": {"of": "rupees"}}, LIMITS, "a pattern matches none"),
        ({WIRE: {}}, LIMITS, f"`{WIRE}` has no argument `amount`"),
        ({WIRE: {"of": "bill"}}, LIMITS, "cannot be added up"),
        ({WIRE: {"of": "rupees", "subject": "bill"}}, LIMITS, "only where the fact has one"),
        ({PAY: {}}, LIMITS, "names other tools than `capability`"),
    ],
)
def test_a_tool_that_would_not_be_counted_or_not_limited_is_refused(
    also: dict[str, Any], rules: tuple[dict[str, Any], ...], said: str
) -> None:
    async def play(app: Any, paid: list[Any]) -> None:
        raise AssertionError("it is published")

    with pytest.raises((InvalidArtifact, InvalidInput), match=said.replace("*", r"\*")):
        in_bank(play, *rules, history={"paid": fact("tenant") | {"also": also}})
