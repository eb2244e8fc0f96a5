"""The route that shows callers their own identity, as this server verified it."""

from __future__ import annotations

from typing import Final, Literal

from fastapi import APIRouter

from contextos.contracts.model import Model
from contextos.server.access import RolesHere
from contextos.server.callers import CallerHere, SessionHere
from contextos.workspace.logins.sessions import csrf_token_of

caller_routes: Final = APIRouter(tags=["identity"])


class CallerDocument(Model):
    """The caller. `expires_at` is Unix time in seconds. `roles` are those that the directory gives to a person as an
    approver or operator now; a workload, and a token for one agent, have none.

    `csrf_token` is what a page sends as `X-CSRF-Token` with each request that changes something. It is null for a
    bearer token, which needs none.
    """

    kind: Literal["user", "workload"]
    tenant_id: str
    subject: str
    agents: list[str] | None
    roles: list[str]
    expires_at: int
    csrf_token: str | None


@caller_routes.get("/caller", response_model_exclude_unset=True)
async def get_caller(caller: CallerHere, roles: RolesHere, session: SessionHere) -> CallerDocument:
    """Read who you are to this server."""
    return CallerDocument(
        kind=caller.kind,
        tenant_id=caller.tenant_id,
        subject=caller.subject,
        agents=None if caller.agent_ids is None else list(caller.agent_ids),
        roles=sorted(roles),
        expires_at=caller.expires_at,
        csrf_token=None if session is None else csrf_token_of(session),
    )
