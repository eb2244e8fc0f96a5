"""The JSON examples of the specification, as fixtures: each with the wire model that reads it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextos.contracts.envelopes.compiled import CompiledContext, PreservedTrace
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.record import DecisionOutput, DecisionRecord
from contextos.contracts.envelopes.run import InvokeRequest, PackSelection, RunContext
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.contracts.envelopes.tool import ToolCallEnvelope, ToolResultEnvelope
from contextos.contracts.model import Model

SEEDS = Path(__file__).resolve().parents[2] / "spec"

EXAMPLES: dict[str, type[Model]] = {
    "run_context": RunContext,
    "invoke_agent": InvokeRequest,
    "invoke_agent_live_builder": InvokeRequest,
    "invoke_agent_minimal": InvokeRequest,
    "tool_call_envelope": ToolCallEnvelope,
    "tool_result_envelope": ToolResultEnvelope,
    "decision_record": DecisionRecord,
    "decision_record_how_it_works": DecisionRecord,
    "compiled_context": CompiledContext,
    "trace_context": PreservedTrace,
    "context_pack_refs": PackSelection,
    "decision_output": DecisionOutput,
    "plan": Plan,
    "context_slot": AgentContextSlot,
}


def example(name: str) -> Any:
    """A fresh copy of an example as the specification prints it."""
    return json.loads((SEEDS / f"{name}.json").read_text(encoding="utf-8"))


def with_changes(value: Any, changes: Mapping[str, Any]) -> Any:
    """A copy in which each place (JSON pointer) holds the value given."""
    changed = copy.deepcopy(value)
    for pointer, new in changes.items():
        *above, last = pointer.split("/")[1:]
        node = changed
        for step in above:
            node = node[int(step)] if isinstance(node, list) else node[step]
        if isinstance(node, list):
            node[int(last)] = new
        else:
            node[last] = new
    return changed


DIGEST = "sha256:" + "b2a1" * 16
HEX = "0f1e2d3c4b5a6978"
CHAIN = example("run_context")["agent"]["principal_chain"]

COMPLETIONS: dict[str, dict[str, Any]] = {
    "run_context": {
        "/agent/identity_claim/iss": "https://contextos.example",
        "/agent/identity_claim/principal_chain": CHAIN,
        "/agent/identity_claim/nbf": 1_777_886_400,
        "/agent/identity_claim/exp": 1_777_886_700,
        "/agent/identity_claim/claim_hash": DIGEST,
    },
    "invoke_agent": {
        "/agent/identity_claim/version": "ctxid/1",
        "/agent/identity_claim/iss": "https://contextos.example",
        "/agent/identity_claim/principal_chain": CHAIN,
        "/agent/identity_claim/nbf": 1_777_886_400,
        "/agent/identity_claim/exp": 1_777_886_700,
        "/agent/identity_claim/kid": "kid_ctxos_support_2026_05",
        "/agent/identity_claim/claim_hash": DIGEST,
        "/attachments/0/sha256": "2f9cc0d1" * 8,
    },
    "invoke_agent_live_builder": {},
    "invoke_agent_minimal": {},
    "tool_call_envelope": {
        "/tool_call_id": f"tool_{HEX}",
        "/policy_decision_id": f"pol_{HEX}",
        "/auth_ref": f"claim_hash:{DIGEST}",
    },
    "tool_result_envelope": {
        "/tool_call_id": f"tool_{HEX}",
        "/policy_decision_id": f"pol_{HEX}",
        "/citations/0/evidence_ref": f"tool:adp_payments.issue_refund:tool_{HEX}",
    },
    "decision_record": {
        "/record_id": f"dr_2026_05_04_{HEX}",
        "/outcome": "approved",
        "/agent_identity/claim_hash": DIGEST,
        "/evidence_refs/1": f"tool:adp_orders.lookup:tool_{HEX}",
        "/evidence_refs/2": f"tool:adp_policy.eval:tool_{HEX}",
        "/evidence_refs/3": f"tool:adp_payments.issue_refund:tool_{HEX}",
        "/policy_decisions/0/policy_decision_id": f"pol_{HEX}",
        "/policy_decisions/1/policy_decision_id": f"pol_{HEX}",
        "/approvals/0/evidence_snapshot_hash": DIGEST,
        "/revision": 1,
        "/replay": {"replay_id": f"rp_{HEX}", "run_id": "run_a1b2c3d4e5f60718", "compiled_context_hash": DIGEST},
        "/record_hash": DIGEST,
    },
    "decision_record_how_it_works": {
        "/record_id": f"dr_2026_05_04_{HEX}",
        "/outcome": "approved",
        "/timestamp": "2026-05-04T09:31:42Z",
        "/intent_ref": "support.refund",
        "/rationale": {"strategy": "template:task_refund_with_eligibility"},
        "/lineage": {"pack_version": "ctxpack.support@5.2.0", "snapshot_version": "kg_2026_05_03_T0930"},
        "/evidence_refs/1": f"tool:adp_orders.lookup:tool_{HEX}",
        "/evidence_refs/2": f"tool:adp_policy.eval:tool_{HEX}",
        "/evidence_refs/3": f"tool:adp_payments.issue_refund:tool_{HEX}",
        "/policy_decisions/0/policy_decision_id": f"pol_{HEX}",
        "/approvals/0/evidence_snapshot_hash": DIGEST,
        "/revision": 1,
        "/replay": {"replay_id": f"rp_{HEX}", "run_id": "run_a1b2c3d4e5f60718"},
        "/record_hash": DIGEST,
    },
    "compiled_context": {
        "/context_ledger/compiled_context_hash": DIGEST,
        "/context_ledger/estimator": "bytes_div_4@1",
        "/context_ledger/stage_digests": {"intent": DIGEST},
    },
    "trace_context": {},
    "context_pack_refs": {},
    "decision_output": {},
    "plan": {"/plan_id": f"plan_{HEX}"},
    "context_slot": {},
}
"""What each example lacks of what the runtime writes: exactly the places where `sealed()` refuses it."""


def completed(name: str) -> Any:
    """The example as the runtime would write it."""
    return with_changes(example(name), COMPLETIONS[name])


PACKET: dict[str, Any] = {
    "replay_packet_id": f"rp_{HEX}",
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "source_kind": "decision_record",
    "source_ref": f"dr_2026_05_04_{HEX}",
    "context_pack_ref": "ctxpack.support@5.2.0",
    "compiled_context_hash": DIGEST,
    "side_effect_policy": "transcript_only",
    "expected": {"status": "DECIDED"},
}

PACK: dict[str, Any] = {
    "contract_meta": {
        "contract_name": "contextos.context_pack",
        "contract_version": "2.0.0",
        "issuer": "team-support",
        "created_at": "2026-05-01T00:00:00Z",
        "compatibility": {"requires": {"runtime": ">=0.1.0"}},
    },
    "pack_meta": {
        "pack_id": "ctxpack.support",
        "pack_version": "5.2.0",
        "tenant": "tenant_acme_prod",
        "ttl_seconds": 3600,
        "data_classification": "CONFIDENTIAL",
        "environment_defaults": {"region": "in"},
        "run_budget": example("run_context")["run_budget"],
    },
    "intelligence_refs": {
        "ontology": {
            "namespace": "support",
            "version": "4.2.0",
            "entity_types": ["order"],
            "relationship_types": ["placed"],
        },
        "identity_layer": {"ceid_namespaces": ["order", "customer"]},
        "retrieval": {
            "seeds": [{"type": "order", "binding": {"from": "request", "pointer": "/input/context/order_id"}}],
            "evidence": [{"name": "order_lookup", "path": ["status"], "max_age_s": 3600}],
        },
    },
    "business_context": {"summary": "refunds", "non_negotiables": ["never refund twice"]},
    "policy_layer": {
        "policy_bundles": [
            {
                "bundle_id": "POLICY_RETURNS_V4",
                "priority": -1,
                "policy_dsl": {
                    "language": "jsonlogic",
                    "rules": [
                        {
                            "rule_id": "R_HIGH_VALUE_REQUIRES_APPROVAL",
                            "applies_to": {"intent": "support.refund", "point": "execute"},
                            "if": {">": [{"var": "args.amount_inr"}, 3000]},
                            "then": {
                                "allow": True,
                                "approval_mode": "destructive",
                                "requires_approval_gate": "GATE_FINANCE_APPROVAL",
                                "arg_constraints": {
                                    "amount_inr": {"max": 3000, "unless_approved": True},
                                    "order_id": {"pattern": "^ord_[0-9]+$"},
                                },
                            },
                            "facts": {"args.amount_inr": "number"},
                        }
                    ],
                },
            }
        ],
        "guardrails": {"must_refuse": ["R_HIGH_VALUE_REQUIRES_APPROVAL"], "redaction_rules": ["pan"]},
        "approval_gates": [{"gate_id": "GATE_FINANCE_APPROVAL", "required_approver_role": "finance_lead"}],
    },
    "tooling_layer": {
        "adapter_registry": [{"adapter_id": "adp_payments", "capabilities": ["issue_refund"]}],
        "permissions": [
            {
                "permission_id": "p1",
                "adapter_id": "adp_payments",
                "capability": "issue_refund",
                "roles": ["support_ops"],
                "agrees_with": {"amount_inr": "/input/context/refund_amount"},
            }
        ],
        "prohibitions": ["adp_payments.void"],
    },
    "decision_layer": {
        "decision_specs": [
            {
                "decision_key": "support.refund.execute",
                "version": "1.0.0",
                "owner_role": "finance",
                "required_evidence": ["order_lookup"],
                "allowed_outcomes": ["approved", "denied"],
                "approval_mode": "destructive",
                "decision_right": "execute",
            }
        ],
        "task_templates": [
            {
                "template_id": "task_refund",
                "version": "1.0.0",
                "intent": "support.refund",
                "steps": example("plan")["steps"],
                "decision_checkpoints": example("plan")["decision_checkpoints"],
                "outputs": {"transaction_id": {"from": "step", "pointer": "/s3/transaction_id"}},
            }
        ],
    },
    "memory_layer": {"tier_ttls": {"episodic": 86400}, "write_classes": ["preference"]},
    "evaluation_layer": {"eval_targets": [{"intent": "support.refund", "policy": 1, "latency": 0.5}]},
    "tone_and_comms": {"voice": "plain", "do": ["apologise once"], "do_not": ["promise"]},
}
"""A pack with something in each of the ten layers; the specification prints none."""
