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


def _fold_compilation(account: RunAccount, entry: Logged) -> None:
    account.tokens += entry.body["budget_report"]["tokens_used_at_compile"]
    if memories := entry.body["context_ledger"]["memory_refs"]:
        account.evidence[str(entry.seq)] = memories


def _fold_attachment(account: RunAccount, entry: Logged) -> None:
    if "failure" not in entry.body:
        account.evidence[str(entry.seq)] = (entry.body["evidence_ref"],)
    if instructs(entry.body.get("text")):
        account.instructing["attachment"] = None


def _fold_slot(account: RunAccount, entry: Logged) -> None:
    refs = [pin["ref"] for pin in entry.body.get("pinned", ())]
    account.evidence[str(entry.seq)] = [
        artifact_ref(ref["artifactId"], ref["representationRevisionId"]) for ref in refs
    ]


def _identity_reasons(entry: Logged) -> Because:
    body = entry.body
    if not entry.key and "claim" in body:
        principals = body["principals"]
        if principals is None:
            reason = displayed(body.get("claim_fault") or "the directory does not know the user and the agent")
            yield "authority", None, f"nobody was authorised: {reason}"
            return
        user, agent = principals["user"], principals["agent"]
        roles = ", ".join(map(displayed, user["roles"])) or "no role"
        scopes = ", ".join(map(displayed, (principals.get("delegation") or {}).get("scopes") or ())) or "nothing"
        actors = f"{displayed(agent['agent_id'])} acted for {displayed(user['user_id'])}"
        yield "authority", None, f"{actors}, who has {roles} and delegated {scopes}"
    elif body.get("approver"):
        approver = body["approver"]
        grants = approver.get("granted_by") or {}
        role_texts = [f"{role} (granted by {grants[role]})" if role in grants else role for role in approver["roles"]]
        late = "; the answer came after the deadline" if body.get("late") else ""
        role_list = ", ".join(map(displayed, role_texts)) or "no role"
        yield "authority", None, f"{displayed(approver['approver_id'])} held {role_list} when the answer was used{late}"


def _pin_lines(entry: Logged, _: StoryReader) -> Lines:
    body = entry.body
    if "pack_ref" in body:
        pin_count = f"{len(body['pins'])} things pinned by digest"
        yield f"pack {body['pack_ref']}, facts as of {body['snapshot']}; {pin_count}"


def _pin_reasons(entry: Logged) -> Because:
    body = entry.body
    rules = f"the rules are those of {displayed(body['pack_ref'])}" if "pack_ref" in body else None
    yield "authority", None, rules or f"nothing was pinned: {displayed(body['failure']['detail'])}"


def _slot_lines(entry: Logged, reader: StoryReader) -> Lines:
    """Yield a line with the artifacts in a slot and who selected them, or why there are none."""
    slot_id = displayed(entry.key.partition("/")[2])
    pinnings = [pinning.body for pinning in reader.run.of("slot.pinned") if pinning.key == entry.key]
    content: Mapping[str, Any] = next(iter(pinnings), {}) or {}
    for body in (entry.body, content):
        if "refused" in body:
            yield f"slot {slot_id} holds nothing: {displayed(body['refused'])}"
            return
    selection = entry.body["act"]
    is_picked = selection["selected_by"] == "user"
    picker = f"{displayed(selection['origin']['principal_id'])} picked" if is_picked else "nobody picked"
    titles = [f"{displayed(pin['title'])} ({pin['ref']['sourceScope']})" for pin in content.get("pinned", ())]
    yield f"slot {slot_id} holds {', '.join(titles) or 'nothing'}; {picker}"


def _attachment_lines(entry: Logged, _: StoryReader) -> Lines:
    fault = entry.body.get("failure", {}).get("detail")
    yield displayed(fault or f"{entry.body['evidence_ref']} is as its digest says")


def _evidence_lines(entry: Logged, _: StoryReader) -> Lines:
    named_items = [item for item in entry.body if item.get("name")]
    for item in named_items:
        source = f"{item['integrity']}, {displayed(item['evidence_ref'])}"
        fact = f"{displayed(item['name'])} is {displayed_json(item['value'])} of {displayed(item['subject'])}"
        yield f"{fact} ({source})"
    if unnamed_count := len(entry.body) - len(named_items):
        subjects = list(dict.fromkeys(displayed(item["subject"]) for item in entry.body))[:3]
        yield Aside(f"{unnamed_count} more facts around {', '.join(subjects)}")


def _fact_lines(entry: Logged, _: StoryReader) -> Lines:
    for item in entry.body:
        fact = f"{displayed(item['subject'])} {displayed(item['predicate'])} {displayed_json(item['value'])}"
        yield f"remembers: {fact} ({item['integrity']})"


def _size_lines(entry: Logged, _: StoryReader) -> Lines:
    ledger, report = entry.body["context_ledger"], entry.body["budget_report"]
    dropped = sum(len(blocks) for blocks in report["dropped_block_ids"].values())
    tokens, address = report["tokens_used_at_compile"], ledger["compiled_context_hash"][:19]
    yield f"compiled to {tokens} tokens, {dropped} blocks left out, {address}"


def _surface_lines(entry: Logged, _: StoryReader) -> Lines:
    yield f"shown to the planner: {', '.join(entry.body['context_ledger']['tools']) or 'nothing'}"
    for capability in entry.body["manifests"].get("surface_report", ()):
        if not capability["surfaced"]:
            yield Aside(f"kept from it: {displayed(capability['capability_id'])} ({displayed(capability['reason'])})")


_HIDDEN_TEXTS: Final = {
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


def _surface_reasons(entry: Logged) -> Because:
    for tool in entry.body["context_ledger"]["tools"]:
        yield "shown", tool, f"`{displayed(tool)}` was shown: it is permitted, and policy allows it"
    for capability in entry.body["manifests"].get("surface_report", ()):
        tool, reason = capability["capability_id"], capability["reason"]
        if not capability["surfaced"]:
            yield "shown", tool, f"`{displayed(tool)}` was hidden: {_HIDDEN_TEXTS.get(reason, displayed(reason))}"


def _slot_question_fields(body: Any) -> Mapping[str, Any]:
    return {"slot_id": body["slot"]["slotId"], "principal_id": body["actor"]["principal_id"]}


_recorded = partial(Kind, CONTEXT, recorded=True)
_derived = partial(Kind, CONTEXT)

CONTEXT_KINDS: Final[dict[str, Kind]] = {
    "identity.resolved": _recorded(
        recorded.ResolvedIdentity | recorded.RedeemedIdentity | recorded.DispatchIdentity | recorded.SettlingOperator,
        "received resolved choosing compiled executing waiting scoring>resolved",
        component="trust.identity",
        component_by_key={"redeem": "trust.approvals", "dispatch": "action.tool_gateway", "slot": "slots.selection"},
        why=_identity_reasons,
    ),
    "run.pinned": _recorded(
        recorded.PinnedRun,
        "received resolved",
        component="control.catalog",
        told=picked("pack_ref", "failure", "further"),
        story={"knew": _pin_lines},
        why=_pin_reasons,
    ),
    "run.context": _derived(derived.StatedContext, "received>resolved"),
    "slot.asked": _derived(
        SlotQuestion,
        "resolved>choosing",
        component=SLOT_SELECTION,
        always_kept=True,
        told=_slot_question_fields,
        noticed=_slot_question_fields,
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
        story={"knew": _slot_lines},
    ),
    "slot.pinned": _recorded(
        recorded.PinnedForSlot, "resolved", component=SLOT_SELECTION, fold=_fold_slot, told=picked("refused")
    ),
    "attachment.fetched": _recorded(
        recorded.FetchedAttachment,
        "resolved",
        component="intelligence.attachments",
        fold=_fold_attachment,
        told=picked("evidence_ref", "media_type", "size_bytes", "failure"),
        story={"knew": _attachment_lines},
    ),
    "evidence.retrieved": _recorded(
        list[StatedItem], "resolved", component="intelligence.retrieval", told=counted, story={"knew": _evidence_lines}
    ),
    "memory.recalled": _recorded(
        list[StatedItem], "resolved", component="intelligence.memory_recall", told=counted, story={"knew": _fact_lines}
    ),
    "context.compiled": _derived(
        RecordedContext | CompiledContext,
        "resolved>compiled scoring>compiled",
        component="context.compiler",
        fold=_fold_compilation,
        told=lambda body: {
            "tools": body["context_ledger"]["tools"],
            "tokens": body["budget_report"]["tokens_used_at_compile"],
        },
        story={"knew": _size_lines, "allowed": _surface_lines},
        why=_surface_reasons,
    ),
    "memory.proposed": _derived(
        derived.ProposedMemories,
        "scoring received>scoring resolved>scoring compiled>scoring",
        component="intelligence.memory_proposal",
        told=lambda body: {"count": len(body["proposals"])},
    ),
}
