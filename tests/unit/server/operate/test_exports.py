"""Who may call reads the public keys with which exports verify, and nothing else of the keys."""

from __future__ import annotations

from contextos.audit.exported import public_keys
from tests.http_face import HttpFace


def test_the_keys_are_those_of_the_deployment_and_public(face: HttpFace) -> None:
    answer = face.send("GET", "/v1/exports/keys")
    assert answer.json() == {"keys": public_keys(face.app.keys)}
    assert "export" in answer.json()["keys"]
    assert face.anonymous("GET", "/v1/exports/keys").status_code == 401
