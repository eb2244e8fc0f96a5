"""All routes of this package under `/v1`, and the models of their bodies that FastAPI does not see."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel

from contextos.server.operate.exports import ExportDraft, SignedExportDraft, export_routes
from contextos.server.operate.reasons import reason_routes
from contextos.server.operate.replays import replay_routes
from contextos.server.operate.retries import SignedRetry, retry_routes
from contextos.server.operate.settlements import SettlementDraft, SignedSettlement, settlement_routes
from contextos.server.operate.stuck import stuck_routes
from contextos.server.operate.verifications import VerifiedRange, verification_routes

OPERATE_ROUTES: Final[tuple[APIRouter, ...]] = (
    reason_routes,
    settlement_routes,
    replay_routes,
    verification_routes,
    export_routes,
    stuck_routes,
    retry_routes,
)
OPERATE_BODIES: Final[tuple[type[BaseModel], ...]] = (
    SettlementDraft,
    SignedSettlement,
    VerifiedRange,
    ExportDraft,
    SignedExportDraft,
    SignedRetry,
)
