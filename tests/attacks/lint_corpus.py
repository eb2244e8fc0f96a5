"""Sixty packs with one planted fault each: the example, changed at one place as an author might get it wrong.

A fault is (changes by JSON pointer, pointer of the finding, its code, a word of its remedy).
"""

from __future__ import annotations

from typing import Any, Final

from tests.unit.control.example import pack_json
from tests.unit.control.lint.test_pack import BROKEN

Fault = tuple[dict[str, Any], str, str, str]

RULES: Final = "/policy_layer/policy_bundles/0/policy_dsl/rules"
GATE: Final = "/policy_layer/approval_gates/0"


def reads(index: int, condition: Any, at: str, code: str, remedy: str = "", **applies: str) -> Fault:
    """A rule of the example with another condition, and where the fault in it is found."""
    rule = f"{RULES}/{index}"
    changes: dict[str, Any] = {f"{rule}/if": condition}
    changes |= {f"{rule}/applies_to/{name}": value for name, value in applies.items()}
    return changes, f"{rule}/{at}", code, remedy


def scoped(index: int, name: str, value: str, code: str, remedy: str = "") -> Fault:
    return {f"{RULES}/{index}/applies_to/{name}": value}, f"{RULES}/{index}/applies_to/{name}", code, remedy


def equal(path: str, value: Any) -> dict[str, Any]:
    return {"==": [{"var": path}, value]}


def rule(rule_id: str, **more: Any) -> dict[str, Any]:
    return {"rule_id": rule_id, "if": True, "then": {"allow": False}} | more


def without_checks() -> dict[str, Any]:
    rules = pack_json()["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
    kept = [one for one in rules if one["rule_id"] in ("R_REFUND_BY_SUPPORT", "R_LOW_VALUE_DELEGATED")]
    return {RULES: kept, "/policy_layer/guardrails/must_escalate": []}


OF_RULES: Final[dict[str, Fault]] = {
    "a role with a slip": reads(0, equal("user.rol", "support_agent"), "if/==/0/var", "unknown_fact", "`user.role`"),
    "evidence with a slip": reads(
        2, equal("evidence.identity_verifed", True), "if/==/0/var", "unknown_fact", "`evidence.identity_verified`"
    ),
    "a part of evidence with a slip": reads(
        4,
        equal("evidence.policy.eval.eligble", False),
        "if/==/0/var",
        "unknown_fact",
        "`evidence.policy.eval.eligible`",
    ),
    "an argument with a slip": reads(
        6, {"<=": [{"var": "args.amount_in"}, 3000]}, "if/<=/0/var", "unknown_fact", "`args.amount_inr`"
    ),
    "an argument of another capability": reads(6, equal("args.transaction_id", "x"), "if/==/0/var", "unknown_fact"),
    "a root with a slip": reads(0, equal("usr.role", "x"), "if/==/0/var", "unknown_fact", "`user.role`"),
    "a field of the request with a slip": reads(
        0, equal("request.chanel", "email"), "if/==/0/var", "unknown_fact", "`request.channel`"
    ),
    "a field of the run with a slip": reads(
        0, equal("run.enviroment", "prod"), "if/==/0/var", "unknown_fact", "`run.environment`"
    ),
    "a field of the tenant with a slip": reads(
        0, equal("tenant.tenantid", "x"), "if/==/0/var", "unknown_fact", "`tenant.tenant_id`"
    ),
    "a field of the agent with a slip": reads(
        0, equal("agent.lifecicle", "active"), "if/==/0/var", "unknown_fact", "`agent.lifecycle`"
    ),
    "a field of the capability with a slip": reads(
        0, equal("capability.externl", True), "if/==/0/var", "unknown_fact", "`capability.external`"
    ),
    "the provenance of no argument": reads(
        6, equal("provenance.amount_inrr", "literal"), "if/==/0/var", "unknown_fact", "`provenance.amount_inr`"
    ),
    "a fact that is only tested for presence": reads(
        0, {"!": [{"missing": ["user.rol"]}]}, "if/!/0/missing/0", "unknown_fact", "`user.role`"
    ),
    "a default hides a slip": reads(
        0, {"==": [{"var": ["user.rol", "x"]}, "x"]}, "if/==/0/var/0", "unknown_fact", "`user.role`"
    ),
    "history that nobody supplies": reads(
        6, {"<": [{"var": "history.refunds.count"}, 3]}, "if/</0/var", "unknown_fact", "`history`"
    ),
    "a role as a number": reads(0, equal("user.role", 5), "if/==/0/var", "type_mismatch", "string"),
    "a list as a text": reads(0, equal("user.roles", "support_agent"), "if/==/0/var", "type_mismatch", "array"),
    "an amount as a text": reads(6, equal("args.amount_inr", "3000"), "if/==/0/var", "type_mismatch", "number"),
    "a flag as a text": reads(0, equal("capability.external", "yes"), "if/==/0/var", "type_mismatch", "boolean"),
    "a part of evidence as a text": reads(
        4, equal("evidence.policy.eval.eligible", "no"), "if/==/0/var", "type_mismatch", "boolean"
    ),
    "an argument at compile": reads(
        6, {"<=": [{"var": "args.amount_inr"}, 3000]}, "if/<=/0/var", "unknown_at_point", "execute", point="compile"
    ),
    "evidence at plan": reads(
        2, equal("evidence.identity_verified", True), "if/==/0/var", "unknown_at_point", "execute", point="plan"
    ),
    "an environment that is none": scoped(0, "environment", "production", "unknown_environment", "staging"),
    "an environment with a slip": scoped(0, "environment", "stagin", "unknown_environment", "`staging`"),
    "a model at execute": reads(
        0, equal("model.wire", "openai"), "if/==/0/var", "unknown_at_point", "`model`", point="execute"
    ),
    "a model and an argument": reads(
        6,
        {"<=": [{"var": "args.amount_inr"}, {"var": "model.cost_cents"}]},
        "if/<=/1/var",
        "unknown_at_point",
        "rule of its own",
    ),
    "a wire that is none": reads(6, equal("model.wire", "opneai"), "if/==/1", "no_such_value", "`openai`"),
    "a guardrail with a slip": (
        {"/policy_layer/guardrails/must_escalate/-": equal("user.rol", "intern")},
        "/policy_layer/guardrails/must_escalate/1/==/0/var",
        "unknown_fact",
        "`user.role`",
    ),
    "an allow by what the caller says": reads(0, {"var": "request.context.vip"}, "if", "asserted_fact", "verified"),
    "an iterator": reads(0, {"some": [{"var": "user.roles"}, True]}, "if/some", "iterator", "history"),
    "an unknown operator": reads(0, {"equals": [{"var": "user.role"}, "x"]}, "if/equals", "unknown_operator"),
    "a computed path": reads(0, {"!": [{"var": [{"var": "user.role"}]}]}, "if/!/0/var", "computed_path"),
    "a mode that is lowered without a bound": (
        {f"{RULES}/6/then/arg_constraints": {}},
        f"{RULES}/6/then/approval_mode",
        "mode_not_bounded",
        "bound",
    ),
    "a range that is empty": (
        {f"{RULES}/6/then/arg_constraints/amount_inr": {"min": 5, "max": 1}},
        f"{RULES}/6/then/arg_constraints/amount_inr",
        "empty_range",
        "swap",
    ),
    "a pattern that backtracks": (
        {f"{RULES}/6/then/arg_constraints/currency": {"pattern": "(?=a)b"}},
        f"{RULES}/6/then/arg_constraints/currency/pattern",
        "pattern_refused",
        "RE2",
    ),
    "two rules of one id": (
        {f"{RULES}/-": rule("R_ABOVE_LIMIT")},
        f"{RULES}/9/rule_id",
        "duplicate_rule",
        "another id",
    ),
    "a rule with a reserved id": ({f"{RULES}/-": rule("R_GUARD_X")}, f"{RULES}/9/rule_id", "reserved_id", "another id"),
}

OF_ACCESS: Final[dict[str, Fault]] = {
    "a gate that nobody can answer": (
        {f"{GATE}/required_approver_role": "finance_led"},
        f"{GATE}/required_approver_role",
        "nobody_holds",
        "`finance_lead`",
    ),
    "a permission that nobody has": (
        {"/tooling_layer/permissions/2/roles": ["support_agnt"]},
        "/tooling_layer/permissions/2/roles/0",
        "nobody_holds",
        "`support_agent`",
    ),
    "a capability without a permission": (
        {"/tooling_layer/permissions/2/capability": "issue_refnd"},
        "/tooling_layer/adapter_registry/2/capabilities/0",
        "no_permission",
        "permission",
    ),
    "a destructive capability that nothing checks": (
        without_checks(),
        "/tooling_layer/adapter_registry/2/capabilities/0",
        "no_gate",
        "requires_approval_gate",
    ),
    "a read behind a gate": (
        {
            f"{RULES}/-": rule(
                "R_ASK",
                applies_to={"capability": "adp_orders.lookup"},
                then={"allow": True, "requires_approval_gate": "GATE_FINANCE_APPROVAL"},
            )
        },
        f"{RULES}/9/then/requires_approval_gate",
        "gate_on_read",
        "drop the gate",
    ),
}

EDGES: Final = 60 - len(OF_RULES) - len(OF_ACCESS)
OF_EDGES: Final[dict[str, Fault]] = {name: (*BROKEN[name], "") for name in list(BROKEN)[::2][:EDGES]}
CORPUS: Final = {**OF_RULES, **OF_ACCESS, **OF_EDGES}
