"""Registrations of passkeys over HTTP where nobody logs in with a browser. The rest is in `test_e40`."""

from __future__ import annotations

from tests.http_face import LEAD, HttpFace


def test_a_program_registers_nothing_and_lists_its_own(face: HttpFace) -> None:
    assert face.send("GET", "/v1/passkeys", by=LEAD).json() == {"items": [], "cursor": None}
    for path, body in (("/v1/passkeys/options", None), ("/v1/passkeys", {"credential": {}})):
        sent = face.send("POST", path, by=LEAD, json=body)
        assert (sent.status_code, sent.json()["code"]) == (403, "no_session")
