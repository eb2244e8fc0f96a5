"""The kinds of the effect ledger: what the gateway looked up, asked, sent and got, and what people answered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from contextos.contracts.encoding.instructions import INSTRUCTIONS_TAG
from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.account import RunAccount, cost_units
from contextos.contracts.entries.row import TOOL_GATEWAY, TRUST_APPROVALS, Kind, picked
from contextos.contracts.envelopes.tool import Answered, Settled
from contextos.contracts.journal import EFFECT, Logged


def _frozen(account: RunAccount, entry: Logged) -> None:
    account.evidence[str(entry.seq)] = [item["evidence_ref"] for item in entry.body["items"]]


def _dispatched(account: RunAccount, entry: Logged) -> None:
    account.tool_calls += 1
    account.cost_units[entry.key] = cost_units(entry.body["reservation"]["cost_cents"])
    account.evidence.setdefault(f"of {entry.key}", ())


def _retried(account: RunAccount, entry: Logged) -> None:
    # Under one key a call happens once, however often it is sent: it counts once, at the cost of its last try.
    account.tool_calls -= 1
    account.cost_units.pop(entry.key, None)


def _returned(account: RunAccount, entry: Logged) -> None:
    body = entry.body
    account.cost_units[entry.key] = cost_units(body["cost_cents"])
    # The clock can have been set forward and back during the call.
    account.waited_us += min(body.get("waited_us", 0), entry.at_us - account.now_us)
    envelope, place = body["envelope"], f"of {entry.key}"
    if place in account.evidence:
        account.evidence[place] = [citation["evidence_ref"] for citation in envelope["citations"]]
    if INSTRUCTIONS_TAG in envelope["risk_tags"]:
        account.instructing[f"tool:{envelope['capability_id']}"] = None
    _answered_call(account, entry)


def _answered_call(account: RunAccount, entry: Logged) -> None:
    """What the answer of a call, or its refusal, says of its effect."""
    call, effects, envelope = _call(entry), account.effects, entry.body["envelope"]
    made_by = envelope["metadata"].get("made_by")
    happened = made_by is not None or bool(entry.body.get("happened"))
    if not happened and entry.body.get("outcome") != "unknown":
        if entry.kind == "tool.returned":
            effects.pop(call, None)
        return
    if made_by and any(one["tool_call_id"] == made_by["tool_call_id"] for one in effects.values()):
        return  # the run itself did it, before it was reopened
    effects[call] = {
        "step_id": call.partition("/")[2],
        "capability_id": envelope["capability_id"],
        "tool_call_id": made_by["tool_call_id"] if made_by else envelope["tool_call_id"],
        "state": "happened" if happened else "unknown",
        "made_by": made_by["run_id"] if made_by else account.run_id,
        "mutations": list(envelope["mutations"]),
    }


def _settled(account: RunAccount, entry: Logged) -> None:
    call, effects = _call(entry), account.effects
    if call not in effects:
        return
    if entry.body["happened"]:
        effects[call] = effects[call] | {"state": "happened", "mutations": list(entry.body["mutations"])}
    else:
        del effects[call]


def _call(entry: Logged) -> str:
    """The call that an entry is about: its plan and its step."""
    return "/".join(entry.key.split("/", 2)[:2])


def _tool_refused(body: Any) -> Mapping[str, Any]:
    envelope = body["envelope"]
    return picked("tool_call_id", "capability_id", "status", "error", "withheld", "made_by")(
        {**envelope, **envelope["metadata"]}
    )


def _asked(body: Any) -> Mapping[str, Any]:
    names = ("approval_id", "gate_id", "required_role", "deadline_us", "binding_digest", "args")
    return {"capability_id": body["binding"]["capability_id"], **picked(*names)(body)}


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
        fold=_answered_call,
        told=_tool_refused,
    ),
    "tool.dispatching": _by_gateway(
        derived.DispatchedCall, "executing verifying>executing waiting>executing", fold=_dispatched
    ),
    "tool.returned": _by_gateway(recorded.ReturnedCall, "executing waiting>executing", recorded=True, fold=_returned),
    "tool.retry_scheduled": _by_gateway(
        derived.ScheduledRetry, "executing", severity="warn", fold=_retried, told=picked("how", "at_us", "tool_call_id")
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
        fold=_settled,
        told=picked("by", "happened", "evidence_ref"),
    ),
    "evidence.frozen": _by_gateway(derived.FrozenEvidence, "executing", fold=_frozen),
    "evidence.rechecked": _by_approvals(derived.RecheckedEvidence, "waiting", recorded=True),
    "approval.asked": _by_approvals(
        derived.AskedApproval, "executing>waiting", severity="info", always_kept=True, told=_asked
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
    ),
    "approval.expired": _by_approvals(
        recorded.ExpiredApproval, "waiting", recorded=True, wakes=True, severity="warn", told=picked()
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
    ),
    "approval.voided": _by_approvals(
        derived.VoidedApproval, "executing waiting>executing", severity="warn", told=picked("approval_id", "reason")
    ),
}
