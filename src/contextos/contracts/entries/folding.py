"""How each kind of entry changes the account of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from contextos.contracts.encoding.instructions import INSTRUCTIONS_TAG, instructs
from contextos.contracts.entries.account import RunAccount, cost_units
from contextos.contracts.journal import Logged
from contextos.contracts.refs import artifact_ref

WAKING: Final = frozenset(
    {
        "approval.answered",
        "approval.expired",
        "approval.reasked",
        "effect.settled",
        "slot.answered",
        "run.cancel_requested",
        "run.resumed",
        "run.reopened",
        "tool.retry_due",
        "call.asked",
        "session.finished",
        "session.expired",
    }
)
"""The time before such an entry was spent waiting: for a person, for an agent or for a driver."""

_RAISED: Final = ("must_refuse", "must_escalate", "gates", "asserted")
"""What decisions raise, each a list in every one of them."""


def account_of(run_id: str, log: Iterable[Logged]) -> RunAccount:
    """Return the account of a run from its entries."""
    account = RunAccount(run_id)
    for entry in log:
        add(account, entry)
    return account


def add(account: RunAccount, entry: Logged) -> None:
    """Add the next entry of the run to its account. Of an erased one only that it was there, and when, is known."""
    kind, at_us = entry.kind, entry.at_us
    known = account.by_kind.get(kind)
    if known is None:
        if not account.by_kind:
            account.began_us = account.now_us = at_us
        account.by_kind[kind] = [entry]
    else:
        known.append(entry)
    account.ledgers.add(entry)
    if kind in WAKING:
        account.waited_us += at_us - account.now_us
    if (fold := FOLDS.get(kind)) is not None and entry.body is not None:
        fold(account, entry)
    account.now_us = at_us


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


def _compiled(account: RunAccount, entry: Logged) -> None:
    account.tokens += entry.body["budget_report"]["tokens_used_at_compile"]
    if memories := entry.body["context_ledger"]["memory_refs"]:
        account.evidence[str(entry.seq)] = memories


def _fetched(account: RunAccount, entry: Logged) -> None:
    if "failure" not in entry.body:
        account.evidence[str(entry.seq)] = (entry.body["evidence_ref"],)
    if instructs(entry.body.get("text")):
        account.instructing["attachment"] = None


def _slot_pinned(account: RunAccount, entry: Logged) -> None:
    chosen = [one["ref"] for one in entry.body.get("pinned", ())]
    account.evidence[str(entry.seq)] = [
        artifact_ref(one["artifactId"], one["representationRevisionId"]) for one in chosen
    ]


def _frozen(account: RunAccount, entry: Logged) -> None:
    account.evidence[str(entry.seq)] = [item["evidence_ref"] for item in entry.body["items"]]


def _checked(account: RunAccount, entry: Logged) -> None:
    account.evidence[str(entry.seq)] = list(entry.body["satisfied"].values())


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


FOLDS: Final[dict[str, Callable[[RunAccount, Logged], Any]]] = {
    "policy.decided": _decided,
    "context.compiled": _compiled,
    "attachment.fetched": _fetched,
    "slot.pinned": _slot_pinned,
    "evidence.frozen": _frozen,
    "checkpoint.checked": _checked,
    "tool.dispatching": _dispatched,
    "tool.retry_scheduled": _retried,
    "tool.returned": _returned,
    "tool.refused": _answered_call,
    "effect.settled": _settled,
}
