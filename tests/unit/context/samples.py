"""The refund of the seeds as compiler input, small and large; every value is sealed."""

from __future__ import annotations

from typing import Any

from contextos.context.estimator import BytesDiv4
from contextos.context.inputs import CompileInput, KnowledgeInputs, PackInputs, SurfaceInputs, TaskInputs
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import Intent, TaskTemplate
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest, RunContext

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
BUCKET_TOKENS = {"policy": 1800, "tool": 1500, "evidence": 3500, "memory": 1500, "business": 1500, "session": 2200}
AGENT = {"agent_id": "agt_support", "workload_identity": "spiffe://contextos/agents/support"}
ATTACHMENT = {
    "artifact_id": "art_receipt",
    "media_type": "image/png",
    "sha256": "ab" * 32,
    "uri": "https://x.test/r?sig=1",
}
DIGEST = "sha256:" + "ab" * 32


def pack(**layers: Any) -> ContextPack:
    rules = [
        {"rule_id": "R_REFUND_REQUIRES_IDV", "if": True, "then": {"allow": True}, "rationale": "identity first"},
        {
            "rule_id": "R_HIGH_VALUE_REQUIRES_APPROVAL",
            "if": True,
            "rationale": "large refunds are looked at",
            "then": {"allow": True, "requires_approval_gate": "GATE_FINANCE_APPROVAL"},
        },
        {"rule_id": "R_NOT_MATCHED", "if": True, "then": {"allow": False}},
    ]
    value: dict[str, Any] = {
        "contract_meta": {
            "contract_name": "contextos.context_pack",
            "contract_version": "2.0.0",
            "issuer": "acme",
            "created_at": "2026-05-01T00:00:00Z",
        },
        "pack_meta": {
            "pack_id": "ctxpack.support",
            "pack_version": "5.2.0",
            "tenant": "tenant_acme_prod",
            "ttl_seconds": 86400,
            "data_classification": "CONFIDENTIAL",
        },
        "intelligence_refs": {
            "ontology": {"namespace": "acme", "version": "4.2.0", "entity_types": ["order"], "relationship_types": []},
            "identity_layer": {"ceid_namespaces": ["order"]},
            "retrieval": {"seeds": []},
        },
        "business_context": {"summary": "Refunds of a shop.", "non_negotiables": ["Never promise a date.", "No cash."]},
        "policy_layer": {
            "policy_bundles": [
                {
                    "bundle_id": "POLICY_RETURNS_V4",
                    "priority": 10,
                    "policy_dsl": {"language": "jsonlogic", "rules": rules},
                }
            ],
            "guardrails": {"redaction_rules": ["pan", "email"]},
            "approval_gates": [{"gate_id": "GATE_FINANCE_APPROVAL", "required_approver_role": "finance"}],
        },
        "tooling_layer": {"adapter_registry": [], "permissions": []},
        "decision_layer": {"decision_specs": []},
        "memory_layer": {},
        "evaluation_layer": {"eval_targets": []},
        "tone_and_comms": {"voice": "calm and short", "do": ["name the order"], "do_not": ["blame"]},
    }
    return ContextPack.model_validate(value | layers)


def intent(**changes: Any) -> Intent:
    value = {
        "intent_id": "support.refund",
        "version": "3.0.0",
        "owner_role": "support_lead",
        "risk_class": "destructive",
        "description": "give money back",
        "eligible_task_templates": ["task_refund_with_eligibility"],
    }
    return Intent.model_validate(value | changes)


def template(**changes: Any) -> TaskTemplate:
    value = {
        "template_id": "task_refund_with_eligibility",
        "version": "1.0.0",
        "intent": "support.refund",
        "steps": [
            {"id": "s1", "tool": "adp_orders.lookup", "approval_mode": "read_only"},
            {
                "id": "s3",
                "tool": "adp_payments.issue_refund",
                "depends_on": ["s1"],
                "approval_mode": "destructive",
                "requires": ["GATE_FINANCE_APPROVAL"],
            },
        ],
        "decision_checkpoints": [{"decision_id": "support.refund.execute", "after_step": "s1"}],
    }
    return TaskTemplate.model_validate(value | changes)


def request(**changes: Any) -> InvokeRequest:
    value = {
        "request_id": "req_9f3a12",
        "session_id": "sess_42f1",
        "tenant_id": "tenant_acme_prod",
        "user": {"user_id": "usr_771"},
        "agent": AGENT,
        "context_pack_refs": ["ctxpack.support@5.2.0"],
        "input": {
            "intent": "support.refund",
            "message": "Refund order ord_881 for INR 4200.",
            "context": {"identity_verified": True, "order_id": "ord_881", "refund_amount": 4200},
        },
        "mode": "stream",
        "runtime": {},
        "trace": {"trace_id": TRACE, "span_id": "00f067aa0ba902b7", "trace_flags": "01"},
    }
    return InvokeRequest.model_validate(value | changes)


def run(*, tokens: dict[str, int] | None = None, total: int | None = None, **changes: Any) -> RunContext:
    buckets = BUCKET_TOKENS | (tokens or {})
    value = {
        "run_id": "run_a1b2c3d4e5f60718",
        "trace_id": TRACE,
        "session_id": "sess_42f1",
        "tenant_id": "tenant_acme_prod",
        "user": {"user_id": "usr_771"},
        "agent": AGENT,
        "intent": "support.refund",
        "safety_mode": "destructive",
        "run_budget": {
            "total_tokens": total or max(sum(buckets.values()), 1),
            "bucket_tokens": buckets,
            "max_tool_calls": 8,
            "max_replan_attempts": 2,
            "wall_clock_ms": 60000,
            "max_cost_cents": 25,
        },
    }
    return RunContext.model_validate(value | changes)


def fact(number: int = 0, *, name: str | None = None, value: Any = None, **changes: Any) -> EvidenceItem:
    statement = {
        "subject": f"order:ord_{number}",
        "predicate": "status",
        "value": "delivered" if value is None else value,
    }
    item: dict[str, Any] = statement | {
        "evidence_ref": f"kg:order:ord_{number}#snapshot_7",
        "name": name,
        "origin": "graph",
        "integrity": "untrusted",
        "classification": "INTERNAL",
        "observed_at_us": 1_777_000_000_000_000 + number,
        "digest": content_address(statement),
        "hop": 1,
    }
    return EvidenceItem.model_validate(item | changes)


def memory(number: int = 0, **changes: Any) -> EvidenceItem:
    return fact(number, evidence_ref=f"memory:m_{number}", origin="memory", hop=0, **changes)


def capability(capability_id: str = "adp_orders.lookup", **changes: Any) -> SurfaceCapability:
    value = {
        "capability_id": capability_id,
        "kind": "read",
        "risk_level": "read",
        "approval_mode": "read_only",
        "description": f"what {capability_id} does",
        "lifecycle": "active",
        "granted": True,
        "constraints": {},
        "definition_digest": DIGEST,
    }
    return SurfaceCapability.model_validate(value | changes)


REFUND: dict[str, Any] = {"kind": "write", "risk_level": "write_irreversible", "approval_mode": "destructive"}


def decision(capability_id: str | None = "adp_orders.lookup", **changes: Any) -> PolicyDecision:
    value = {
        "policy_decision_id": "pol_0f1e2d3c4b5a6978",
        "point": "compile",
        "capability_id": capability_id,
        "allowed": True,
        "reason": "allowed",
        "facts_digest": DIGEST,
    }
    return PolicyDecision.model_validate(value | changes)


def refund(**changes: Any) -> dict[str, Any]:
    """The inputs of one compile by name: three capabilities, five facts, one memory. `as_input` groups them."""
    refund_decision = decision(
        "adp_payments.issue_refund",
        bundle_ids=["POLICY_RETURNS_V4"],
        gates=["GATE_FINANCE_APPROVAL"],
        matched_rule_ids=["R_HIGH_VALUE_REQUIRES_APPROVAL", "R_REFUND_REQUIRES_IDV"],
        arg_constraints={"refund_amount": [{"max": 10000, "unless_approved": False}]},
    )
    given: dict[str, Any] = {
        "pack": pack(),
        "pack_ref": "ctxpack.support@5.2.0",
        "intent": intent(),
        "template": template(),
        "request": request(),
        "run": run(),
        "required_evidence": {"order_lookup", "identity_verified"},
        "evidence": [
            fact(1, name="order_lookup"),
            fact(2, name="identity_verified"),
            fact(3, name="loyalty"),
            fact(4),
            fact(5, hop=2),
        ],
        "memory": [memory(9)],
        "surface": [
            capability("adp_payments.issue_refund", constraints={"currency": [{"enum": ["INR"]}]}, **REFUND),
            capability("adp_orders.lookup"),
            capability("adp_crm.note", granted=False, withheld="no_permission"),
        ],
        "decisions": {"adp_payments.issue_refund": refund_decision, "adp_orders.lookup": decision()},
        "estimator": BytesDiv4(),
    }
    return given | changes


def as_input(given: dict[str, Any]) -> CompileInput:
    """The compiler's input from what `refund` or `large` returned."""
    return CompileInput(
        task=TaskInputs(given["request"], given["run"], given["intent"], given["template"]),
        pack=PackInputs(given["pack"], given["pack_ref"], given.get("bundles", ())),
        knowledge=KnowledgeInputs(given["evidence"], given["memory"], given["required_evidence"]),
        surface=SurfaceInputs(given["surface"], given["decisions"], given.get("announced", ())),
        estimator=given["estimator"],
    )


def compile_input(**changes: Any) -> CompileInput:
    return as_input(refund(**changes))


def large(capabilities: int = 100, facts: int = 1000, tokens: dict[str, int] | None = None) -> dict[str, Any]:
    """A compile of many capabilities and facts; `tokens` decides how many of them fit."""
    ids = [f"adp_{number % 10}.cap_{number}" for number in range(capabilities)]
    return refund(
        run=run(tokens=tokens),
        surface=[capability(one) for one in ids],
        decisions={one: decision(one) for one in ids},
        evidence=[fact(number, value={"status": "delivered", "items": [number, "x" * 40]}) for number in range(facts)],
        required_evidence=[],
    )
