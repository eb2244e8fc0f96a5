"""The public keys with which exports verify, and the check of an export that somebody has. `service.operations.audits`
makes an export.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request

from contextos.audit.exported import Export, public_keys, read_export
from contextos.contracts.model import Model
from contextos.errors import ChainBroken, SignatureInvalid
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import read_bytes
from contextos.server.callers import AppHere, CallerHere
from contextos.server.operate.work import WorkHere, WorkTime
from contextos.server.problems import HttpProblem
from contextos.service.operations.audits import EXPORT_MEDIA_TYPE
from contextos.service.operations.operation import READER_ROLES

export_routes: Final = APIRouter(tags=["exports"])

MAX_UPLOADED_BYTES: Final = 16 << 20
"""The longest export that is checked over HTTP; `contextos verify` reads longer ones."""


class ExportKeys(Model):
    """The public keys (hex) with which the exports of this deployment verify, by purpose: the key that signs an export,
    and the keys that prove its content.
    """

    keys: dict[str, list[str]]


class ExportedRun(Model):
    """A run in an export: its number of entries, the hash of the last one, and whether it has ended there."""

    run_id: str
    entries: int
    head: str
    ended: bool


class ExportDocument(Model):
    """What an export proves with the keys of this deployment. `fault` names the first thing in it that does not verify,
    and `stream` and `entry` where: a run, `control`, or a line of the file (`export`). All three are null if everything
    verifies. Nothing is said of the content of an export that does not verify.

    `unsigned` names the answers and acts that no key of a person signed. `signers` are the people who signed.
    """

    fault: str | None
    stream: str | None
    entry: int | None
    runs: list[ExportedRun]
    acts: int
    signers: list[str]
    unsigned: list[str]


@export_routes.get("/exports/keys", response_model_exclude_unset=True)
async def get_export_keys(app: AppHere, _caller: CallerHere) -> ExportKeys:
    """Read the keys that a reader of an export trusts. Give them to the reader in another way than the export."""
    return ExportKeys(keys=public_keys(app.keys))


@export_routes.post(
    "/exports/verifications",
    response_model_exclude_unset=True,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {EXPORT_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def post_export_verification(
    app: AppHere, caller: CallerHere, roles: RolesHere, work: WorkHere, request: Request
) -> ExportDocument:
    """Verify an export of the caller's tenant, who is an auditor or an operator. Nothing is stored or recorded."""
    require_role(roles, *READER_ROLES)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != EXPORT_MEDIA_TYPE:
        detail = f"the body has to be `{EXPORT_MEDIA_TYPE}`, an export as `POST /v1/exports` returns it"
        raise HttpProblem(415, "unsupported_media_type", detail, {"Accept": EXPORT_MEDIA_TYPE})
    raw = await read_bytes(request, MAX_UPLOADED_BYTES)

    async def job(_time: WorkTime) -> ExportDocument:
        try:
            export = read_export(raw, app.keys)
        except ChainBroken as broken:
            return _broken(str(broken), broken.stream, broken.seq)
        except SignatureInvalid as error:
            return _broken(f"no key of this deployment signed the manifest: {error}", "export", 1)
        if export.tenant != caller.tenant_id:
            return _broken("this is an export of another tenant; log in there to verify it", "export", 1)
        return _verified(export)

    return await work.do(caller.tenant_id, job)


def _verified(export: Export) -> ExportDocument:
    runs = [
        ExportedRun(run_id=run_id, entries=len(entries), head=entries[-1].hash, ended=entries[-1].kind == "run.ended")
        for run_id, entries in export.streams.items()
    ]
    return ExportDocument(
        fault=None,
        stream=None,
        entry=None,
        runs=runs,
        acts=len(export.acts),
        signers=list(export.signers),
        unsigned=list(export.unsigned),
    )


def _broken(fault: str, stream: str, entry: int) -> ExportDocument:
    return ExportDocument(fault=fault, stream=stream, entry=entry, runs=[], acts=0, signers=[], unsigned=[])
