"""The kinds of the decision ledger: what was asked, planned, decided and scored, and the record of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.row import (
    AGENT_SESSION,
    TOOL_GATEWAY,
    Because,
    Kind,
    Lines,
    Severity,
    StoryReader,
    failures_text,
    listed_failures,
    picked,
)
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.record import DecisionRecord, Scorecard
from contextos.contracts.journal import DECISION, Logged

RECORD_SHOWN: Final = ("record_id", "status", "outcome", "decision_key", "decision_version", "record_hash")
"""The members of a record that people who watch the run see."""
_LISTS: Final = ("gates", "matched_rule_ids", "denying_rule_ids")
_POLICY: Final = ("capability_id", "point", "allowed", "reason", "effective_approval_mode", *_LISTS)
_RAISED: Final = frozenset({"must_refuse", "must_escalate", "gates", "asserted"})
"""The lists of a decision that raise something for the run; a decision states only those that are not empty."""


def _decided(account: RunAccount, entry: Logged) -> None:
    body = entry.body
    for one in body.get("decisions", (body,)):
        rules = list(one.get("matched_rule_ids", ()))
        account.decisions.append({"policy_decision_id": one["policy_decision_id"], "rule_ids": rules})
        if rules:
            account.matched_rules |= dict.fromkeys(rules)
        for name in _RAISED & one.keys():
            account.controls.setdefault(name, set()).update(one[name])


def _checked(account: RunAccount, entry: Logged) -> None:
    account.evidence[str(entry.seq)] = list(entry.body["satisfied"].values())


def _verdict(decision: Mapping[str, Any], rationales: Mapping[str, str]) -> str:
    """Return the verdict in words: allowed or denied, the approval mode, the required gates, the rules that matched,
    and the rationales of the rules that deny.
    """
    words = ["allowed" if decision["allowed"] else f"denied ({decision['reason']})"]
    if decision["allowed"] and decision.get("effective_approval_mode"):
        words.append(f"as {decision['effective_approval_mode']}")
    verdict = " ".join(words)
    gates = ", ".join(decision.get("gates", ())) if decision["allowed"] else ""
    rules = decision.get("denying_rule_ids") or decision.get("matched_rule_ids") or ()
    if gates:
        verdict += f", needs {gates}"
    if rules:
        verdict += f"{',' if gates else ''} by {', '.join(map(displayed, rules))}"
    if because := [] if decision["allowed"] else [rationales[one] for one in rules if one in rationales]:
        verdict += f": {displayed('; '.join(dict.fromkeys(because)))}"
    unknown = sorted({fact for one in decision.get("indeterminate", ()) for fact in one["facts"]})
    return f"{verdict}; not known: {', '.join(map(displayed, unknown))}" if unknown else verdict


def _verdicts(entry: Logged, read: StoryReader) -> Lines:
    for one in entry.body.get("decisions", (entry.body,)):
        # At compile and plan only denials are listed: an allowed call is decided again at execute.
        if one["point"] == "execute" or not one["allowed"]:
            yield f"{displayed(one.get('capability_id'))} at {one['point']}: {_verdict(one, read.rationales)}"


def _decision_grade(body: Any) -> Severity:
    """Return the severity: `warn` for a denied tool, `info` otherwise. At `compile` a denied tool is only not shown."""
    decided = body.get("decisions", (body,))
    denied = any(one.get("capability_id") and not one.get("allowed") for one in decided)
    return "warn" if denied and decided[0].get("point") != "compile" else "info"


def _decision_noted(body: Any) -> Mapping[str, Any]:
    """Return the policy's decision about one call, or about every tool at once, for the log of an operator."""
    decided = body.get("decisions", (body,))
    lists = {"rule_ids": "matched_rule_ids", "denying_rule_ids": "denying_rule_ids", "gates": "gates"}
    return {
        "policy.point": decided[0].get("point") if decided else None,
        "policy_decision_ids": [one.get("policy_decision_id") for one in decided],
        "policy.denied": [one.get("capability_id") for one in decided if not one.get("allowed")],
        **{
            f"policy.{name}": sorted({each for one in decided for each in one.get(field, ())})
            for name, field in lists.items()
        },
    }


def _can_call(entry: Logged, _: StoryReader) -> Lines:
    yield f"the agent can call: {', '.join(entry.body['tools']) or 'nothing'}"


def _could_call(entry: Logged) -> Because:
    for tool in entry.body["tools"]:
        yield "shown", tool, f"the agent of the session could call `{displayed(tool)}`"


def _asks(entry: Logged, _: StoryReader) -> Lines:
    call = f"{displayed(entry.body['tool'])} {displayed_json(entry.body['args'])}"
    yield f"the agent asks for {call} as {displayed(entry.key)}"


def _asked(entry: Logged) -> Because:
    tool = entry.body["tool"]
    yield "call", tool, f"the agent asked for `{displayed(tool)}` with {displayed_json(entry.body['args'])}"


def _plan(entry: Logged, _: StoryReader) -> Lines:
    yield f"plan {int(entry.key) + 1} verified: {entry.body['verdict']}{failures_text(entry.body)}"


def _not_enforced(entry: Logged, _: StoryReader) -> Lines:
    for one in entry.body["findings"]:
        rules = ", ".join(displayed(rule) for rule in one.get("rule_ids", ())) or displayed(one["code"])
        would = "ask a person" if one["verdict"] == "ask" else "deny"
        yield f"not enforced: {entry.body['by']} would {would} by {rules}; {displayed(one['detail'])}"


def _observed(entry: Logged) -> Because:
    for one in entry.body["findings"]:
        would = "asked a person" if one["verdict"] == "ask" else "denied the call"
        yield "policy", None, f"the pack observes; enforcing would have {would}: {displayed(one['detail'])}"


def _is_answered(entry: Logged, _: StoryReader) -> Lines:
    yield f"{displayed(entry.key)} is {entry.body['status']}{failures_text(entry.body)}"


def _answered_because(entry: Logged) -> Because:
    """Yield the failures as reasons. A call that was made is never called refused, whatever its answer led to."""
    what = {"done": "the call was made", "failed": "the call failed"}.get(entry.body["status"], "the call was refused")
    return listed_failures(what)(entry)


def _finishes(entry: Logged, _: StoryReader) -> Lines:
    reason = f": {displayed(entry.body['reason'])}" if entry.body["reason"] else ""
    yield f"the agent finishes as {entry.body['outcome']}{reason}"


def _gave_up(entry: Logged) -> Because:
    for one in (entry.body.get("rationale") or {}).get("failures") or ():
        text = f"the run could not go on: {displayed(one['code'])}, {displayed(one['detail'])}"
        yield "call", one.get("capability_id"), text


def _stated(body: Any) -> Iterator[tuple[str, str]]:
    yield "decision", body["decision_key"]
    yield "decision", body["record_id"]
    for subject in body["subject_ids"]:
        yield "subject", subject
    for one in body["approvals"]:
        yield "approver", one["approver"]
    for rule in {rule: None for one in body["policy_decisions"] for rule in one["rule_ids"]}:
        yield "rule", rule


_recorded = partial(Kind, DECISION, recorded=True)
_derived = partial(Kind, DECISION)

DECISION_KINDS: Final[dict[str, Kind]] = {
    "intent.resolved": _derived(
        derived.ResolvedIntentBody, "resolved", component="decision.intents", told=picked("intent_id", "version")
    ),
    "parameters.taken": _derived(
        derived.TakenParameters,
        "resolved",
        component="decision.intent_parameters",
        told=lambda body: {
            "parameters": [{"name": one["name"], "origin": one["origin"]} for one in body["parameters"]],
            "missing": body["missing"],
        },
    ),
    "policy.decided": _derived(
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
        story={"allowed": _verdicts},
        graded=_decision_grade,
        noted=_decision_noted,
    ),
    "planner.answered": _recorded(
        recorded.AnsweredPlanner, "compiled", component="decision.planner", told=picked("refused", "late")
    ),
    "session.opened": _derived(
        derived.OpenedSession,
        "compiled>open",
        component=AGENT_SESSION,
        told=picked("tools", "deadline_us", "observed"),
        story={"allowed": _can_call},
        why=_could_call,
    ),
    "call.asked": _recorded(
        recorded.AskedCall,
        "open>compiled compiled",
        author="agent",
        wakes=True,
        component=AGENT_SESSION,
        told=picked("tool", "args"),
        story={"allowed": _asks},
        why=_asked,
    ),
    "plan.proposed": _derived(
        Plan,
        "compiled,open>planning",
        component="decision.planner",
        told=lambda body: {
            "revision": body["revision"],
            "steps": [{"id": one["id"], "tool": one["tool"]} for one in body["steps"]],
        },
    ),
    "plan.verified": _derived(
        derived.VerifiedPlan,
        "planning>verifying:ok planning>resolved:replan planning>scoring:reject planning>scoring:escalate",
        decides="verdict",
        component="decision.critic",
        told=picked("verdict", "failures"),
        story={"allowed": _plan},
        why=listed_failures("the plan was not accepted"),
    ),
    "call.observed": _derived(
        derived.ObservedCall,
        "planning executing scoring verifying>executing waiting>executing",
        component=TOOL_GATEWAY,
        told=picked("by", "findings"),
        story={"allowed": _not_enforced},
        why=_observed,
    ),
    "checkpoint.checked": _derived(
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
    "call.answered": _derived(
        derived.AnsweredCall,
        "resolved>open compiled>open verifying>open executing>open scoring>open open",
        component=AGENT_SESSION,
        told=picked("status", "step", "failures"),
        story={"allowed": _is_answered},
        why=_answered_because,
    ),
    "session.finished": _recorded(
        recorded.FinishedSession,
        "open>scoring",
        author="agent",
        wakes=True,
        component=AGENT_SESSION,
        told=picked("outcome", "reason"),
        story={"allowed": _finishes},
    ),
    "run.scored": _derived(
        Scorecard,
        "scoring resolved,choosing,compiled,open,verifying,executing,waiting>scoring",
        component="decision.scoring",
        told=picked("verdict"),
    ),
    "record.revised": _derived(
        DecisionRecord,
        "choosing waiting scoring received>scoring resolved>scoring compiled>scoring executing>waiting",
        component="trust.record",
        component_by_key={"approval": "trust.approvals", "uncertain": "action.tool_gateway", "slot": "slots.selection"},
        told=picked(*RECORD_SHOWN),
        why=_gave_up,
        terms=_stated,
    ),
    "replay.packed": _derived(
        derived.PackedReplay, "scoring received>scoring resolved>scoring compiled>scoring", component="trust.record"
    ),
}
