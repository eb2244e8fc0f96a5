"""The files of the console: styles, scripts and htmx. An address has the digest of its file, so a browser keeps it."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response

from contextos.server.problems import not_found

asset_routes: Final = APIRouter(include_in_schema=False)

ASSET_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}
_KEPT: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


@cache
def _assets() -> dict[str, tuple[bytes, str]]:
    """Return each file by its name, with the first 16 characters of its SHA-256."""
    contents = {file.name: file.read_bytes() for file in files("contextos.server.console").joinpath("static").iterdir()}
    return {name: (content, sha256(content).hexdigest()[:16]) for name, content in sorted(contents.items())}


def asset_address(name: str) -> str:
    """Return the address of a file of the console. Raises `KeyError` if there is none."""
    return f"/console/static/{_assets()[name][1]}/{name}"


@asset_routes.get("/static/{digest}/{name}")
async def get_asset(digest: str, name: str) -> Response:
    """Return a file of the console. Nobody needs to be logged in for it."""
    content, current = _assets().get(name, (b"", ""))
    if not current or digest != current:
        raise not_found()
    media_type = ASSET_TYPES[name.rpartition(".")[2]]
    return Response(content, headers=_KEPT, media_type=media_type)
