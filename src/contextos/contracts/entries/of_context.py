"""The kinds of the context ledger: who acts, under which versions, and what the run knows."""

from __future__ import annotations

from typing import Final

from contextos.contracts.encoding.instructions import instructs
from contextos.contracts.entries import derived, recorded
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.row import SLOT_SELECTION, Kind, counted, picked
from contextos.contracts.envelopes.compiled import CompiledContext, RecordedContext
from contextos.contracts.envelopes.evidence import EvidenceItem
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


CONTEXT_KINDS: Final[dict[str, Kind]] = {
    "identity.resolved": Kind(
        CONTEXT,
        recorded.ResolvedIdentity | recorded.RedeemedIdentity | recorded.DispatchIdentity | recorded.SettlingOperator,
        "received resolved choosing compiled executing waiting scoring>resolved",
        recorded=True,
        component="trust.identity",
        component_by_key={"redeem": "trust.approvals", "dispatch": "action.tool_gateway", "slot": "slots.selection"},
    ),
    "run.pinned": Kind(
        CONTEXT,
        recorded.PinnedRun,
        "received resolved",
        recorded=True,
        component="control.catalog",
        told=picked("pack_ref", "failure", "further"),
    ),
    "run.context": Kind(CONTEXT, derived.StatedContext, "received>resolved"),
    "slot.asked": Kind(
        CONTEXT,
        SlotQuestion,
        "resolved>choosing",
        component=SLOT_SELECTION,
        always_kept=True,
        told=lambda body: {"slot_id": body["slot"]["slotId"], "principal_id": body["actor"]["principal_id"]},
    ),
    "slot.answered": Kind(
        CONTEXT,
        recorded.AnsweredSlot,
        "choosing",
        recorded=True,
        author="/act/actor",
        appended=True,
        wakes=True,
        component=SLOT_SELECTION,
        told=picked(),
    ),
    "slot.selected": Kind(
        CONTEXT,
        recorded.SelectedForSlot,
        "resolved choosing>resolved",
        recorded=True,
        component=SLOT_SELECTION,
        told=picked("refused", "code"),
    ),
    "slot.pinned": Kind(
        CONTEXT,
        recorded.PinnedForSlot,
        "resolved",
        recorded=True,
        component=SLOT_SELECTION,
        fold=_slot_pinned,
        told=picked("refused"),
    ),
    "attachment.fetched": Kind(
        CONTEXT,
        recorded.FetchedAttachment,
        "resolved",
        recorded=True,
        component="intelligence.attachments",
        fold=_fetched,
        told=picked("evidence_ref", "media_type", "size_bytes", "failure"),
    ),
    "evidence.retrieved": Kind(
        CONTEXT, list[EvidenceItem], "resolved", recorded=True, component="intelligence.retrieval", told=counted
    ),
    "memory.recalled": Kind(
        CONTEXT, list[EvidenceItem], "resolved", recorded=True, component="intelligence.memory_recall", told=counted
    ),
    "context.compiled": Kind(
        CONTEXT,
        RecordedContext | CompiledContext,
        "resolved>compiled scoring>compiled",
        component="context.compiler",
        fold=_compiled,
        told=lambda body: {
            "tools": body["context_ledger"]["tools"],
            "tokens": body["budget_report"]["tokens_used_at_compile"],
        },
    ),
    "memory.proposed": Kind(
        CONTEXT,
        derived.ProposedMemories,
        "scoring received>scoring resolved>scoring compiled>scoring",
        component="intelligence.memory_proposal",
        told=lambda body: {"count": len(body["proposals"])},
    ),
}
