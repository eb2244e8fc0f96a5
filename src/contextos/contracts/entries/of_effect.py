"""The kinds of the effect ledger: what the gateway looked up, asked, sent and got, and what people answered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from contextos.contracts.encoding.display_escape import an, displayed, displayed_json
from contextos.contracts.encoding.instructions import INSTRUCTIONS_TAG
from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.account import RunAccount, answered_call, cost_units, settled_call
from contextos.contracts.entries.row import (
    TOOL_GATEWAY,
    TRUST_APPROVALS,
    Aside,
    Because,
    Kind,
    Lines,
    StoryReader,
    picked,
)
from contextos.contracts.envelopes.identity import Answered, Settled
from contextos.contracts.journal import EFFECT, Logged
from contextos.contracts.statements.questions import escape_all


def _fold_evidence(account: RunAccount, entry: Logged) -> None:
    account.evidence[str(entry.seq)] = [item["evidence_ref"] for item in entry.body["items"]]


def _fold_dispatch(account: RunAccount, entry: Logged) -> None:
    account.tool_calls += 1
    account.cost_units[entry.key] = cost_units(entry.body["reserved_cents"])
    account.evidence.setdefault(f"of {entry.key}", ())


def _fold_retry(account: RunAccount, entry: Logged) -> None:
    # Under one key a call happens once, however often it is sent: it counts once, at the cost of its last attempt.
    account.tool_calls -= 1
    account.cost_units.pop(entry.key, None)


def _fold_result(account: RunAccount, entry: Logged) -> None:
    body = entry.body
    account.cost_units[entry.key] = cost_units(body["cost_cents"])
    # The clock can have been set forward and back during the call.
    account.waited_us += min(body.get("waited_us", 0), entry.at_us - account.now_us)
    envelope, place = body["envelope"], f"of {entry.key}"
    if place in account.evidence:
        account.evidence[place] = [citation["evidence_ref"] for citation in envelope["citations"]]
    if INSTRUCTIONS_TAG in envelope.get("risk_tags", ()):
        account.instructing[f"tool:{envelope['capability_id']}"] = None
    answered_call(account, entry)


def _refusal_fields(body: Any) -> Mapping[str, Any]:
    envelope = body["envelope"]
    return picked("tool_call_id", "capability_id", "status", "error", "withheld", "made_by")(
        {**envelope, **envelope["metadata"]}
    )


_QUESTION_FIELDS: Final = ("capability_id", "approval_id", "gate_id", "required_role", "deadline_us")


def _question_fields(body: Any) -> Mapping[str, Any]:
    fields = ("approval_id", "gate_id", "required_role", "deadline_us", "binding_digest", "args")
    return {"capability_id": body["binding"]["capability_id"], **picked(*fields)(body)}


def _refusal_log_fields(body: Any) -> Mapping[str, Any]:
    # An operation that was done before is not sent again, and its entry has no error.
    envelope, error = body["envelope"], body["envelope"]["error"]
    call = picked("capability_id", "tool_call_id")(envelope)
    return {**call, "error_code": error.get("code")} if error else call


_RETRY_TEXTS: Final = {
    "send": "nothing was sent; it is sent",
    "send_again": "sent again under the same key",
    "look_up": "looked up again",
}
"""What a scheduled attempt does, in words."""


def _retry_lines(entry: Logged, _: StoryReader) -> Lines:
    wait_us = entry.body["at_us"] - entry.at_us
    duration = f"{wait_us / 1e6:.1f} s" if wait_us < 120_000_000 else f"{wait_us / 6e7:.0f} min"
    yield f"{_RETRY_TEXTS[entry.body['how']]} after a wait of {duration}"


def _dispatch_lines(entry: Logged, reader: StoryReader) -> Lines:
    note, body = "", entry.body
    if body["mode"] == "reconcile":
        attempts = reader.run.of("tool.retry_scheduled", "tool.dispatching")
        previous = [attempt for attempt in attempts if attempt.seq < entry.seq]
        action = (previous[-1].body or {}).get("how", "") if previous else ""
        note = f" ({_RETRY_TEXTS[action] if action == 'send_again' else 'asks what became of it'})"
    yield f"calls {displayed(body['envelope']['capability_id'])} {displayed_json(body['envelope']['args'])}{note}"


def _dispatch_reasons(entry: Logged) -> Because:
    envelope = entry.body["envelope"]
    tool, approval = envelope["capability_id"], entry.body.get("approval_id")
    authority = f"under the approval {displayed(approval)}" if approval else "and nobody had to be asked"
    yield "call", tool, f"`{displayed(tool)}` was sent as {envelope['approval_mode_effective']}, {authority}"


def _refusal_lines(entry: Logged, _: StoryReader) -> Lines:
    envelope = entry.body["envelope"]
    capability = displayed(envelope["capability_id"])
    if made_by := envelope["metadata"].get("made_by"):
        run = displayed(made_by["run_id"])
        yield f"{capability} was done before by {run}; its answer counts here too: {_answer_text(envelope)}"
    else:
        yield f"gateway refuses {capability}: {_error_message(envelope)}"


def _refusal_reasons(entry: Logged) -> Because:
    envelope = entry.body["envelope"]
    tool, made_by = envelope["capability_id"], envelope["metadata"].get("made_by")
    reason = f"was not sent again: {displayed(made_by['run_id'])} did the same operation" if made_by else None
    yield "call", tool, f"`{displayed(tool)}` {reason or f'was refused: {_error_message(envelope)}'}"


def _error_message(envelope: Mapping[str, Any]) -> str:
    return displayed((envelope.get("error") or {}).get("message", envelope["status"]))


def _result_lines(entry: Logged, _: StoryReader) -> Lines:
    body, envelope = entry.body, entry.body["envelope"]
    if body["outcome"] == "unknown" and not body.get("no_record"):
        yield "no answer: it is not known whether it happened"
    elif body["outcome"] == "unknown":
        yield displayed(envelope["error"]["message"])
    elif envelope.get("error"):
        yield f"{envelope['status']}: {displayed(envelope['error']['message'])}"
    else:
        changed = "".join(f"; changed {displayed(mutation)}" for mutation in envelope.get("mutations", ()))
        prefix = "it was done before the restore, and was not sent again: " if body.get("done_before") else ""
        yield f"{prefix}{envelope['status']} {_answer_text(envelope)}{changed}"


def _answer_text(envelope: Mapping[str, Any]) -> str:
    """Return the answer of a tool as text, or why it is withheld."""
    if withheld := envelope.get("withheld"):
        return f"(its answer is withheld: {withheld['code']}, {displayed(withheld['detail'])})"
    artifacts = "".join(f", and made {displayed(artifact['name'])}" for artifact in envelope.get("artifacts", ()))
    return f"{displayed_json(envelope.get('output'))}{artifacts}"


_HAPPENED_TEXTS: Final = {True: "happened", False: "did not happen"}


def _settlement_lines(entry: Logged, _: StoryReader) -> Lines:
    operator, evidence = displayed(entry.body["by"]), displayed(entry.body["evidence_ref"])
    yield f"{operator} settles: it {_HAPPENED_TEXTS[entry.body['happened']]} ({evidence})"


def _settlement_reasons(entry: Logged) -> Because:
    yield "authority", None, f"{displayed(entry.body['by'])} settled that it {_HAPPENED_TEXTS[entry.body['happened']]}"


def _question_lines(entry: Logged, _: StoryReader) -> Lines:
    body = entry.body
    evidence = ", ".join(displayed(item["name"]) for item in body["evidence"])
    role = an(displayed(body["required_role"]))
    yield f"{body['gate_id']} asks {role} about {displayed(body['binding']['capability_id'])}"
    yield Aside(f"shown: {displayed_json(escape_all(body['args']))}; evidence: {evidence or 'none'}")


def _question_reasons(entry: Logged) -> Because:
    body = entry.body
    tool, role = body["binding"]["capability_id"], body["required_role"]
    yield "gate", tool, f"{displayed(body['gate_id'])} asked {an(displayed(role))} about {displayed_json(body['args'])}"
    if names := ", ".join(displayed(item["name"]) for item in body["evidence"]):
        yield "fact", tool, f"the approver was shown the evidence {names}"
    if untrusted := body["binding"]["untrusted"]:
        yield "fact", tool, f"nothing trusted has the arguments {', '.join(map(displayed, untrusted))}"


_PROOF_TEXTS: Final = {"jws": "signed with their key", "oidc": "proved by their login", "webauthn": "by their passkey"}


def _approval_lines(entry: Logged, reader: StoryReader) -> Lines:
    body = entry.body
    if entry.seq in reader.run.void_answers():
        yield "an answer came that does not count"
        return
    proof = _PROOF_TEXTS.get(kind := body["assertion"]["kind"], f"not signed ({displayed(kind)})")
    reason = f": {displayed(body['reason'])}" if body["reason"] else ""
    yield f"{displayed(body['approver'])} {body['verdict']}{reason}; {proof}"


def _approval_reasons(entry: Logged) -> Because:
    body = entry.body
    reason = f": {displayed(body['reason'])}" if body["reason"] else ""
    proof = f" (proof: {displayed(body['assertion']['kind'])})"
    yield "authority", None, f"{displayed(body['approver'])} {displayed(body['verdict'])} it{proof}{reason}"


def _recheck_lines(entry: Logged, _: StoryReader) -> Lines:
    yield f"{entry.body['bound']} pins and facts asked again before it counts"


_by_gateway = partial(Kind, EFFECT, component=TOOL_GATEWAY)
_by_approvals = partial(Kind, EFFECT, component=TRUST_APPROVALS)

EFFECT_KINDS: Final[dict[str, Kind]] = {
    "act.looked_up": _by_gateway(recorded.OperationLookup, "executing waiting verifying>executing", recorded=True),
    "capability.quarantined": _by_gateway(
        recorded.QuarantinedCapability,
        "executing waiting verifying>executing",
        recorded=True,
        severity="error",
        always_kept=True,
        told=picked("capability_id", "incidents"),
        noted=picked("capability_id", "incidents"),
    ),
    "history.read": _by_gateway(recorded.HistoryRead, "executing waiting verifying>executing", recorded=True),
    "answer.compared": _by_gateway(recorded.ComparedAnswer, "executing verifying>executing", recorded=True),
    "arguments.traced": _by_gateway(derived.TracedArguments, "executing verifying>executing"),
    "credential.exchanged": _by_gateway(recorded.ExchangedCredential, "executing waiting", recorded=True),
    "tool.refused": _by_gateway(
        derived.RefusedCall,
        "executing verifying>executing waiting>executing",
        severity="warn",
        always_kept=True,
        fold=answered_call,
        told=_refusal_fields,
        story={"did": _refusal_lines},
        why=_refusal_reasons,
        noted=_refusal_log_fields,
    ),
    "tool.dispatching": _by_gateway(
        derived.DispatchedCall,
        "executing verifying>executing waiting>executing",
        fold=_fold_dispatch,
        story={"did": _dispatch_lines},
        why=_dispatch_reasons,
    ),
    "tool.returned": _by_gateway(
        recorded.ReturnedCall,
        "executing waiting>executing",
        recorded=True,
        fold=_fold_result,
        story={"did": _result_lines},
        noticed=lambda body: picked("capability_id", "tool_call_id")(body["envelope"]),
        asks="settlement",
    ),
    "tool.retry_scheduled": _by_gateway(
        derived.ScheduledRetry,
        "executing",
        severity="warn",
        fold=_fold_retry,
        told=picked("how", "at_us", "tool_call_id"),
        story={"did": _retry_lines},
    ),
    "tool.retry_due": _by_gateway(recorded.DueRetry, "executing", recorded=True, wakes=True),
    "effect.settled": _by_gateway(
        Settled,
        "waiting>executing",
        recorded=True,
        author="/by",
        appended=True,
        wakes=True,
        severity="warn",
        always_kept=True,
        fold=settled_call,
        told=picked("by", "happened", "evidence_ref"),
        story={"did": _settlement_lines},
        why=_settlement_reasons,
        noted=lambda body: {"effect": body["happened"]},
        noticed=picked("happened", "by"),
        answers="settlement",
    ),
    "evidence.frozen": _by_gateway(derived.FrozenEvidence, "executing", fold=_fold_evidence),
    "evidence.rechecked": _by_approvals(
        derived.RecheckedEvidence, "waiting", recorded=True, story={"approved": _recheck_lines}
    ),
    "approval.asked": _by_approvals(
        derived.AskedApproval,
        "executing>waiting",
        severity="info",
        always_kept=True,
        told=_question_fields,
        story={"approved": _question_lines},
        why=_question_reasons,
        noted=picked("approval_id", "gate_id", "required_role"),
        noticed=lambda body: picked(*_QUESTION_FIELDS)(_question_fields(body)),
        asks="approval",
    ),
    "approval.answered": _by_approvals(
        Answered,
        "waiting",
        recorded=True,
        author="/approver",
        appended=True,
        wakes=True,
        severity="info",
        told=lambda body: {
            **picked("approver", "verdict", "reason", "binding_digest")(body),
            "assertion": body["assertion"]["kind"],
        },
        story={"approved": _approval_lines},
        why=_approval_reasons,
        noted=picked("verdict", "binding_digest"),
        noticed=lambda body: {"verdict": body["verdict"], "by": body["approver"]},
        answers="approval",
    ),
    "approval.expired": _by_approvals(
        recorded.ExpiredApproval,
        "waiting",
        recorded=True,
        wakes=True,
        severity="warn",
        told=picked(),
        story={"approved": "nobody answered in time"},
        why=("authority", "nobody answered in time"),
        answers="approval",
    ),
    "approval.reasked": _by_approvals(
        recorded.ReaskedApproval,
        "waiting",
        recorded=True,
        author="/by",
        appended=True,
        wakes=True,
        severity="warn",
        told=picked("by", "reason", "changed"),
        story={"approved": "{by} has it asked again: {reason}"},
        why=("authority", "{by} had it asked again: {reason}"),
        answers="approval",
    ),
    "approval.voided": _by_approvals(
        derived.VoidedApproval,
        "executing waiting>executing",
        severity="warn",
        told=picked("approval_id", "reason"),
        story={"approved": "void: {reason}"},
        why=("authority", "the approval did not hold: {reason}"),
    ),
}
