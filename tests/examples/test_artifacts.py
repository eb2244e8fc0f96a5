"""The example's files: each fits its contract, and together they say what the README says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.directory import FileDirectory
from contextos.adapters.function.loading import load_function_adapters
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.evidence import RetrievalQuery
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import CapabilityView, LeveledBundle, PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.facts import Vocabulary
from contextos.control.lint.pack import lint_pack
from contextos.decision.parameters import take_parameters
from contextos.intelligence.retrieval import GraphKnowledge
from contextos.trust.policy.constraints import check_args
from contextos.trust.policy.policy_set import PolicySet, compile_policy
from contextos_sim.memory.graph import MemoryGraph

ROOT = Path(__file__).resolve().parents[2] / "examples" / "support_refund"
PAY = CapabilityView("adp_payments.issue_refund", "destructive", {"kind": "write"})
LOOK = CapabilityView("adp_orders.lookup", "read_only", {"kind": "read"})


def file(name: str) -> Any:
    return json.loads((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pack() -> ContextPack:
    return parse(ContextPack, (ROOT / "pack.json").read_bytes())


@pytest.fixture(scope="module")
def policy(pack: ContextPack) -> PolicySet:
    layer = pack.policy_layer
    return compile_policy(
        [LeveledBundle("pack", bundle, "5.2.0", "sha256:" + "0" * 64) for bundle in layer.policy_bundles],
        gates=[gate.gate_id for gate in layer.approval_gates],
        must_refuse=layer.guardrails.must_refuse,
        must_escalate=layer.guardrails.must_escalate,
        vocabulary=Vocabulary(),
        declared={PAY.capability_id: "destructive"},
    )


def decide(policies: PolicySet, amount_inr: int, /, *, role: str = "support_agent", **changes: Any) -> PolicyDecision:
    """Policy's answer at execute; a fact given as `...` is not there."""
    evidence: dict[str, Any] = {
        "identity_verified": True,
        "order_lookup": {"order_id": "ord_881"},
        "policy": {"eval": {"eligible": True, "refundable_inr": 250_000, "policy_version": "returns-4"}},
    } | changes
    facts = {
        "request": {"intent": "support.refund"},
        "user": {"role": role},
        "args": {"order_id": "ord_881", "amount_inr": amount_inr, "currency": "INR"},
        "evidence": {name: value for name, value in evidence.items() if value is not ...},
    }
    return policies.decide("execute", facts, capability=PAY, granted=True, decision_id="pol_0123456789abcdef")


def test_the_request_is_the_one_of_the_specification() -> None:
    request = parse(InvokeRequest, (ROOT / "request.json").read_bytes())
    assert request.input.message == "Refund order ord_881 for INR 4200."
    assert request.input.context == {
        "identity_verified": True,
        "order_id": "ord_881",
        "refund_amount": 4200,
        "currency": "INR",
    }
    assert request.context_pack_refs == ("ctxpack.support@5.2.0",)


def test_the_pack_passes_lint_alone_and_with_its_adapters(pack: ContextPack, tmp_path: Path) -> None:
    adapters = load_function_adapters("shop.py:adapters", None, root=ROOT, workspace=tmp_path).adapters
    assert lint_pack(pack, None) == ()
    assert lint_pack(pack, {adapter.describe().adapter_id: adapter.describe() for adapter in adapters}) == ()


def test_the_directory_knows_the_requester_and_the_approvers() -> None:
    directory = FileDirectory(ROOT / "directory.json")
    known = asyncio.run(directory.resolve("tenant_acme_prod", "usr_771", "agt_support"))
    approver = asyncio.run(directory.approver("tenant_acme_prod", "user_finance_lead_77"))
    assert known is not None
    assert approver is not None
    assert (known.user.role, known.agent.ceiling, approver.roles) == ("support_agent", "destructive", ("finance_lead",))


@pytest.mark.parametrize(
    ("order", "verified", "consent"),
    [("ord_881", True, True), ("ord_890", None, False), ("ord_895", True, False), ("ord_896", False, False)],
)
def test_the_graph_says_whose_identity_is_verified(pack: ContextPack, order: str, verified: Any, consent: Any) -> None:
    async def named() -> dict[str, Any]:
        graph, layer = MemoryGraph(), pack.intelligence_refs.retrieval
        await graph.put(file("graph.json")["nodes"], file("graph.json")["edges"])
        knowledge = GraphKnowledge(graph)
        query = RetrievalQuery(
            snapshot=await knowledge.snapshot(),
            seeds=(f"order:{order}",),
            hops=layer.hops,
            fan_out=layer.fan_out,
            limit=layer.limit,
            named=layer.evidence,
        )
        return {item.name: item for item in await knowledge.retrieve(query) if item.name}

    found = asyncio.run(named())
    assert found["memory_consent"].value is consent
    assert (found["identity_verified"].value if "identity_verified" in found else None) is verified
    if verified is not None:
        assert found["identity_verified"].subject.startswith("customer:cus_")


@pytest.mark.parametrize(
    ("amount_inr", "mode", "gates"),
    [
        (1, "delegated", ()),
        (3000, "delegated", ()),
        (3001, "destructive", ("GATE_FINANCE_APPROVAL",)),
        (100_000, "destructive", ("GATE_FINANCE_APPROVAL",)),
    ],
)
def test_above_3000_a_finance_lead_is_asked(
    policy: PolicySet, amount_inr: int, mode: str, gates: tuple[str, ...]
) -> None:
    decision = decide(policy, amount_inr)
    assert (decision.allowed, decision.effective_approval_mode, decision.gates) == (True, mode, gates)
    assert decision.requires == ("order_lookup",)
    assert check_args(decision.arg_constraints, {"amount_inr": amount_inr, "currency": "INR"}, approved=False) == ()
    assert check_args(decision.arg_constraints, {"amount_inr": amount_inr, "currency": "USD"}, approved=False)


def test_the_record_names_the_rules_of_the_specification(policy: PolicySet) -> None:
    matched = set(decide(policy, 4200).matched_rule_ids)
    assert {"R_REFUND_REQUIRES_IDV", "R_HIGH_VALUE_REQUIRES_APPROVAL"} <= matched


@pytest.mark.parametrize("amount_inr", [100, 4200])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"identity_verified": False}, "denied_by_rule"),
        ({"identity_verified": ...}, "indeterminate"),
        ({"policy": ...}, "indeterminate"),
        ({"policy": {"eval": {"eligible": False, "refundable_inr": 9900}}}, "denied_by_rule"),
        ({"policy": {"eval": {"eligible": True, "refundable_inr": 99}}}, "denied_by_rule"),
        ({"role": "warehouse_clerk"}, "denied_by_rule"),
    ],
)
def test_an_unverified_ineligible_or_foreign_request_is_denied(
    policy: PolicySet, amount_inr: int, changes: dict[str, Any], reason: str
) -> None:
    decision = decide(policy, amount_inr, **changes)
    assert (decision.allowed, decision.reason) == (False, reason)


def test_above_the_limit_a_guardrail_escalates(policy: PolicySet) -> None:
    decision = decide(policy, 100_001)
    assert (decision.allowed, decision.must_escalate) == (False, ("R_ABOVE_LIMIT",))


def test_nobody_but_support_sees_the_refund_at_compile(policy: PolicySet) -> None:
    def seen(role: str) -> list[bool]:
        facts = {"request": {"intent": "support.refund"}, "user": {"role": role}}
        asked: Any = {"granted": True, "decision_id": "pol_0123456789abcdef"}
        return [policy.decide("compile", facts, capability=one, **asked).allowed for one in (PAY, LOOK)]

    assert seen("support_agent") == [True, True]
    assert seen("warehouse_clerk") == [False, True]


def test_every_binding_of_the_template_is_a_parameter_that_the_request_gives(pack: ContextPack) -> None:
    (template,), (intent,) = pack.decision_layer.task_templates, pack.decision_layer.intents
    values = take_parameters(intent.parameters, file("request.json"))
    bound = [value for step in template.steps for value in step.params.values()]
    assert {one["from"] for one in bound} == {"parameter"}
    assert {one["pointer"].removeprefix("/") for one in bound} == {one.name for one in values.taken}
    assert len(bound) == 6
