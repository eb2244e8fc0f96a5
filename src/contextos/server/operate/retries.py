"""Drive a run again that failed for good: what an operator signs, and the retry."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Final, TypeVar

from fastapi import APIRouter

from contextos.contracts.model import Model
from contextos.deployment.acts.act import Actor
from contextos.deployment.operator import retry_run
from contextos.errors import NotFound
from contextos.server.access import RolesHere, RunName, readable_run, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.server.shared.signing import to_sign
from contextos.service.acts import signed_with, statement_of
from contextos.service.operations.operation import ActToken
from contextos.service.views import RequestOutcome, StatedAct
from contextos.trust.approvals.assertion import OPERATOR_ROLE

ResultT = TypeVar("ResultT")

retry_routes: Final = APIRouter(tags=["operations"])


class SignedRetry(Model):
    """A retry with the compact JWS of its statement by the operator's key."""

    token: ActToken


SignedRetryBody = Annotated[SignedRetry, json_of(SignedRetry)]


@retry_routes.post("/runs/{run}/retry/statement", response_model_exclude_unset=True)
async def post_retry_statement(app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName) -> StatedAct:
    """Return what the caller signs to have the run driven again. Nothing is recorded."""
    run = await readable_run(app, caller, roles, name)
    require_role(roles, OPERATOR_ROLE)
    act = statement_of(
        lambda sign: retry_run(app.deployment, run.tenant_id, run.run_id, by=Actor(caller.subject, sign))
    )
    return await to_sign(app, caller, await _listed(act))


@retry_routes.post(
    "/runs/{run}/retry", status_code=202, response_model_exclude_unset=True, openapi_extra=body_of(SignedRetry)
)
async def post_retry(
    app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName, signed: SignedRetryBody
) -> RequestOutcome:
    """Take a run off the list of dead letters. An engine drives it; if it fails again, it is put back."""
    run = await readable_run(app, caller, roles, name)
    require_role(roles, OPERATOR_ROLE)
    actor = Actor(caller.subject, signed_with(app.deployment, signed.token))
    await _listed(retry_run(app.deployment, run.tenant_id, run.run_id, by=actor))
    app.engine.submit(run.tenant_id, run.run_id)
    return RequestOutcome.of_view(await app.deployment.view(run.tenant_id, run.run_id))


async def _listed(act: Awaitable[ResultT]) -> ResultT:
    """Await an act on a run that the caller may see, which can only be missing from the list."""
    try:
        return await act
    except NotFound:
        detail = "the run is not on the list of dead letters; an engine drives it when it is due"
        raise HttpProblem(409, "not_waiting", detail) from None
