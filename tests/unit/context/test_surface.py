"""Surfacing: granted, allowed by policy, under the ceiling, alive; the rest is withheld with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.context.compiler import compile_context
from contextos.contracts.envelopes.compiled import CompiledContext, SurfaceCapability
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode, PolicyDecision
from tests.unit.context import samples

LOOKUP, REFUND = "adp_orders.lookup", "adp_payments.issue_refund"


def compiled(**changes: Any) -> CompiledContext:
    return CompiledContext.model_validate(compile_context(samples.compile_input(**changes)))


def report(context: CompiledContext) -> dict[str, str]:
    return {entry.capability_id: entry.reason for entry in context.manifests.surface_report}


def surfaced(context: CompiledContext) -> set[str]:
    return {f"{entry.adapter_id}.{name}" for entry in context.manifests.tool_manifest for name in entry.capabilities}


def one(decision: PolicyDecision | None, ceiling: ApprovalMode = "destructive", **changes: Any) -> str:
    """Why the only capability there is was surfaced or not."""
    context = compiled(
        surface=[samples.capability(LOOKUP, **changes)],
        decisions={} if decision is None else {LOOKUP: decision},
        run=samples.run(safety_mode=ceiling),
    )
    (entry,) = context.manifests.surface_report
    assert surfaced(context) == ({LOOKUP} if entry.surfaced else set())
    assert context.context_ledger.tools == ((LOOKUP,) if entry.surfaced else ())
    assert any(block.bucket == "tool" for block in context.compiled_prompt.context_blocks) is entry.surfaced
    assert entry.surfaced is (entry.reason == "surfaced")
    return entry.reason


def test_what_passes_every_check_is_surfaced() -> None:
    assert one(samples.decision()) == "surfaced"


@pytest.mark.requirement("C-SURFACE", "C-SURFACE-REPORT")
@pytest.mark.parametrize("why", ["not_in_pack", "no_permission", "prohibited", "scope_missing"])
def test_a_capability_that_is_not_granted_is_withheld_with_the_registrys_reason(why: str) -> None:
    assert one(samples.decision(), granted=False, withheld=why) == why


def test_a_grant_with_a_reason_to_withhold_counts_as_none() -> None:
    assert one(samples.decision(), granted=True, withheld="prohibited") == "prohibited"


def test_not_granted_without_a_reason_is_no_permission() -> None:
    assert one(samples.decision(), granted=False) == "no_permission"


@pytest.mark.requirement("C-SURFACE")
@pytest.mark.parametrize(
    "decision",
    [
        None,
        samples.decision(allowed=False, reason="denied_by_rule"),
        samples.decision(point="execute"),
        samples.decision("adp_other.lookup"),
        samples.decision(None),
    ],
    ids=["missing", "denied", "of another point", "of another capability", "of no capability"],
)
def test_without_an_allowing_decision_of_its_own_at_compile_it_is_denied(decision: PolicyDecision | None) -> None:
    assert one(decision) == "policy_denied"


@pytest.mark.requirement("C-SURFACE")
@pytest.mark.parametrize("declared", APPROVAL_MODES)
@pytest.mark.parametrize("ceiling", APPROVAL_MODES)
def test_the_ceiling_withholds_every_mode_above_it(declared: ApprovalMode, ceiling: ApprovalMode) -> None:
    above = APPROVAL_MODES.index(declared) > APPROVAL_MODES.index(ceiling)
    assert one(samples.decision(), ceiling, approval_mode=declared) == ("above_safety_mode" if above else "surfaced")


@pytest.mark.requirement("C-SURFACE")
def test_a_mode_that_policy_lowers_does_not_slip_under_the_ceiling() -> None:
    lowered = samples.decision(effective_approval_mode="delegated")
    assert one(lowered, "delegated", approval_mode="destructive") == "above_safety_mode"


@pytest.mark.requirement("C-SURFACE")
@pytest.mark.parametrize("lifecycle", ["suspended", "killed"])
def test_an_inactive_capability_is_withheld(lifecycle: str) -> None:
    assert one(samples.decision(), lifecycle=lifecycle) == lifecycle


@pytest.mark.requirement("C-SURFACE-REPORT")
def test_the_first_reason_is_the_one_reported() -> None:
    everything_wrong = {"approval_mode": "destructive", "lifecycle": "killed"}
    assert one(None, "read_only", granted=False, withheld="prohibited", **everything_wrong) == "prohibited"
    assert one(None, "read_only", **everything_wrong) == "policy_denied"
    assert one(samples.decision(), "read_only", **everything_wrong) == "above_safety_mode"


CAPABILITY = st.builds(
    lambda number, mode, life, granted: samples.capability(
        f"adp_{number % 3}.cap_{number}", approval_mode=mode, lifecycle=life, granted=granted
    ),
    st.integers(0, 30),
    st.sampled_from(APPROVAL_MODES),
    st.sampled_from(["active", "suspended", "killed"]),
    st.booleans(),
)


@pytest.mark.requirement("C-SURFACE", "C-SURFACE-REPORT")
@given(
    st.lists(CAPABILITY, max_size=12, unique_by=lambda item: item.capability_id),
    st.sets(st.integers(0, 30)),
    st.sampled_from(APPROVAL_MODES),
)
def test_every_registered_capability_is_reported_and_only_the_permitted_are_surfaced(
    surface: list[SurfaceCapability], allowed: set[int], ceiling: ApprovalMode
) -> None:
    ids = {f"adp_{number % 3}.cap_{number}" for number in allowed}
    context = compiled(
        surface=surface, decisions={one: samples.decision(one) for one in ids}, run=samples.run(safety_mode=ceiling)
    )
    assert list(report(context)) == sorted(item.capability_id for item in surface)
    assert surfaced(context) == {
        item.capability_id
        for item in surface
        if item.granted
        and item.capability_id in ids
        and item.lifecycle == "active"
        and APPROVAL_MODES.index(item.approval_mode) <= APPROVAL_MODES.index(ceiling)
    }


def test_the_manifest_carries_risk_by_capability_from_the_registry() -> None:
    _, payments = compiled().manifests.tool_manifest
    assert payments.to_json()["capability_metadata"] == {
        "issue_refund": {
            "kind": "write",
            "risk_level": "write_irreversible",
            "approval_mode": "destructive",
            "source": "adapter_registry",
        }
    }


def test_the_permissions_bounds_and_the_policys_are_united_without_repeats() -> None:
    said = {"amount": [{"max": 3000}, {"max": 10000}], "note": [{"required": True}]}
    decision = samples.decision(REFUND, arg_constraints=said)
    context = compiled(
        surface=[samples.capability(REFUND, constraints={"amount": [{"max": 3000}], "currency": [{"enum": ["INR"]}]})],
        decisions={REFUND: decision},
    )
    (entry,) = context.manifests.tool_manifest
    assert entry.to_json()["constraints"] == {
        "issue_refund": {
            "amount": [{"max": 10000}, {"max": 3000}],
            "currency": [{"enum": ["INR"]}],
            "note": [{"required": True}],
        }
    }


def test_tools_of_the_template_come_before_others() -> None:
    ids = ["adp_a.other", LOOKUP]
    context = compiled(
        surface=[samples.capability(one) for one in ids], decisions={one: samples.decision(one) for one in ids}
    )
    blocks = [block.block_id for block in context.compiled_prompt.context_blocks if block.bucket == "tool"]
    assert blocks == [f"tool_{LOOKUP}", "tool_adp_a.other"]
