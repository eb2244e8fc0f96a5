"""Pins over HTTP: which packs requests may use is changed by a signed act on the version that its actor saw."""

from __future__ import annotations

from tests.http_face import LEAD, OPERATOR, HttpFace
from tests.unit.service.operations.test_packs import published, signed, version_of


def test_a_pinned_pack_is_used_and_an_unpinned_one_is_not(face: HttpFace) -> None:
    ref = published(face, "6.0.0")
    request = face.request()
    request["context_pack_refs"] = [ref]
    intent = request["input"]["intent"]
    draft = {"refs": [ref], "intents": [intent], "expected": version_of(face)}
    pinned = face.send("POST", "/v1/pins", by=OPERATOR, json=signed(face, "/v1/pins", draft))
    assert (pinned.status_code, pinned.json()["version"]) == (201, version_of(face)), pinned.text
    assert [(one["ref"], one["code"]) for one in pinned.json()["unmatched"]] == [(ref, "beside")]
    listed = face.send("GET", "/v1/pins", by=OPERATOR).json()
    assert {"refs": [ref], "intents": [intent], "environment": "dev"} in listed["items"]
    compiled = face.send("POST", "/v1/packs/compile", json=request)
    assert compiled.json()["failures"] == [], compiled.text
    draft["expected"] = version_of(face)
    ended = face.send("POST", "/v1/pins/withdraw", by=OPERATOR, json=signed(face, "/v1/pins/withdraw", draft))
    assert ended.status_code == 200, ended.text
    assert face.send("POST", "/v1/packs/compile", json=request).json()["failures"]


def test_a_pin_counts_for_what_was_signed_and_once(face: HttpFace) -> None:
    ref = published(face, "6.1.0")
    draft = {"refs": [ref], "intents": ["support.refund"], "expected": version_of(face)}
    body = signed(face, "/v1/pins", draft)
    for by, changed, status in (
        (LEAD, body, 403),
        (OPERATOR, {**body, "intents": ["support.nothing"]}, 422),
        (OPERATOR, {**body, "environment": "prod"}, 422),
        (OPERATOR, {**body, "environment": "nowhere"}, 422),
        (OPERATOR, {**body, "refs": ["nothing@1.0.0"]}, 404),
        (OPERATOR, {**body, "expected": body["expected"] + 1}, 422),
        (OPERATOR, {**body, "refs": []}, 422),
        (OPERATOR, {**body, "tokens": [face.token(OPERATOR)]}, 403),
    ):
        answer = face.send("POST", "/v1/pins", by=by, json=changed)
        assert answer.status_code == status, (changed, answer.text)
    assert face.send("POST", "/v1/pins", by=OPERATOR, json=body).status_code == 201
    again = face.send("POST", "/v1/pins", by=OPERATOR, json=body)
    assert (again.status_code, again.json()["errors"][0]["code"]) == (422, "stale_version")
    withdraw = {**draft, "expected": version_of(face)}
    other = face.send("POST", "/v1/pins/withdraw", by=OPERATOR, json={**withdraw, "tokens": body["tokens"]})
    assert other.status_code == 403, "the signature of a pin ends none"


def test_pins_come_in_pages_and_a_cursor_ends_with_its_version(face: HttpFace) -> None:
    for version in ("6.2.0", "6.3.0"):
        draft = {"refs": [published(face, version)], "intents": ["support.refund"], "expected": version_of(face)}
        assert face.send("POST", "/v1/pins", by=OPERATOR, json=signed(face, "/v1/pins", draft)).status_code == 201
    whole = face.send("GET", "/v1/pins", by=OPERATOR).json()["items"]
    page = face.send("GET", "/v1/pins", by=OPERATOR, params={"limit": 2}).json()
    rest = face.send("GET", "/v1/pins", by=OPERATOR, params={"cursor": page["cursor"]}).json()
    assert page["items"] + rest["items"] == whole
    for cursor in ("2", "1.00000000000000000000000000000000", "x" * 64):
        made_up = face.send("GET", "/v1/pins", by=OPERATOR, params={"cursor": cursor})
        assert (made_up.status_code, made_up.json()["errors"][0]["code"]) == (422, "unknown_cursor")
    draft = {"refs": whole[-1]["refs"], "intents": ["support.refund"], "expected": version_of(face)}
    face.send("POST", "/v1/pins/withdraw", by=OPERATOR, json=signed(face, "/v1/pins/withdraw", draft))
    stale = face.send("GET", "/v1/pins", by=OPERATOR, params={"cursor": page["cursor"]})
    assert stale.status_code == 422
