"""Policy about memories: what a decision reads, and a promotion that cannot be asked about. Whole runs: test_b07."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from contextos.contracts.controls import KnownFacts
from contextos.contracts.envelopes.memory import MemoryProposal
from contextos.contracts.facts import Vocabulary
from contextos.runtime.memory_policy import decide_memory, promotion_refusal
from contextos.trust.policy.policy_set import compile_policy
from tests.policies import leveled, rule, var

PROPOSAL = MemoryProposal.model_validate(
    {
        "proposal_id": "mwp_0123456789abcdef",
        "run_id": "run_0123456789abcdef",
        "candidate": {
            "entity_ceid": "order:ord_1",
            "predicate": "was_refunded",
            "value": 1,
            "evidence_refs": ["session:sess_1"],
            "confidence": 1,
        },
        "write_class": "decision_outcome",
        "tier_target": "episodic",
        "classification": "CONFIDENTIAL",
        "consent_check": "passed",
        "contradiction_check": {"existing": [], "verdict": "no_conflict"},
        "auto_promote_eligible": False,
        "ttl_s": None,
        "proposed_at_us": 1,
    }
)
FACTS = KnownFacts({"request": {"intent": "x"}, "run": {"environment": "dev"}, "user": {"role": "agent"}})


def test_rules_read_the_proposal_and_a_rule_about_calls_does_not_apply() -> None:
    about = rule("R_1", {"==": [var("memory.predicate"), "was_refunded"]})
    of_calls = rule("R_2", {"==": [var("capability.kind"), "write"]}, allow=False)
    policy = compile_policy(
        [leveled(about, of_calls)], gates=(), must_refuse=(), must_escalate=(), vocabulary=Vocabulary()
    )
    assert (policy.asked_at("memory"), policy.asked_at("commit")) == (True, False)
    decision = decide_memory(policy, FACTS, PROPOSAL, "memory")
    assert (decision.allowed, decision.point, decision.matched_rule_ids) == (True, "memory", ("R_1",))


@pytest.mark.parametrize(
    "changed", [{"entity_ceid": "order:ord_2"}, {"predicate": "was_lost"}, {"entity_ceid": "order:ord_1 "}]
)
def test_a_denial_of_one_memory_is_none_of_another(changed: dict[str, str]) -> None:
    """Whichever is asked about first, and although all other facts are the same object."""
    denied = {"and": [{"==": [var("memory.entity"), "order:ord_1"]}, {"==": [var("memory.predicate"), "was_refunded"]}]}
    other = PROPOSAL.model_copy(update={"candidate": PROPOSAL.candidate.model_copy(update=changed)})
    for asked in ([PROPOSAL, other, PROPOSAL, other], [other, PROPOSAL, other]):
        policy = compile_policy(
            [leveled(rule("R_DENY", denied, allow=False), rule("R_ALLOW", True, applies_to={"point": "memory"}))],
            gates=(),
            must_refuse=(),
            must_escalate=(),
            vocabulary=Vocabulary(),
        )
        for one in asked:
            assert decide_memory(policy, FACTS, one, "memory").allowed is (one is other)


def test_a_rule_about_memories_is_not_asked_about_calls() -> None:
    about = rule("R_1", {"==": [var("memory.predicate"), "was_refunded"]}, allow=False)
    policy = compile_policy(
        [leveled(about, rule("R_2", True))], gates=(), must_refuse=(), must_escalate=(), vocabulary=Vocabulary()
    )
    facts = {**FACTS, "args": {}, "evidence": {}, "provenance": {}}
    decision = policy.decide("execute", facts, capability=None, granted=False, decision_id="pol_0123456789abcdef")
    assert decision.matched_rule_ids == ("R_2",)


def test_a_run_without_the_entries_that_policy_reads_promotes_nothing() -> None:
    refused = asyncio.run(promotion_refusal(PROPOSAL, (), cast("Any", None), {}, ()))
    assert refused is not None
    assert (refused.reason, "erased" in refused.detail) == ("policy_denied", True)
