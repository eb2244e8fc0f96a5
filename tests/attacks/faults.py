"""Faults that somebody plants in the refund example: in its pack, its directory or its settings."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextos.adapters.key_files import KeyFiles
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import seal
from tests.world import TENANT


@dataclass
class Workspace:
    """What is configured: the pack, the tenant in the directory, and the lines of the settings."""

    pack: dict[str, Any]
    tenant: dict[str, Any]
    settings: list[str]

    @classmethod
    def read(cls, path: Path) -> Workspace:
        directory = json.loads((path / "directory.json").read_text())
        lines = (path / "contextos.toml").read_text().splitlines()
        return cls(json.loads((path / "pack.json").read_text()), directory[TENANT], lines)

    def write(self, path: Path) -> None:
        (path / "pack.json").write_text(json.dumps(self.pack))
        (path / "directory.json").write_text(json.dumps({TENANT: self.tenant}))
        (path / "contextos.toml").write_text("\n".join(self.settings) + "\n")
        keys = KeyFiles(path / "keys", SystemClock())
        envelope = seal(PACK_TYPE, canonical(self.pack), keys, "pack")
        (path / "packs" / "support.json").write_text(json.dumps(envelope))

    @property
    def rules(self) -> list[Any]:
        found: list[Any] = self.pack["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
        return found

    @property
    def gate(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pack["policy_layer"]["approval_gates"][0]
        return found

    @property
    def guardrails(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pack["policy_layer"]["guardrails"]
        return found

    @property
    def tools(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pack["tooling_layer"]
        return found

    @property
    def template(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pack["decision_layer"]["task_templates"][0]
        return found

    @property
    def budget(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pack["pack_meta"]["run_budget"]
        return found

    def approvers(self, role: str) -> list[Any]:
        return [one for one in self.tenant["approvers"] if role in one["roles"]]

    def refund_rule(self, condition: Any) -> None:
        """One more rule that denies the refund."""
        applies = {"intent": "support.refund", "capability": "adp_payments.issue_refund"}
        rule = {"rule_id": "R_MORE", "applies_to": applies, "if": condition, "then": {"allow": False}}
        self.rules.append(rule)


Plant = Callable[[Workspace], Any]
Planted = tuple[Plant, str, str]
"""What is planted, the code of the problem, and the beginning of its place."""


def only_keyless(one: Workspace) -> None:
    for approver in one.approvers("finance_lead"):
        approver["keys"] = []


def only_the_owner(one: Workspace) -> None:
    for approver in one.approvers("finance_lead"):
        if approver["approver_id"] != "usr_owner_1":
            approver["roles"] = []
    one.approvers("finance_lead")[0]["keys"] = [{"kid": "kid_1", "public_key": "11" * 32}]


def only_the_author(one: Workspace) -> None:
    one.pack["contract_meta"]["issuer"] = "user_finance_lead_77"


def granted_to_themselves(one: Workspace) -> None:
    for approver in one.approvers("finance_lead"):
        approver["granted_by"]["finance_lead"] = approver["approver_id"]


def short_run(one: Workspace) -> None:
    one.gate["timeout_s"] = 7200
    one.pack["pack_meta"]["max_session_duration_ms"] = 600_000


def old_plan(one: Workspace) -> None:
    one.pack["decision_layer"]["task_templates"].append({**copy.deepcopy(one.template), "template_id": "task_old"})


def sum_of(window_s: int) -> Plant:
    counted = {"capability": "adp_payments.issue_refund", "aggregate": "count", "over": "user", "window_s": window_s}
    return lambda one: one.pack["policy_layer"]["policy_bundles"][0].update(history={"refunds": counted})


def nobody_holds(role: str) -> Plant:
    def plant(one: Workspace) -> None:
        for approver in one.approvers(role):
            approver["roles"].remove(role)

    return plant


def each(members: str, **changed: Any) -> Plant:
    """Change each of the users, agents or delegations of the tenant."""

    def plant(one: Workspace) -> None:
        listed = one.tenant[members]
        for member in listed.values() if isinstance(listed, dict) else listed:
            member.update(changed)

    return plant


RULES = "/policy_layer/policy_bundles/0/policy_dsl/rules"
GATE = "/policy_layer/approval_gates/0"
REGISTRY = "/tooling_layer/adapter_registry"
TEMPLATES = "/decision_layer/task_templates"

FAULTS: dict[str, Planted] = {
    "a gate whose role nobody holds": (
        lambda one: one.gate.update(required_approver_role="finance_chief"),
        "nobody_holds",
        f"{GATE}/required_approver_role",
    ),
    "a permission for a role that nobody holds": (
        lambda one: one.tools["permissions"][0].update(roles=["support_chief"]),
        "nobody_holds",
        "/tooling_layer/permissions/0/roles/0",
    ),
    "a fact that nothing supplies": (
        lambda one: one.refund_rule({"==": [{"var": "evidence.fraud_score"}, 1]}),
        "unknown_fact",
        f"{RULES}/9/if",
    ),
    "a fact that none of the users has": (
        lambda one: one.refund_rule({"==": [{"var": "user.organization_id"}, "org_1"]}),
        "not_now",
        f"{RULES}/9/if",
    ),
    "a redaction for a path that is not there": (
        lambda one: one.guardrails.update(redaction_rules=["customer.email"]),
        "unknown_edge",
        "/policy_layer/guardrails/redaction_rules/0",
    ),
    "more tool calls than the platform allows": (
        lambda one: one.budget.update(max_tool_calls=900),
        "above_limit",
        "/pack_meta/run_budget/max_tool_calls",
    ),
    "more money than the tenant allows": (
        lambda one: one.tenant.update(limits={"max_cost_cents": 10}),
        "above_limit",
        "/pack_meta/run_budget/max_cost_cents",
    ),
    "a longer session than the platform allows": (
        lambda one: one.pack["pack_meta"].update(max_session_duration_ms=10**12),
        "above_limit",
        "/pack_meta/max_session_duration_ms",
    ),
    "delegations that ended in the past": (
        each("delegations", expires_at=1_000_000_000),
        "no_delegation",
        "/tooling_layer/permissions",
    ),
    "delegations to an agent that is not there": (
        each("delegations", agent_id="agt_suport"),
        "no_delegation",
        "/tooling_layer/permissions",
    ),
    "a tool that no adapter has": (
        lambda one: one.tools["adapter_registry"][0].update(capabilities=["lookup", "look_up"]),
        "unknown_edge",
        f"{REGISTRY}/0/capabilities/1",
    ),
    "a prohibition of a tool that no adapter has": (
        lambda one: one.tools.update(prohibitions=["adp_payment.issue_refund"]),
        "not_now",
        "/tooling_layer/prohibitions/0",
    ),
    "a gate whose approvers cannot sign": (only_keyless, "nobody_answers", GATE),
    "a gate whose approver owns the agent": (only_the_owner, "nobody_answers", GATE),
    "a gate whose approver wrote the pack": (only_the_author, "nobody_answers", GATE),
    "a gate whose approvers granted themselves the role": (granted_to_themselves, "nobody_answers", GATE),
    "a question that waits longer than the run": (short_run, "beyond_limit", f"{GATE}/timeout_s"),
    "two rules with one name": (
        lambda one: one.rules.append(copy.deepcopy(one.rules[3])),
        "duplicate",
        f"{RULES}/9/rule_id",
    ),
    "a rule that is always false": (
        lambda one: one.refund_rule({"==": ["IN", "INR"]}),
        "never_matches",
        f"{RULES}/9/if",
    ),
    "a rule on an argument that the tool has not": (
        lambda one: one.refund_rule({">": [{"var": "args.amount"}, 1]}),
        "unknown_fact",
        f"{RULES}/9/if",
    ),
    "an escalation by a rule that is not there": (
        lambda one: one.guardrails.update(must_escalate=["R_ABOVE_LIMITS"]),
        "unknown_rule",
        "/policy_layer/guardrails/must_escalate/0",
    ),
    "an escalation to nobody": (nobody_holds("operator"), "nobody_holds", "/policy_layer/guardrails/must_escalate"),
    "memories that nobody reviews": (nobody_holds("memory_reviewer"), "nobody_holds", f"{TEMPLATES}/0/memory"),
    "fewer tool calls than the plan has": (
        lambda one: one.budget.update(max_tool_calls=2),
        "beyond_limit",
        f"{TEMPLATES}/0/steps",
    ),
    "less money than the calls of the plan cost": (
        lambda one: one.budget.update(max_cost_cents=0.3),
        "beyond_limit",
        f"{TEMPLATES}/0/steps",
    ),
    "a plan that no intent names": (old_plan, "unused", f"{TEMPLATES}/1"),
    "a ceiling under which the tool never runs": (
        lambda one: one.pack["pack_meta"].update(safety_ceiling="read_only"),
        "above_ceiling",
        f"{REGISTRY}/2/capabilities/0",
    ),
    "agents under the mode of the tool": (
        each("agents", ceiling="read_only"),
        "no_agent",
        f"{REGISTRY}/2/capabilities/0",
    ),
    "agents that are retired": (each("agents", lifecycle="retired"), "no_agent", REGISTRY),
    "users without the scopes of the tool": (
        each("users", scopes=["orders.read"]),
        "no_user",
        f"{REGISTRY}/2/capabilities/0",
    ),
    "a runtime that is not out yet": (
        lambda one: one.pack["contract_meta"]["compatibility"].update(requires={"runtime": ">=99.0.0"}),
        "unmet",
        "/contract_meta/compatibility/requires",
    ),
    "a sum over no time": (sum_of(0), "greater_than", "/policy_layer/policy_bundles/0/history/refunds/window_s"),
}

OF_SETTINGS: dict[str, Planted] = {
    "a folder of packs that is not there": (
        lambda one: one.settings.__setitem__(0, 'packs = ["pack"]'),
        "no_folder",
        "/packs/0",
    ),
    "egress of a tenant that is not there": (
        lambda one: one.settings.extend(["[egress]", 'tenant_acme_prd = ["api.example"]']),
        "no_tenant",
        "/egress/tenant_acme_prd",
    ),
    "redaction of a tenant that is not there": (
        lambda one: one.settings.extend(["[redaction]", 'tenant_acme_prd = ["email"]']),
        "no_tenant",
        "/redaction/tenant_acme_prd",
    ),
}


def plant_in(path: Path, plant: Plant) -> None:
    """Plant a fault in the refund example in `path`, and sign its pack anew."""
    workspace = Workspace.read(path)
    plant(workspace)
    workspace.write(path)
