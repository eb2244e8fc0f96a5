"""H2, B7: a control binds from the point that raised it on, whichever point that is.

The attack is a pack that says at `compile`, or at `plan`, what has to happen before money moves. Before, the record
listed the control as active and the refund was paid.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import POLICY_TYPE
from contextos.intelligence.memory import list_candidates
from contextos.runtime.state_machine import ENDS
from contextos.trust.seal import seal
from tests.world import APPROVER, TENANT, open_world, request, run

PAYMENTS = "adp_payments.issue_refund"
GATE = "GATE_FINANCE_APPROVAL"
ALWAYS = {"==": [{"var": "tenant.tenant_id"}, TENANT]}

Body = dict[str, Any]


def raised(
    point: str, capability: str | None = PAYMENTS, *, escalates: bool = False, **then: Any
) -> Callable[[Body], None]:
    """A rule that matches at one point only, and what it says then."""
    applies = {"point": point, "intent": "support.refund"} | ({"capability": capability} if capability else {})
    rule = {"rule_id": "R_EARLY", "applies_to": applies, "if": ALWAYS, "then": {"allow": True, **then}}

    def change(body: Body) -> None:
        refs = body["intelligence_refs"]
        refs["ontology"]["relationship_types"].append("change_freeze")
        refs["retrieval"]["evidence"].append(
            {"name": "change_freeze", "seed": 0, "path": ["placed_by", "change_freeze"]}
        )
        body["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].append(rule)
        if escalates:
            body["policy_layer"]["guardrails"]["must_escalate"].append("R_EARLY")

    return change


EARLY = ["compile", "plan"]


@pytest.mark.parametrize("point", EARLY)
def test_a_gate_is_asked_before_the_first_call_that_it_governs(point: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=raised(point, requires_approval_gate=GATE))
        view = await world.invoke(request(2500, "req_gate"))
        assert (view.state, world.refunds()) == ("waiting", []), view.record
        done = await world.approve(view.run_id)
        assert (done.state, len(world.refunds())) == ("completed", 1), done.record
        assert done.record is not None
        assert [receipt["gate_id"] for receipt in done.record["approvals"]] == [GATE]
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]
        await world.aclose()

    run(go())


@pytest.mark.parametrize("point", EARLY)
@pytest.mark.parametrize("capability", [PAYMENTS, "adp_orders.lookup", None])
def test_an_escalation_ends_the_run_before_any_call(
    point: str, capability: str | None, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=raised(point, capability, escalates=True))
        view = await world.invoke(request(2500, "req_escalate"))
        assert (view.state, world.refunds()) == ("escalated", []), view.record
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "must_escalate"
        assert "tool.dispatching" not in await world.kinds(view.run_id)
        await world.aclose()

    run(go())


@pytest.mark.parametrize("point", EARLY)
@pytest.mark.parametrize(
    ("then", "code"),
    [
        ({"arg_constraints": {"amount_inr": {"max": 1000}}}, "argument_out_of_bounds"),
        ({"requires": ["change_freeze"]}, "missing_evidence"),
    ],
)
def test_bounds_and_required_evidence_hold_for_the_call(
    point: str, then: Body, code: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=raised(point, **then))
        view = await world.invoke(request(2500, "req_bound"))
        assert view.state in ENDS - {"completed"}, view.record
        assert world.refunds() == []
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == code
        await world.aclose()

    run(go())


@pytest.mark.parametrize("point", [*EARLY, "execute"])
def test_required_evidence_holds_for_a_read_as_well(point: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=raised(point, "adp_policy.eval", requires=["change_freeze"]))
        view = await world.invoke(request(2500, "req_read"))
        assert view.record is not None
        assert (view.record["rationale"]["failures"][0]["code"], world.refunds()) == ("missing_evidence", [])
        world.close()

    run(go())


def test_a_read_does_not_require_what_it_produces(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=raised("compile", None, requires=["order_lookup"]))
        view = await world.invoke(request(2500, "req_own"))
        assert (view.state, len(world.refunds())) == ("completed", 1), view.record
        world.close()

    run(go())


@pytest.mark.parametrize("point", EARLY)
def test_a_read_behind_a_gate_is_refused_before_anything_is_called(point: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=raised(point, "adp_policy.eval", requires_approval_gate=GATE))
        view = await world.invoke(request(2500, "req_read_gate"))
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "policy_denied"
        assert "tool.dispatching" not in await world.kinds(view.run_id)
        world.close()

    run(go())


def at_commit(**then: Any) -> Callable[[Body], None]:
    """The refund may be made, and not be committed like this."""
    return raised("commit", **then)


@pytest.mark.parametrize(
    ("then", "escalates", "code"),
    [
        ({"allow": False}, False, "policy_denied"),
        ({}, True, "must_escalate"),
        ({"arg_constraints": {"amount_inr": {"max": 1000}}}, False, "argument_out_of_bounds"),
        ({"requires": ["change_freeze"]}, False, "missing_evidence"),
    ],
)
def test_commit_is_asked_before_an_effect_and_not_before_a_read(
    then: Body, escalates: bool, code: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=raised("commit", None, escalates=escalates, **then))
        view = await world.invoke(request(2500, "req_commit"))
        assert view.record is not None
        assert (view.record["rationale"]["failures"][0]["code"], world.refunds()) == (code, [])
        assert (await world.kinds(view.run_id)).count("tool.returned") == 2
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        await world.aclose()

    run(go())


def test_a_gate_at_commit_is_asked_and_commit_is_asked_again_when_it_is_answered(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=at_commit(requires_approval_gate=GATE))
        view = await world.invoke(request(2500, "req_commit_gate"))
        assert (view.state, world.refunds()) == ("waiting", [])
        done = await world.approve(view.run_id)
        assert (done.state, len(world.refunds())) == ("completed", 1)
        asked = [one.key for one in await world.stores.tenant(TENANT).read(view.run_id) if one.kind == "policy.decided"]
        assert asked[-4:] == ["execute/0/s3", "commit/0/s3", "redeem/0/s3", "recommit/0/s3"]
        assert done.record is not None
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]
        await world.aclose()

    run(go())


def about_memory(predicate: str, *, escalates: bool = False, **then: Any) -> Callable[[Body], None]:
    """A rule about memories of one predicate. The rule that lets support staff work allows the others."""
    condition = {"==": [{"var": "memory.predicate"}, predicate]}
    rule = {"rule_id": "R_MEMORY", "if": condition, "then": {"allow": False, **then}}

    def change(body: Body) -> None:
        body["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].append(rule)
        if escalates:
            body["policy_layer"]["guardrails"]["must_escalate"].append("R_MEMORY")

    return change


async def candidates(world: Any) -> list[Any]:
    return list(await list_candidates(world.stores.tenant(TENANT)))


def test_memory_is_asked_before_a_proposal_becomes_a_candidate(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=about_memory("was_refunded"))
        view = await world.invoke(request(2500, "req_memory"))
        assert (view.state, len(world.refunds())) == ("completed", 1), view.record
        assert [one.candidate.predicate for one in await candidates(world)] == ["refunded_by"]
        assert view.record is not None
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        await world.aclose()

    run(go())


def test_an_escalation_about_a_memory_ends_the_run_and_nothing_is_proposed(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        pack = about_memory("was_refunded", escalates=True, allow=True)
        world = await open_world(tmp_path, stores=stores, pack=pack)
        view = await world.invoke(request(2500, "req_memory"))
        assert (view.state, len(world.refunds()), await candidates(world)) == ("escalated", 1, [])
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "must_escalate"
        assert view.record["controls_active"]["must_escalate"] == ["R_MEMORY"]
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        await world.aclose()

    run(go())


def test_memory_is_asked_again_at_promotion_under_the_policies_of_then_and_now(stores: str, tmp_path: Path) -> None:
    """The run proposed it; since then the tenant decided that such things are not remembered."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        assert (await world.invoke(request(2500, "req_memory"))).state == "completed"
        proposed = (await candidates(world))[0]
        assert await world.deployment.promotion_refusal(TENANT, proposed, "user_operator_5") is None
        condition = {"==": [{"var": "memory.predicate"}, proposed.candidate.predicate]}
        rule = {"rule_id": "R_FORGET", "if": condition, "then": {"allow": False}}
        bundle = {"bundle_id": "POLICY_FORGET", "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
        envelope = seal(
            POLICY_TYPE, canonical({"version": "1.0.0", "tenant": TENANT, "bundle": bundle}), world.keys, "pack"
        )
        await world.activate(("tenant", await world.publish(envelope)))
        refused = await world.deployment.promotion_refusal(TENANT, proposed, "user_operator_5")
        assert refused is not None
        assert (refused.reason, "R_FORGET" in refused.detail) == ("policy_denied", True)
        await world.aclose()

    run(go())


def test_a_gate_on_memories_asks_for_a_reviewer_with_its_role(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        pack = about_memory("was_refunded", allow=True, requires_approval_gate=GATE)
        world = await open_world(tmp_path, stores=stores, pack=pack)
        assert (await world.invoke(request(2500, "req_memory"))).state == "completed"
        (proposed,) = [one for one in await candidates(world) if one.candidate.predicate == "was_refunded"]
        refused = await world.deployment.promotion_refusal(TENANT, proposed, "user_operator_5")
        assert refused is not None
        assert "finance_lead" in refused.detail
        assert await world.deployment.promotion_refusal(TENANT, proposed, APPROVER) is None
        await world.aclose()

    run(go())


@pytest.mark.parametrize("then", [{"arg_constraints": {"x": {"max": 1}}}, {"prohibits": [PAYMENTS]}])
def test_what_is_about_a_call_is_refused_of_a_rule_about_memory(then: Body, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=about_memory("was_refunded", **then))
        view = await world.invoke(request(2500, "req_memory"))
        assert view.record is not None
        assert (view.record["rationale"]["failures"][0]["code"], world.refunds()) == ("unknown_ref", [])
        world.close()

    run(go())
