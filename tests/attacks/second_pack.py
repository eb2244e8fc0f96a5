"""A second good pack, with what the example does not have: more points, two bundles, a replan, egress, a local write.

A clerk's note is written about an order, a message leaves the machine, and then the refund is paid.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from tests.unit.control.example import RUPEES, TEXT, capability, pack_json, schema

HOST: Final = "mail.example:443"
GATE: Final = "GATE_FINANCE_APPROVAL"


class Desk:
    """Two adapters of a service desk: notes stay on this machine, messages leave it. Keeps what it was asked."""

    def __init__(self, adapter_id: str) -> None:
        self.adapter_id = adapter_id
        self.calls: list[Mapping[str, Any]] = []

    def describe(self) -> AdapterDefinition:
        write = {"kind": "write", "risk_level": "write_reversible", "idempotency": {"strategy": "keyed"}}
        if self.adapter_id == "adp_notes":
            given = schema(order_id=TEXT, text=TEXT, level=RUPEES)
            made = capability("add", given, schema(note_id=TEXT), approval_mode="local_write", **write)
            more: dict[str, Any] = {}
        else:
            given = schema(order_id=TEXT, subject=TEXT)
            made = capability("send", given, schema(message_id=TEXT), approval_mode="network", **write)
            more = {"external": True, "egress": [HOST]}
        body = {"adapter_id": self.adapter_id, "type": "function", "version": "1", "capabilities": [made], **more}
        return AdapterDefinition.model_validate(body)

    async def call(self, _capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.calls.append(dict(args))
        name = "note_id" if self.adapter_id == "adp_notes" else "message_id"
        return AdapterReply(output={name: f"{name}_1"}, mutations=(f"{self.adapter_id}:{args['order_id']}",))

    async def lookup(self, _capability: str, _idempotency_key: str, _context: CallContext) -> AdapterReply | None:
        return None


def _step(name: str, tool: str, mode: str, after: list[str], **params: Any) -> dict[str, Any]:
    order = {"order_id": {"from": "request", "pointer": "/input/context/order_id"}}
    return {"id": name, "tool": tool, "params": order | params, "depends_on": after, "approval_mode": mode}


def _rule(rule_id: str, condition: Any, then: Mapping[str, Any], **applies: str) -> dict[str, Any]:
    rule = {"rule_id": rule_id, "applies_to": {"intent": "support.refund", **applies}, "if": condition, "then": then}
    return rule | {"rationale": f"why {rule_id}"}


def second_pack() -> dict[str, Any]:
    """The example with a desk beside the shop."""
    pack = copy.deepcopy(pack_json())
    tooling, layer, policy = pack["tooling_layer"], pack["decision_layer"], pack["policy_layer"]
    pack["pack_meta"]["max_session_duration_ms"] = 600_000
    tooling["adapter_registry"] += [
        {"adapter_id": "adp_notes", "capabilities": ["add"]},
        {"adapter_id": "adp_mail", "capabilities": ["send"]},
    ]
    for adapter, name in (("adp_notes", "add"), ("adp_mail", "send")):
        granted = {"permission_id": f"perm_{name}", "adapter_id": adapter, "capability": name}
        tooling["permissions"].append(granted | {"roles": ["support_agent"], "allow": True})
        # Neither has an amount: what `policy.eval` found about the order is enough.
        tooling["permissions"][-1]["evidence_args"] = {"policy.eval": {"order_id": "order_id"}}
    tooling["egress"] = [HOST]
    first = layer["task_templates"][0]
    starved = copy.deepcopy(first)
    starved |= {"template_id": "task_without_lookup", "memory": [], "outputs": {}, "subjects": []}
    starved["steps"] = [{**starved["steps"][1], "depends_on": []}]
    layer["intents"][0]["eligible_task_templates"].insert(0, "task_without_lookup")
    layer["task_templates"].insert(0, starved)
    from_pack = {"from": "pack", "pointer": "/contract_meta/issuer"}
    first["steps"][2:2] = [
        _step("n1", "adp_notes.add", "local_write", ["s2"], text=from_pack, level=3),
        _step("m1", "adp_mail.send", "network", ["s2"], subject="Your refund"),
    ]
    user, notes, payments = {"var": "user.role"}, "adp_notes.add", "adp_payments.issue_refund"
    rules = [
        _rule(
            "R_DESK", {"==": [user, "support_agent"]}, {"allow": True, "requires": ["policy.eval"]}, capability=notes
        ),
        _rule(
            "R_NOTE_LEVEL",
            {">=": [{"var": "args.level"}, 3]},
            {"allow": True, "arg_constraints": {"level": {"min": 1, "max": 3}, "text": {"pattern": "team_[a-z_]+"}}},
            capability=notes,
        ),
        _rule("R_MAIL", {"==": [{"var": "run.environment"}, "dev"]}, {"allow": True}, environment="dev"),
        _rule(
            "R_GATE_EARLY",
            {"==": [user, "support_agent"]},
            {"allow": True, "requires_approval_gate": GATE},
            capability=payments,
            point="compile",
        ),
        _rule(
            "R_COMMIT",
            {"<": [{"var": "args.amount_inr"}, 5]},
            {"allow": False},
            point="commit",
            capability="adp_payments.issue_refund",
        ),
        _rule("R_FORGET", {"==": [{"var": "memory.predicate"}, "refunded_by"]}, {"allow": False}),
    ]
    bundle = {
        "bundle_id": "POLICY_DESK",
        "priority": 5,
        "mode": "enforce",
        "policy_dsl": {"language": "jsonlogic", "rules": rules},
    }
    policy["policy_bundles"].append(bundle)
    policy["guardrails"]["must_refuse"] = [{"==": [user, "warehouse_clerk"]}]
    return pack
