"""The console begins at the inbox, and is not a part of the documented API."""

from __future__ import annotations

from tests.http_face import HttpFace


def test_it_begins_at_the_inbox(face: HttpFace) -> None:
    answer = face.anonymous("GET", "/console")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/inbox")


def test_it_is_not_in_the_document_of_the_api(face: HttpFace) -> None:
    assert not [path for path in face.api.openapi()["paths"] if "console" in path]
