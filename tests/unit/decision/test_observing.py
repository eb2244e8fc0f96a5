"""What the Critic refuses of an observed plan: recorded, unless it protects the tool, the machine or a rule above."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.plan import Plan, PlanStep
from contextos.contracts.envelopes.policy import PolicyDecision, RulesAbove
from contextos.contracts.envelopes.verdicts import Failure
from contextos.decision.critic import PlanVerification, verdict_on
from contextos.decision.observing import observe_plan

TOOL = "shop.refund"
STEP = PlanStep(id="refund_1", tool=TOOL, approval_mode="destructive")
PLAN = Plan(plan_id="plan_0123456789abcdef", intent="shop", steps=(STEP,), revision=3, planner="agent@1")
NOTHING_ABOVE = RulesAbove(frozenset(), frozenset(), frozenset(), frozenset(), ())


class Recording:
    """A journal that keeps what is derived."""

    def __init__(self) -> None:
        self.derived: list[tuple[str, str, Any]] = []

    def derive(self, kind: str, key: str, body: Any) -> None:
        self.derived.append((kind, key, body))


def judged(
    failures: tuple[Failure, ...], decisions: tuple[PolicyDecision, ...] = (), above: RulesAbove = NOTHING_ABOVE
) -> tuple[PlanVerification, list[Any]]:
    journal: Any = Recording()
    return observe_plan(verdict_on(failures), PLAN, decisions, above, journal), journal.derived


def test_what_the_pack_refuses_is_recorded_and_passes() -> None:
    denied = Failure(code="policy_denied", detail="no", capability_id=TOOL, rule_ids=("R_OTHERS",))
    lacking = Failure(code="missing_evidence", detail="none")
    verified, ((kind, key, body),) = judged((denied, lacking))
    assert verified == PlanVerification("ok", ())
    assert (kind, key, body["by"]) == ("call.observed", "3/refund_1/critic", "critic")
    assert [(one["code"], one["rule_ids"]) for one in body["findings"]] == [
        ("policy_denied", ["R_OTHERS"]),
        ("missing_evidence", []),
    ]


@pytest.mark.parametrize("code", ["schema_mismatch", "budget_exhausted"])
def test_what_protects_the_tool_and_the_machine_still_refuses(code: Any) -> None:
    failure = Failure(code=code, detail="no")
    verified, derived = judged((failure,))
    assert verified.failures == (failure,)
    assert verified.verdict != "ok"
    assert derived == []


def test_a_denial_by_a_rule_above_the_pack_still_refuses() -> None:
    decision = PolicyDecision(
        policy_decision_id="pol_0123456789abcdef",
        point="plan",
        capability_id=TOOL,
        allowed=False,
        reason="denied_by_rule",
        denying_rule_ids=("R_HOUSE",),
        facts_digest="sha256:" + "0" * 64,
    )
    denied = Failure(code="policy_denied", detail="no", capability_id=TOOL, rule_ids=("R_HOUSE",))
    above = RulesAbove(frozenset({"R_HOUSE"}), frozenset(), frozenset(), frozenset(), ())
    assert judged((denied,), (decision,), above)[0].failures == (denied,)
    assert judged((denied,), (decision,))[0].verdict == "ok"


def test_nothing_is_recorded_where_nothing_is_refused() -> None:
    assert judged(()) == (PlanVerification("ok", ()), [])
