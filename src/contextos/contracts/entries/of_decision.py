"""The kinds of the decision ledger: what was asked, planned, decided and scored, and the record of it."""

from __future__ import annotations

from typing import Final

from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.row import AGENT_SESSION, TOOL_GATEWAY, Kind, picked
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.record import Scorecard
from contextos.contracts.journal import DECISION, Logged

RECORD_SHOWN: Final = ("record_id", "status", "outcome", "decision_key", "decision_version", "record_hash")
"""The members of a record that who watches the run gets to see."""
_LISTS: Final = ("gates", "matched_rule_ids", "denying_rule_ids")
_POLICY: Final = ("capability_id", "point", "allowed", "reason", "effective_approval_mode", *_LISTS)
_RAISED: Final = ("must_refuse", "must_escalate", "gates", "asserted")
"""What decisions raise, each a list in every one of them."""


def _decided(account: RunAccount, entry: Logged) -> None:
    body = entry.body
    for one in body.get("decisions", (body,)):
        rules = list(one.get("matched_rule_ids", ()))
        account.decisions.append({"policy_decision_id": one["policy_decision_id"], "rule_ids": rules})
        if rules:
            account.matched_rules |= dict.fromkeys(rules)
        for name in _RAISED:
            if raised := one.get(name):
                account.controls.setdefault(name, set()).update(raised)


def _revised(account: RunAccount, entry: Logged) -> None:
    account.record = account.whole_record(entry.body)


def _checked(account: RunAccount, entry: Logged) -> None:
    account.evidence[str(entry.seq)] = list(entry.body["satisfied"].values())


DECISION_KINDS: Final[dict[str, Kind]] = {
    "intent.resolved": Kind(
        DECISION,
        derived.ResolvedIntentBody,
        "resolved",
        component="decision.intents",
        told=picked("intent_id", "version"),
    ),
    "parameters.taken": Kind(
        DECISION,
        derived.TakenParameters,
        "resolved",
        component="decision.intent_parameters",
        told=lambda body: {
            "parameters": [{"name": one["name"], "origin": one["origin"]} for one in body["parameters"]],
            "missing": body["missing"],
        },
    ),
    "policy.decided": Kind(
        DECISION,
        PolicyDecision | derived.DecidedPolicies,
        "resolved compiled open planning executing waiting verifying>executing scoring>resolved",
        component="trust.policy",
        component_by_key={
            "execute": "action.tool_gateway",
            "redeem": "trust.approvals",
            "slot": "slots.selection",
            "memory": "intelligence.memory_proposal",
        },
        severity="info",
        fold=_decided,
        told=lambda body: {**dict.fromkeys(_LISTS, ()), **picked(*_POLICY)(body)},
    ),
    "planner.answered": Kind(
        DECISION,
        recorded.AnsweredPlanner,
        "compiled",
        recorded=True,
        component="decision.planner",
        told=picked("refused", "late"),
    ),
    "session.opened": Kind(
        DECISION,
        derived.OpenedSession,
        "compiled>open",
        component=AGENT_SESSION,
        told=picked("tools", "deadline_us", "observed"),
    ),
    "call.asked": Kind(
        DECISION,
        recorded.AskedCall,
        "open>compiled",
        recorded=True,
        author="agent",
        wakes=True,
        component=AGENT_SESSION,
        told=picked("tool", "args"),
    ),
    "plan.proposed": Kind(
        DECISION,
        Plan,
        "compiled>planning",
        component="decision.planner",
        told=lambda body: {
            "revision": body["revision"],
            "steps": [{"id": one["id"], "tool": one["tool"]} for one in body["steps"]],
        },
    ),
    "plan.verified": Kind(
        DECISION,
        derived.VerifiedPlan,
        "planning>verifying:ok planning>resolved:replan planning>scoring:reject planning>scoring:escalate",
        decides="verdict",
        component="decision.critic",
        told=picked("verdict", "failures"),
    ),
    "call.observed": Kind(
        DECISION,
        derived.ObservedCall,
        "planning executing scoring verifying>executing waiting>executing",
        component=TOOL_GATEWAY,
        told=picked("by", "findings"),
    ),
    "checkpoint.checked": Kind(
        DECISION,
        derived.CheckedCheckpoint,
        "resolved compiled open planning executing verifying>executing",
        component=TOOL_GATEWAY,
        fold=_checked,
        told=lambda body: {
            "decision_key": body["decision_key"],
            "satisfied": sorted(body["satisfied"]),
            "unresolved": body["unresolved"],
        },
    ),
    "call.answered": Kind(
        DECISION,
        derived.AnsweredCall,
        "resolved>open compiled>open verifying>open executing>open scoring>open",
        component=AGENT_SESSION,
        told=picked("status", "step", "failures"),
    ),
    "session.finished": Kind(
        DECISION,
        recorded.FinishedSession,
        "open>scoring",
        recorded=True,
        author="agent",
        wakes=True,
        component=AGENT_SESSION,
        told=picked("outcome", "reason"),
    ),
    "run.scored": Kind(
        DECISION,
        Scorecard,
        "scoring resolved,choosing,compiled,open,verifying,executing,waiting>scoring",
        component="decision.scoring",
        told=picked("verdict"),
    ),
    "record.revised": Kind(
        DECISION,
        derived.StatedRecord,
        "choosing waiting scoring received>scoring resolved>scoring compiled>scoring executing>waiting",
        component="trust.record",
        component_by_key={"approval": "trust.approvals", "uncertain": "action.tool_gateway", "slot": "slots.selection"},
        fold=_revised,
        told=picked(*RECORD_SHOWN),
    ),
    "replay.packed": Kind(
        DECISION,
        derived.PackedReplay,
        "scoring received>scoring resolved>scoring compiled>scoring",
        component="trust.record",
    ),
}
