"""Exports: runs of the caller's tenant as one file that others verify and replay with a public key alone.

An export is an act of an auditor, which is on record before the file is sent. The file has nothing of another tenant.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Response
from pydantic import Field

from contextos.audit.export import export_runs
from contextos.audit.exported import public_keys
from contextos.contracts.model import Model, NonEmpty
from contextos.deployment.acts.act import Actor
from contextos.deployment.queries.run_names import run_named
from contextos.deployment.signing import SignStatement
from contextos.errors import InvalidEnvelope, NotFound, Problem
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.operate.work import WorkHere, WorkTime
from contextos.server.problems import not_found
from contextos.server.shared.signing import to_sign
from contextos.service.acts import signed_with, statement_of
from contextos.service.operations.operation import ActToken
from contextos.service.views import StatedAct
from contextos.trust.approvals.acts import AUDITOR_ROLE
from contextos.workspace import App

export_routes: Final = APIRouter(tags=["audit"])

MAX_EXPORTED_RUNS: Final = 100
"""Most runs of one export over HTTP; the command line takes more."""
EXPORT_MEDIA_TYPE: Final = "application/jsonl"

_RunText = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]


class ExportDraft(Model):
    """The runs to export, 100 at most: ids of runs, or of the requests that made them."""

    runs: NonEmpty[_RunText]


class SignedExportDraft(ExportDraft):
    """An export with the compact JWS of its statement by the auditor's key."""

    token: ActToken


class ExportKeys(Model):
    """The public keys (hex) with which the exports of this deployment verify, by purpose: the one that signs an export,
    and those that prove what is in it.
    """

    keys: dict[str, list[str]]


ExportBody = Annotated[ExportDraft, json_of(ExportDraft)]
SignedExportBody = Annotated[SignedExportDraft, json_of(SignedExportDraft)]


@export_routes.get("/exports/keys", response_model_exclude_unset=True)
async def get_export_keys(app: AppHere, _caller: CallerHere) -> ExportKeys:
    """Read the keys that a reader of an export trusts. Give them to the reader in another way than the export."""
    return ExportKeys(keys=public_keys(app.keys))


@export_routes.post("/exports/statement", response_model_exclude_unset=True, openapi_extra=body_of(ExportDraft))
async def post_export_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, work: WorkHere, draft: ExportBody
) -> StatedAct:
    """Return what the caller, an auditor, signs to export these runs as they are now. Nothing is recorded."""
    require_role(roles, AUDITOR_ROLE)
    runs = await _named(app, caller.tenant_id, draft)

    async def job(_time: WorkTime) -> StatedAct:
        async def act(sign: SignStatement) -> bytes:
            return await export_runs(app.deployment, caller.tenant_id, runs, by=Actor(caller.subject, sign))

        return await to_sign(app, caller, await statement_of(act))

    return await work.do(caller.tenant_id, job)


@export_routes.post(
    "/exports",
    response_class=Response,
    responses={200: {"description": "The export, as JSON lines.", "content": {EXPORT_MEDIA_TYPE: {}}}},
    openapi_extra=body_of(SignedExportDraft),
)
async def post_export(
    app: AppHere, caller: CallerHere, roles: RolesHere, work: WorkHere, signed: SignedExportBody
) -> Response:
    """Record the export of these runs, and return it."""
    require_role(roles, AUDITOR_ROLE)
    runs = await _named(app, caller.tenant_id, signed)
    actor = Actor(caller.subject, signed_with(app.deployment, signed.token))

    async def job(_time: WorkTime) -> bytes:
        return await export_runs(app.deployment, caller.tenant_id, runs, by=actor)

    return Response(await work.do(caller.tenant_id, job), media_type=EXPORT_MEDIA_TYPE)


async def _named(app: App, tenant_id: str, draft: ExportDraft) -> list[str]:
    """The ids of the runs, each once. Raises `HttpProblem` (404) if the tenant has not all of them, and
    `InvalidEnvelope` if they are too many.
    """
    if len(draft.runs) > MAX_EXPORTED_RUNS:
        detail = f"an export has at most {MAX_EXPORTED_RUNS} runs"
        raise InvalidEnvelope(Problem("/runs", "too_many", detail, "export fewer at a time"))
    store = app.stores.tenant(tenant_id)
    try:
        return list(dict.fromkeys([await run_named(store, name) for name in draft.runs]))
    except NotFound:
        raise not_found() from None
