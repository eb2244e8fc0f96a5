"""Controls in force, and the policy manifest behind them."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.context.compiler import compile_context
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.policy import PolicyBundle
from contextos.contracts.envelopes.verdicts import Failure
from tests.unit.context import samples

LOOKUP, REFUND = "adp_orders.lookup", "adp_payments.issue_refund"


def compiled(**changes: Any) -> CompiledContext:
    return CompiledContext.model_validate(compile_context(samples.compile_input(**changes)))


def bundle(bundle_id: str, rule_id: str, priority: int = 0) -> PolicyBundle:
    rule = {"rule_id": rule_id, "if": True, "then": {"allow": True}, "rationale": f"why {rule_id}"}
    return PolicyBundle.model_validate(
        {"bundle_id": bundle_id, "priority": priority, "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
    )


@pytest.mark.requirement("C-CONTROLS")
def test_controls_are_united_over_all_decisions_sorted_and_without_repeats() -> None:
    context = compiled(
        decisions={
            LOOKUP: samples.decision(must_escalate=["R_B", "R_A"], gates=["GATE_B"]),
            REFUND: samples.decision(REFUND, must_escalate=["R_A"], must_refuse=["R_C"], gates=["GATE_A", "GATE_B"]),
        }
    )
    assert context.runtime_controls.to_json() == {
        "must_refuse": ["R_C"],
        "must_escalate": ["R_A", "R_B"],
        "approval_gates_active": ["GATE_A", "GATE_B"],
        "redaction_rules_active": ["email", "pan"],
    }


@pytest.mark.requirement("C-CONTROLS")
def test_a_control_of_a_denied_capability_is_in_force_too() -> None:
    denied = samples.decision(allowed=False, reason="must_refuse", must_refuse=["R_NEVER"])
    assert compiled(decisions={LOOKUP: denied}).runtime_controls.must_refuse == ("R_NEVER",)


def test_active_controls_are_a_block_and_there_is_no_block_without_them() -> None:
    def blocks(context: CompiledContext) -> list[str]:
        return [block.block_id for block in context.compiled_prompt.context_blocks if block.bucket == "policy"]

    assert blocks(compiled())[0] == "controls"
    layers = samples.pack().to_json()
    layers["policy_layer"]["guardrails"] = {}
    quiet = compiled(pack=samples.pack(**layers), decisions={LOOKUP: samples.decision()})
    assert blocks(quiet) == []


@pytest.mark.requirement("C-POLICY-MANIFEST")
def test_the_manifest_names_bundles_by_priority_and_their_matched_rules() -> None:
    decision = samples.decision(
        bundle_ids=["POLICY_QUIET", "POLICY_RETURNS_V4", "POLICY_PLATFORM"],
        matched_rule_ids=["R_REFUND_REQUIRES_IDV", "R_PLATFORM"],
        denying_rule_ids=["R_NOT_MATCHED"],
    )
    context = compiled(decisions={LOOKUP: decision}, bundles=[bundle("POLICY_PLATFORM", "R_PLATFORM", 90)])
    assert [entry.to_json() for entry in context.manifests.policy_manifest] == [
        {"bundle_id": "POLICY_PLATFORM", "rule_ids": ["R_PLATFORM"]},
        {"bundle_id": "POLICY_RETURNS_V4", "rule_ids": ["R_NOT_MATCHED", "R_REFUND_REQUIRES_IDV"]},
        {"bundle_id": "POLICY_QUIET", "rule_ids": []},
    ]
    assert context.context_ledger.policy_bundles == ("POLICY_PLATFORM", "POLICY_RETURNS_V4", "POLICY_QUIET")


@pytest.mark.requirement("C-POLICY-MANIFEST")
def test_a_rule_that_two_bundles_hold_is_listed_under_both() -> None:
    decision = samples.decision(matched_rule_ids=["R_REFUND_REQUIRES_IDV"])
    context = compiled(decisions={LOOKUP: decision}, bundles=[bundle("POLICY_OTHER", "R_REFUND_REQUIRES_IDV")])
    assert {entry.bundle_id for entry in context.manifests.policy_manifest} == {"POLICY_OTHER", "POLICY_RETURNS_V4"}


def test_a_bundle_that_is_handed_in_twice_counts_once() -> None:
    own = samples.pack().policy_layer.policy_bundles[0]
    other = bundle("POLICY_OTHER", "R_REFUND_REQUIRES_IDV")
    once, twice = compiled(bundles=[other]), compiled(bundles=[own, other, own, other])
    assert once == twice


@pytest.mark.requirement("C-POLICY-MANIFEST")
def test_a_matched_rule_of_no_bundle_in_force_ends_the_compile() -> None:
    decision = samples.decision(matched_rule_ids=["R_FROM_NOWHERE"])
    failure = compile_context(samples.compile_input(decisions={LOOKUP: decision}))
    assert isinstance(failure, Failure)
    assert failure.code == "policy_eval_error"
    assert failure.rule_ids == ("R_FROM_NOWHERE",)


def test_a_guardrail_condition_needs_no_bundle() -> None:
    decision = samples.decision(
        allowed=False, matched_rule_ids=["R_GUARD_AB"], denying_rule_ids=["R_GUARD_AB"], must_refuse=["R_GUARD_AB"]
    )
    assert compiled(decisions={LOOKUP: decision}).runtime_controls.must_refuse == ("R_GUARD_AB",)


def test_a_matched_rule_comes_with_its_rationale_and_reference() -> None:
    blocks = {block.block_id: block for block in compiled().compiled_prompt.context_blocks}
    rule = blocks["rule_R_REFUND_REQUIRES_IDV"]
    assert '"rationale":"identity first"' in rule.content
    assert rule.provenance_refs == ("policy:POLICY_RETURNS_V4#R_REFUND_REQUIRES_IDV",)
