"""The files of the console: each at an address with its digest, kept by browsers, and served to anybody."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from contextos.server.console.assets import ASSET_TYPES, asset_address
from tests.http_face import HttpFace

STATIC = Path(__file__).resolve().parents[4] / "src/contextos/server/console/static"
HTMX = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"


@pytest.mark.parametrize("name", sorted(one.name for one in STATIC.iterdir()))
def test_a_file_is_served_and_kept(face: HttpFace, name: str) -> None:
    answer = face.anonymous("GET", asset_address(name))
    assert (answer.status_code, answer.content) == (200, (STATIC / name).read_bytes())
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith(ASSET_TYPES[name.rpartition(".")[2]])
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("address", ["0" * 16 + "/console.css", "x/nothing.js", "x/../groups.py"])
def test_no_other_file_is(face: HttpFace, address: str) -> None:
    assert face.anonymous("GET", f"/console/static/{address}").status_code == 404


def test_htmx_is_the_release_that_was_looked_at() -> None:
    assert hashlib.sha256((STATIC / "htmx.js").read_bytes()).hexdigest() == HTMX, "version 4.0.1, `dist/htmx.min.js`"
    assert "Permission to use" in (STATIC / "htmx.LICENSE.txt").read_text("utf-8")
