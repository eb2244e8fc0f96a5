"""All routes of this package, and the models of their bodies that FastAPI does not see."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel

from contextos.server.control import drafts, facts, memories, packs, pins, policies, recordings, slots

CONTROL_ROUTES: Final[tuple[APIRouter, ...]] = (
    drafts.draft_routes,
    recordings.recording_routes,
    packs.pack_routes,
    pins.pin_routes,
    policies.policy_routes,
    facts.fact_routes,
    memories.memory_routes,
    slots.slot_routes,
)
GOVERNED_BODIES: Final[tuple[type[BaseModel], ...]] = (
    drafts.PackDraft,
    drafts.PackDeclarationText,
    drafts.LintRequest,
    recordings.SessionChoice,
    recordings.PackTrial,
    recordings.MinedDraft,
    packs.Publication,
    packs.SignedPublication,
    packs.Withdrawal,
    packs.SignedWithdrawal,
    pins.PinDraft,
    pins.SignedPin,
    policies.PolicyList,
    policies.SignedPolicyList,
    facts.FactDraft,
    facts.SignedFact,
    facts.Retraction,
    facts.SignedRetraction,
    facts.GraphDraft,
    facts.SignedGraph,
    memories.ReviewDraft,
    memories.SignedReview,
    slots.SlotQuery,
    slots.SlotAnswer,
    slots.SignedSlotAnswer,
)
