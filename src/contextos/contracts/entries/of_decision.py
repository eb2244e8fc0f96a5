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
_LIST_FIELDS: Final = ("gates", "matched_rule_ids", "denying_rule_ids")
_POLICY_FIELDS: Final = ("capability_id", "point", "allowed", "reason", "effective_approval_mode", *_LIST_FIELDS)
_RAISED_FIELDS: Final = frozenset({"must_refuse", "must_escalate", "gates", "asserted"})
"""The lists of a decision that raise something for the run; a decision states only those that are not empty."""


def _fold_decisions(account: RunAccount, entry: Logged) -> None:
    body = entry.body
    for decision in body.get("decisions", (body,)):
        rules = list(decision.get("matched_rule_ids", ()))
        account.decisions.append({"policy_decision_id": decision["policy_decision_id"], "rule_ids": rules})
        if rules:
            account.matched_rules |= dict.fromkeys(rules)
        for name in _RAISED_FIELDS & decision.keys():
            account.controls.setdefault(name, set()).update(decision[name])


def _fold_checkpoint(account: RunAccount, entry: Logged) -> None:
    account.evidence[str(entry.seq)] = list(entry.body["satisfied"].values())


def _verdict_text(decision: Mapping[str, Any], rationales: Mapping[str, str]) -> str:
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
    if reasons := [] if decision["allowed"] else [rationales[rule_id] for rule_id in rules if rule_id in rationales]:
        verdict += f": {displayed('; '.join(dict.fromkeys(reasons)))}"
    unknown = sorted({fact for missing in decision.get("indeterminate", ()) for fact in missing["facts"]})
    return f"{verdict}; not known: {', '.join(map(displayed, unknown))}" if unknown else verdict


def _decision_lines(entry: Logged, reader: StoryReader) -> Lines:
    for decision in entry.body.get("decisions", (entry.body,)):
        # At compile and plan only denials are listed: an allowed call is decided again at execute.
        if decision["point"] == "execute" or not decision["allowed"]:
            verdict = _verdict_text(decision, reader.rationales)
            yield f"{displayed(decision.get('capability_id'))} at {decision['point']}: {verdict}"


def _decision_severity(body: Any) -> Severity:
    """Return the severity: `warn` for a denied tool, `info` otherwise. At `compile` a denied tool is only not shown."""
    decisions = body.get("decisions", (body,))
    denied = any(decision.get("capability_id") and not decision.get("allowed") for decision in decisions)
    return "warn" if denied and decisions[0].get("point") != "compile" else "info"


def _decision_log_fields(body: Any) -> Mapping[str, Any]:
    """Return the policy's decision about one call, or about every tool at once, for the log of an operator."""
    decisions = body.get("decisions", (body,))
    lists = {"rule_ids": "matched_rule_ids", "denying_rule_ids": "denying_rule_ids", "gates": "gates"}
    return {
        "policy.point": decisions[0].get("point") if decisions else None,
        "policy_decision_ids": [decision.get("policy_decision_id") for decision in decisions],
        "policy.denied": [decision.get("capability_id") for decision in decisions if not decision.get("allowed")],
        **{
            f"policy.{name}": sorted({value for decision in decisions for value in decision.get(field, ())})
            for name, field in lists.items()
        },
    }


def _session_lines(entry: Logged, _: StoryReader) -> Lines:
    yield f"the agent can call: {', '.join(entry.body['tools']) or 'nothing'}"


def _session_reasons(entry: Logged) -> Because:
    for tool in entry.body["tools"]:
        yield "shown", tool, f"the agent of the session could call `{displayed(tool)}`"


def _call_lines(entry: Logged, _: StoryReader) -> Lines:
    call = f"{displayed(entry.body['tool'])} {displayed_json(entry.body['args'])}"
    yield f"the agent asks for {call} as {displayed(entry.key)}"


def _call_reasons(entry: Logged) -> Because:
    tool = entry.body["tool"]
    yield "call", tool, f"the agent asked for `{displayed(tool)}` with {displayed_json(entry.body['args'])}"


def _plan_lines(entry: Logged, _: StoryReader) -> Lines:
    yield f"plan {int(entry.key) + 1} verified: {entry.body['verdict']}{failures_text(entry.body)}"


def _observed_lines(entry: Logged, _: StoryReader) -> Lines:
    for finding in entry.body["findings"]:
        rules = ", ".join(displayed(rule) for rule in finding.get("rule_ids", ())) or displayed(finding["code"])
        reaction = "ask a person" if finding["verdict"] == "ask" else "deny"
        yield f"not enforced: {entry.body['by']} would {reaction} by {rules}; {displayed(finding['detail'])}"


def _observed_reasons(entry: Logged) -> Because:
    for finding in entry.body["findings"]:
        reaction = "asked a person" if finding["verdict"] == "ask" else "denied the call"
        yield "policy", None, f"the pack observes; enforcing would have {reaction}: {displayed(finding['detail'])}"


def _answer_lines(entry: Logged, _: StoryReader) -> Lines:
    yield f"{displayed(entry.key)} is {entry.body['status']}{failures_text(entry.body)}"


def _answer_reasons(entry: Logged) -> Because:
    """Yield the failures as reasons. A call that was made is never called refused, whatever its answer led to."""
    texts = {"done": "the call was made", "failed": "the call failed"}
    return listed_failures(texts.get(entry.body["status"], "the call was refused"))(entry)


def _finish_lines(entry: Logged, _: StoryReader) -> Lines:
    reason = f": {displayed(entry.body['reason'])}" if entry.body["reason"] else ""
    yield f"the agent finishes as {entry.body['outcome']}{reason}"


def _record_reasons(entry: Logged) -> Because:
    for failure in (entry.body.get("rationale") or {}).get("failures") or ():
        text = f"the run could not go on: {displayed(failure['code'])}, {displayed(failure['detail'])}"
        yield "call", failure.get("capability_id"), text


def _record_terms(body: Any) -> Iterator[tuple[str, str]]:
    yield "decision", body["decision_key"]
    yield "decision", body["record_id"]
    for subject in body["subject_ids"]:
        yield "subject", subject
    for approval in body["approvals"]:
        yield "approver", approval["approver"]
    for rule in {rule: None for decision in body["policy_decisions"] for rule in decision["rule_ids"]}:
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
            "parameters": [{"name": item["name"], "origin": item["origin"]} for item in body["parameters"]],
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
        fold=_fold_decisions,
        told=lambda body: {**dict.fromkeys(_LIST_FIELDS, ()), **picked(*_POLICY_FIELDS)(body)},
        story={"allowed": _decision_lines},
        graded=_decision_severity,
        noted=_decision_log_fields,
    ),
    "planner.answered": _recorded(
        recorded.AnsweredPlanner, "compiled", component="decision.planner", told=picked("refused", "late")
    ),
    "session.opened": _derived(
        derived.OpenedSession,
        "compiled>open",
        component=AGENT_SESSION,
        told=picked("tools", "deadline_us", "observed"),
        story={"allowed": _session_lines},
        why=_session_reasons,
    ),
    "call.asked": _recorded(
        recorded.AskedCall,
        "open>compiled compiled",
        author="agent",
        wakes=True,
        component=AGENT_SESSION,
        told=picked("tool", "args"),
        story={"allowed": _call_lines},
        why=_call_reasons,
    ),
    "plan.proposed": _derived(
        Plan,
        "compiled,open>planning",
        component="decision.planner",
        told=lambda body: {
            "revision": body["revision"],
            "steps": [{"id": step["id"], "tool": step["tool"]} for step in body["steps"]],
        },
    ),
    "plan.verified": _derived(
        derived.VerifiedPlan,
        "planning>verifying:ok planning>resolved:replan planning>scoring:reject planning>scoring:escalate",
        decides="verdict",
        component="decision.critic",
        told=picked("verdict", "failures"),
        story={"allowed": _plan_lines},
        why=listed_failures("the plan was not accepted"),
    ),
    "call.observed": _derived(
        derived.ObservedCall,
        "planning executing scoring verifying>executing waiting>executing",
        component=TOOL_GATEWAY,
        told=picked("by", "findings"),
        story={"allowed": _observed_lines},
        why=_observed_reasons,
    ),
    "checkpoint.checked": _derived(
        derived.CheckedCheckpoint,
        "resolved compiled open planning executing verifying>executing",
        component=TOOL_GATEWAY,
        fold=_fold_checkpoint,
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
        story={"allowed": _answer_lines},
        why=_answer_reasons,
    ),
    "session.finished": _recorded(
        recorded.FinishedSession,
        "open>scoring",
        author="agent",
        wakes=True,
        component=AGENT_SESSION,
        told=picked("outcome", "reason"),
        story={"allowed": _finish_lines},
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
        why=_record_reasons,
        terms=_record_terms,
    ),
    "replay.packed": _derived(
        derived.PackedReplay, "scoring received>scoring resolved>scoring compiled>scoring", component="trust.record"
    ),
}
