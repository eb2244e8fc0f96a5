"""The routes of this package, and the models of their bodies that FastAPI does not see."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel

from contextos.server.control import drafts, packs, recordings, sandboxes, slots

CONTROL_ROUTES: Final[tuple[APIRouter, ...]] = (
    drafts.draft_routes,
    recordings.recording_routes,
    sandboxes.sandbox_routes,
    packs.pack_routes,
    slots.slot_routes,
)
GOVERNED_BODIES: Final[tuple[type[BaseModel], ...]] = (
    drafts.PackDraft,
    drafts.PackDeclarationText,
    drafts.LintRequest,
    recordings.SessionChoice,
    recordings.PackTrial,
    recordings.MinedDraft,
    sandboxes.SandboxRequest,
    packs.Publication,
    packs.SignedPublication,
    slots.SlotQuery,
    slots.FlowAnswer,
)
