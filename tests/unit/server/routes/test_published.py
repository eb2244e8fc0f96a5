"""The published schemas are those of the repository, without a token."""

from __future__ import annotations

import json

from tests.docs.pages import ROOT
from tests.http_face import HttpFace


def test_every_schema_of_the_repository_is_served(face: HttpFace) -> None:
    files = sorted((ROOT / "schemas").glob("*.json"))
    for path in files:
        assert face.anonymous("GET", f"/schemas/{path.name}").json() == json.loads(path.read_text("utf-8"))
    assert len(files) > 5
    assert face.anonymous("GET", "/schemas/none.json").status_code == 404
    assert face.anonymous("GET", "/schemas/..%2f..%2fetc%2fpasswd").status_code == 404
