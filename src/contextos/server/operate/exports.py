"""The public keys with which exports verify. `service.operations.audits` makes an export."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from contextos.audit.exported import public_keys
from contextos.contracts.model import Model
from contextos.server.callers import AppHere, CallerHere

export_routes: Final = APIRouter(tags=["exports"])


class ExportKeys(Model):
    """The public keys (hex) with which the exports of this deployment verify, by purpose: the key that signs an export,
    and the keys that prove its content.
    """

    keys: dict[str, list[str]]


@export_routes.get("/exports/keys", response_model_exclude_unset=True)
async def get_export_keys(app: AppHere, _caller: CallerHere) -> ExportKeys:
    """Read the keys that a reader of an export trusts. Give them to the reader in another way than the export."""
    return ExportKeys(keys=public_keys(app.keys))
