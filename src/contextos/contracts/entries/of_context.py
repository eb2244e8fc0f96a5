"""The kinds of the context ledger: who acts, under which versions, and what the run knows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.contracts.encoding.instructions import instructs
from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.row import SLOT_SELECTION, Aside, Because, Kind, Lines, StoryReader, counted, picked
from contextos.contracts.envelopes.compiled import CompiledContext, RecordedContext
from contextos.contracts.envelopes.evidence import StatedItem
from contextos.contracts.envelopes.slots import SlotQuestion
from contextos.contracts.journal import CONTEXT, Logged
from contextos.contracts.refs import artifact_ref


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


def _identity(entry: Logged) -> Because:
    body = entry.body
    if not entry.key and "claim" in body:
        known = body["principals"]
        if known is None:
            why = displayed(body.get("claim_fault") or "the directory does not know the user and the agent")
            yield "authority", None, f"nobody was authorised: {why}"
            return
        user, agent = known["user"], known["agent"]
        roles = ", ".join(map(displayed, user["roles"])) or "no role"
        scopes = ", ".join(map(displayed, (known.get("delegation") or {}).get("scopes") or ())) or "nothing"
        acted = f"{displayed(agent['agent_id'])} acted for {displayed(user['user_id'])}"
        yield "authority", None, f"{acted}, who has {roles} and delegated {scopes}"
    elif body.get("approver"):
        who = body["approver"]
        granted = who.get("granted_by") or {}
        named = [f"{role} (granted by {granted[role]})" if role in granted else role for role in who["roles"]]
        late = "; the answer came after the deadline" if body.get("late") else ""
        held = ", ".join(map(displayed, named)) or "no role"
        yield "authority", None, f"{displayed(who['approver_id'])} held {held} when the answer was used{late}"


def _pinned(entry: Logged, _: StoryReader) -> Lines:
    body = entry.body
    if "pack_ref" in body:
        pinned = f"{len(body['pins'])} things pinned by digest"
        yield f"pack {body['pack_ref']}, facts as of {body['snapshot']}; {pinned}"


def _rules_of(entry: Logged) -> Because:
    body = entry.body
    rules = f"the rules are those of {displayed(body['pack_ref'])}" if "pack_ref" in body else None
    yield "authority", None, rules or f"nothing was pinned: {displayed(body['failure']['detail'])}"


def _slot_selected(entry: Logged, read: StoryReader) -> Lines:
    """Yield a line with the artifacts in a slot and who selected them, or why there are none."""
    slot_id = displayed(entry.key.partition("/")[2])
    pinned = [one.body for one in read.run.of("slot.pinned") if one.key == entry.key]
    filled: Mapping[str, Any] = next(iter(pinned), {}) or {}
    for body in (entry.body, filled):
        if "refused" in body:
            yield f"slot {slot_id} holds nothing: {displayed(body['refused'])}"
            return
    selection = entry.body["act"]
    is_picked = selection["selected_by"] == "user"
    who = f"{displayed(selection['origin']['principal_id'])} picked" if is_picked else "nobody picked"
    titles = [f"{displayed(pin['title'])} ({pin['ref']['sourceScope']})" for pin in filled.get("pinned", ())]
    yield f"slot {slot_id} holds {', '.join(titles) or 'nothing'}; {who}"


def _attached(entry: Logged, _: StoryReader) -> Lines:
    fault = entry.body.get("failure", {}).get("detail")
    yield displayed(fault or f"{entry.body['evidence_ref']} is as its digest says")


def _retrieved(entry: Logged, _: StoryReader) -> Lines:
    named = [item for item in entry.body if item.get("name")]
    for item in named:
        where = f"{item['integrity']}, {displayed(item['evidence_ref'])}"
        what = f"{displayed(item['name'])} is {displayed_json(item['value'])} of {displayed(item['subject'])}"
        yield f"{what} ({where})"
    if others := len(entry.body) - len(named):
        subjects = list(dict.fromkeys(displayed(item["subject"]) for item in entry.body))[:3]
        yield Aside(f"{others} more facts around {', '.join(subjects)}")


def _recalled(entry: Logged, _: StoryReader) -> Lines:
    for item in entry.body:
        what = f"{displayed(item['subject'])} {displayed(item['predicate'])} {displayed_json(item['value'])}"
        yield f"remembers: {what} ({item['integrity']})"


def _size(entry: Logged, _: StoryReader) -> Lines:
    ledger, report = entry.body["context_ledger"], entry.body["budget_report"]
    dropped = sum(len(blocks) for blocks in report["dropped_block_ids"].values())
    tokens, address = report["tokens_used_at_compile"], ledger["compiled_context_hash"][:19]
    yield f"compiled to {tokens} tokens, {dropped} blocks left out, {address}"


def _shown(entry: Logged, _: StoryReader) -> Lines:
    yield f"shown to the planner: {', '.join(entry.body['context_ledger']['tools']) or 'nothing'}"
    for one in entry.body["manifests"].get("surface_report", ()):
        if not one["surfaced"]:
            yield Aside(f"kept from it: {displayed(one['capability_id'])} ({displayed(one['reason'])})")


_HIDDEN: Final = {
    "not_in_pack": "the pack does not list it",
    "no_permission": "the pack permits it to no role of the user and the agent",
    "scope_missing": "the delegation of the user has not the scope that it needs",
    "platform_scope_missing": "the agent has not the platform scope that it needs (`platform_scopes` in the directory)",
    "prohibited": "the pack prohibits it",
    "policy_denied": "policy denied it when the context was compiled",
    "above_safety_mode": "its approval mode is above the highest one of this run",
    "suspended": "it is suspended",
    "killed": "it is switched off",
}


def _why_shown(entry: Logged) -> Because:
    for tool in entry.body["context_ledger"]["tools"]:
        yield "shown", tool, f"`{displayed(tool)}` was shown: it is permitted, and policy allows it"
    for one in entry.body["manifests"].get("surface_report", ()):
        tool, why = one["capability_id"], one["reason"]
        if not one["surfaced"]:
            yield "shown", tool, f"`{displayed(tool)}` was hidden: {_HIDDEN.get(why, displayed(why))}"


def _slot_question(body: Any) -> Mapping[str, Any]:
    return {"slot_id": body["slot"]["slotId"], "principal_id": body["actor"]["principal_id"]}


_recorded = partial(Kind, CONTEXT, recorded=True)
_derived = partial(Kind, CONTEXT)

CONTEXT_KINDS: Final[dict[str, Kind]] = {
    "identity.resolved": _recorded(
        recorded.ResolvedIdentity | recorded.RedeemedIdentity | recorded.DispatchIdentity | recorded.SettlingOperator,
        "received resolved choosing compiled executing waiting scoring>resolved",
        component="trust.identity",
        component_by_key={"redeem": "trust.approvals", "dispatch": "action.tool_gateway", "slot": "slots.selection"},
        why=_identity,
    ),
    "run.pinned": _recorded(
        recorded.PinnedRun,
        "received resolved",
        component="control.catalog",
        told=picked("pack_ref", "failure", "further"),
        story={"knew": _pinned},
        why=_rules_of,
    ),
    "run.context": _derived(derived.StatedContext, "received>resolved"),
    "slot.asked": _derived(
        SlotQuestion,
        "resolved>choosing",
        component=SLOT_SELECTION,
        always_kept=True,
        told=_slot_question,
        noticed=_slot_question,
        asks="slot",
    ),
    "slot.answered": _recorded(
        recorded.AnsweredSlot,
        "choosing",
        author="/act/actor",
        appended=True,
        wakes=True,
        component=SLOT_SELECTION,
        told=picked(),
        noticed=picked(),
        answers="slot",
    ),
    "slot.selected": _recorded(
        recorded.SelectedForSlot,
        "resolved choosing>resolved",
        component=SLOT_SELECTION,
        told=picked("refused", "code"),
        story={"knew": _slot_selected},
    ),
    "slot.pinned": _recorded(
        recorded.PinnedForSlot, "resolved", component=SLOT_SELECTION, fold=_slot_pinned, told=picked("refused")
    ),
    "attachment.fetched": _recorded(
        recorded.FetchedAttachment,
        "resolved",
        component="intelligence.attachments",
        fold=_fetched,
        told=picked("evidence_ref", "media_type", "size_bytes", "failure"),
        story={"knew": _attached},
    ),
    "evidence.retrieved": _recorded(
        list[StatedItem], "resolved", component="intelligence.retrieval", told=counted, story={"knew": _retrieved}
    ),
    "memory.recalled": _recorded(
        list[StatedItem], "resolved", component="intelligence.memory_recall", told=counted, story={"knew": _recalled}
    ),
    "context.compiled": _derived(
        RecordedContext | CompiledContext,
        "resolved>compiled scoring>compiled",
        component="context.compiler",
        fold=_compiled,
        told=lambda body: {
            "tools": body["context_ledger"]["tools"],
            "tokens": body["budget_report"]["tokens_used_at_compile"],
        },
        story={"knew": _size, "allowed": _shown},
        why=_why_shown,
    ),
    "memory.proposed": _derived(
        derived.ProposedMemories,
        "scoring received>scoring resolved>scoring compiled>scoring",
        component="intelligence.memory_proposal",
        told=lambda body: {"count": len(body["proposals"])},
    ),
}
