"""`then.prohibits`: from the decision on in which its rule matches, the run cannot use the tool any more."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.ports.gates import Done, Refused
from tests.bank import PAY, TENANT, in_bank, open_gate

ROLLBACK = "bank.rollback"
LARGE: dict[str, Any] = {
    "rule_id": "R_HOUSE_LARGE",
    "if": {">": [{"var": ["args.amount", 0]}, 100]},
    "then": {"allow": True, "prohibits": [ROLLBACK]},
}


@pytest.mark.parametrize("who", ["deployer", "someone_else"])
def test_a_pack_that_observes_is_prohibited_too_also_where_its_own_rules_deny_the_call(who: str) -> None:
    async def play(app: Any, paid: list[Any]) -> None:
        gate = await open_gate(app, "large")
        assert isinstance(await gate.call(PAY, {"order": "ord_1", "amount": 101}, call_id="pay"), Done)
        assert isinstance(await gate.call(ROLLBACK, {"order": "ord_2"}, call_id="after"), Refused)
        assert paid == [("ord_1", 101)]

    in_bank(play, LARGE, pack={"mode": "observe", "who": [who]})


@pytest.mark.parametrize("allow", [True, False])
def test_a_tool_is_prohibited_from_the_call_on_that_a_rule_matched(allow: bool) -> None:
    rule = {**LARGE, "then": {**LARGE["then"], "allow": allow}}

    async def play(app: Any, paid: list[Any]) -> None:
        gate = await open_gate(app, "large")
        assert isinstance(await gate.call(ROLLBACK, {"order": "ord_1"}, call_id="before"), Done)
        assert isinstance(
            await gate.call(PAY, {"order": "ord_1", "amount": 101}, call_id="pay"), Done if allow else Refused
        )
        for number in range(2):
            refused = await gate.call(ROLLBACK, {"order": "ord_2"}, call_id=f"after{number}")
            assert isinstance(refused, Refused)
            assert (refused.reasons[0].code, "prohibited by `R_HOUSE_LARGE`" in str(refused)) == ("policy_denied", True)
        # Nothing else is prohibited, and no other run.
        assert isinstance(await gate.call(PAY, {"order": "ord_1", "amount": 1}, call_id="small"), Done)
        other = await open_gate(app, "other")
        assert isinstance(await other.call(ROLLBACK, {"order": "ord_2"}, call_id="before"), Done)
        view = await gate.finish("approved")
        assert (await replay(app.deployment, TENANT, gate.run_id)).record_hash == view.record["record_hash"]
        said = [one.text for one in (await app.runs.why(await app.runs.get(TENANT, gate.run_id))).reasons]
        assert "R_HOUSE_LARGE prohibits `bank.rollback` from here on" in said
        [*denials] = [one for one in said if "a rule prohibits it from here on" in one]
        assert len(denials) == 2
        assert all("R_HOUSE_LARGE" in one for one in denials)

    in_bank(play, rule)
