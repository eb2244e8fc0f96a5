"""Controls: what decisions raise adds up, and binds to a later decision about the same call only."""

from __future__ import annotations

from typing import Any

from contextos.contracts.controls import Controls, KnownFacts, RunControls, bind_prohibited
from contextos.contracts.entries.kinds import account_of, fold_entry
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.journal import Logged
from tests.policies import LOOKUP, decide, leveled, policy, rule

MAX_3 = {"amount": [{"max": 3}]}
MAX_5 = {"amount": [{"max": 5}]}


def decision(point: str = "execute", **more: Any) -> PolicyDecision:
    body = {
        "policy_decision_id": "pol_0123456789abcdef",
        "point": point,
        "capability_id": "adp.pay",
        "allowed": True,
        "reason": "allowed",
        "facts_digest": "sha256:" + "0" * 64,
    }
    return PolicyDecision.model_validate(body | more)


def test_facts_with_another_run_are_of_the_intent_and_environment_that_it_states() -> None:
    one = KnownFacts({"run": {"intent": "a", "environment": "dev"}, "request": {"intent": "a"}})
    assert one.served == ("a", "dev")
    assert one.also({"args": {"x": 1}}).served == ("a", "dev")
    assert one.also({"run": {"intent": "b", "environment": "prod"}}).served == (None, "prod")
    assert one.also({"request": {"intent": "b"}}).served == (None, "dev")
    assert (
        one.also({"run": {}}).digest() == KnownFacts({"run": {}, "request": {"intent": "a"}}).digest() != one.digest()
    )


def test_controls_of_every_point_bind_and_none_is_removed() -> None:
    early = decision("compile", gates=["GATE_B"], requires=["x"], arg_constraints=MAX_3, must_escalate=["R_1"])
    bound = Controls.of(early).bind(decision(gates=["GATE_A"], requires=["w"], arg_constraints=MAX_5))
    assert (bound.gates, bound.requires, bound.must_escalate) == (("GATE_A", "GATE_B"), ("w", "x"), ("R_1",))
    assert [limit.max for limit in bound.arg_constraints["amount"]] == [5, 3]


def test_a_decision_that_has_them_already_is_unchanged() -> None:
    one = decision(gates=["GATE_B", "GATE_A"], arg_constraints=MAX_3)
    assert Controls.of(one).bind(one) is one
    assert Controls().bind(one) is one


def test_a_capability_governs_all_of_its_calls_and_a_step_its_own() -> None:
    raised = RunControls().with_compiled({"adp.pay": decision("compile", gates=["GATE_A"])})
    raised = raised.with_planned(1, {"s3": decision("plan", requires=["x"])})
    raised = raised.with_compiled({"adp.pay": decision("compile", gates=["GATE_B"])})
    assert raised.on_call("adp.pay", "0/s3") == Controls(gates=frozenset({"GATE_A", "GATE_B"}))
    assert raised.on_call("adp.pay", "1/s3").requires == {"x"}
    assert raised.on_call("adp.other", "0/s1") == Controls()


def test_an_escalation_about_any_capability_escalates_the_run() -> None:
    assert RunControls().must_escalate == ()
    assert RunControls().with_compiled({"adp.x": decision(must_escalate=["R_1"])}).must_escalate == ("R_1",)


ALLOWED = decide(policy(leveled(rule("R_ALLOW", {"==": [1, 1]}, allow=True))), {}, LOOKUP)
PROHIBITING = {"R_NO_MORE": (str(ALLOWED.capability_id),)}


def decided(*rules: str, several: bool = False) -> Logged:
    one = decision().to_json() | {"matched_rule_ids": list(rules)}
    return Logged(2, "policy.decided", "", 0, "runtime", {"decisions": [one]} if several else one, "")


def test_a_tool_is_denied_once_a_rule_has_matched_that_prohibits_it() -> None:
    for several in (False, True):
        account = account_of("run_00000000000000ab", [Logged(1, "run.pinned", "", 0, "runtime", {}, "")])
        assert bind_prohibited(ALLOWED, account.matched_rules, PROHIBITING) is ALLOWED
        fold_entry(account, decided("R_OTHER", several=several))
        assert bind_prohibited(ALLOWED, account.matched_rules, PROHIBITING) is ALLOWED
        fold_entry(account, decided("R_NO_MORE", several=several))
        for _ in range(2):
            denied = bind_prohibited(ALLOWED, account.matched_rules, PROHIBITING)
            assert (denied.allowed, denied.reason, denied.denying_rule_ids) == (False, "prohibited", ("R_NO_MORE",))
        assert bind_prohibited(ALLOWED, account.matched_rules, {"R_NO_MORE": ("another.tool",)}) is ALLOWED


def test_what_is_denied_already_keeps_its_reason() -> None:
    denied = ALLOWED.model_copy(update={"allowed": False, "reason": "no_rule_allows"})
    bound = bind_prohibited(denied, ("R_NO_MORE",), PROHIBITING)
    assert (bound.allowed, bound.reason) == (False, "no_rule_allows")
    assert "R_NO_MORE" in bound.denying_rule_ids, "a pack that observes is bound by it"
