"""All routes of this package, and the models of their bodies that FastAPI does not see."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel

from contextos.http_api.control.drafts import LintRequest, PackDeclarationText, PackDraft, PackTrial, draft_routes
from contextos.http_api.control.packs import Publication, SignedPublication, SignedWithdrawal, Withdrawal, pack_routes
from contextos.http_api.control.pins import PinDraft, SignedPin, pin_routes

CONTROL_ROUTES: Final[tuple[APIRouter, ...]] = (draft_routes, pack_routes, pin_routes)
GOVERNED_BODIES: Final[tuple[type[BaseModel], ...]] = (
    Publication,
    SignedPublication,
    Withdrawal,
    SignedWithdrawal,
    PinDraft,
    SignedPin,
    PackDraft,
    PackDeclarationText,
    LintRequest,
    PackTrial,
)
