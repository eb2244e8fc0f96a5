"""The files of the console: styles, scripts and htmx.

An address has the digest of all files, so a browser keeps it, and a script imports another one by its name.
"""

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
def _assets() -> tuple[str, dict[str, bytes]]:
    """Return the first 16 characters of the SHA-256 of all files, and each file by its name."""
    contents = {file.name: file.read_bytes() for file in files("contextos.server.console").joinpath("static").iterdir()}
    digest = sha256()
    for name, content in sorted(contents.items()):
        digest.update(b"%b %d %b" % (name.encode(), len(content), content))
    return digest.hexdigest()[:16], contents


def asset_address(name: str) -> str:
    """Return the address of a file of the console. Raises `KeyError` if there is none."""
    digest, contents = _assets()
    if name not in contents:
        raise KeyError(name)
    return f"/console/static/{digest}/{name}"


@asset_routes.get("/static/{digest}/{name}")
async def get_asset(digest: str, name: str) -> Response:
    """Return a file of the console. Nobody needs to be logged in for it."""
    current, contents = _assets()
    if digest != current or name not in contents:
        raise not_found()
    media_type = ASSET_TYPES[name.rpartition(".")[2]]
    return Response(contents[name], headers=_KEPT, media_type=media_type)
