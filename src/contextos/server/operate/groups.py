"""All routes of this package under `/v1`, and the models of their bodies that FastAPI does not see."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel

from contextos.server.operate.exports import export_routes
from contextos.server.operate.reasons import reason_routes
from contextos.server.operate.verifications import VerifiedRange, verification_routes

OPERATE_ROUTES: Final[tuple[APIRouter, ...]] = (reason_routes, verification_routes, export_routes)
OPERATE_BODIES: Final[tuple[type[BaseModel], ...]] = (VerifiedRange,)
