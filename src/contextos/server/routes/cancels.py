"""Stop a run, and have a void question asked again: what the caller signs, and the request. A bearer token alone does
neither.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter

from contextos.contracts.model import Model
from contextos.server.access import RolesHere, RunName, readable_run
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.shared.signing import to_sign
from contextos.service.operations.operation import ActReason, ActToken
from contextos.service.views import RequestOutcome, StatedAct

cancel_routes: Final = APIRouter(tags=["runs"])


class CancelDraft(Model):
    """The reason for which a run is to stop, or for which its question is to be asked again."""

    reason: ActReason = ""


class SignedCancel(CancelDraft):
    """The request to stop a run or to have its question asked again, with the compact JWS of its statement by the
    caller's key.
    """

    token: ActToken


CancelDraftBody = Annotated[CancelDraft, json_of(CancelDraft)]
SignedCancelBody = Annotated[SignedCancel, json_of(SignedCancel)]


@cancel_routes.post(
    "/runs/{run}/cancel/statement", response_model_exclude_unset=True, openapi_extra=body_of(CancelDraft)
)
async def post_cancel_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, draft: CancelDraftBody
) -> StatedAct:
    """Return what the caller signs to stop a run. Nothing is recorded."""
    run = await readable_run(app, caller, roles, name)
    said = await app.cancels.statement(run.tenant_id, run.run_id, caller.subject, draft.reason)
    return await to_sign(app, caller, said)


@cancel_routes.post(
    "/runs/{run}/cancel", status_code=202, response_model_exclude_unset=True, openapi_extra=body_of(SignedCancel)
)
async def post_cancel(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, signed: SignedCancelBody
) -> RequestOutcome:
    """Request that a run stops. An effect that was sent is not interrupted."""
    run = await readable_run(app, caller, roles, name)
    view = await app.cancels.request(run.tenant_id, run.run_id, caller.subject, signed.token, signed.reason)
    app.engine.submit(run.tenant_id, run.run_id)
    return RequestOutcome.of_view(view)


@cancel_routes.post(
    "/runs/{run}/reask/statement", response_model_exclude_unset=True, openapi_extra=body_of(CancelDraft)
)
async def post_reask_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, draft: CancelDraftBody
) -> StatedAct:
    """Return what the caller signs to have the void question of a run asked again. Nothing is recorded."""
    run = await readable_run(app, caller, roles, name)
    said = await app.approvals.reask_statement(run.tenant_id, run.run_id, caller.subject, draft.reason)
    return await to_sign(app, caller, said)


@cancel_routes.post(
    "/runs/{run}/reask", status_code=202, response_model_exclude_unset=True, openapi_extra=body_of(SignedCancel)
)
async def post_reask(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, signed: SignedCancelBody
) -> RequestOutcome:
    """Have the void question of a run asked again, under what is in force now."""
    run = await readable_run(app, caller, roles, name)
    view = await app.approvals.reask(run.tenant_id, run.run_id, caller.subject, signed.token, signed.reason)
    app.engine.submit(run.tenant_id, run.run_id)
    return RequestOutcome.of_view(view)
