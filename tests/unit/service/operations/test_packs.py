"""Packs over HTTP: an author signs, a publisher publishes, a policy admin withdraws, each with their own key."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.trust.seal import seal
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace

SHORT = """\
name: ctxpack.http
version: 1.0.0
tenant: tenant_acme_prod
who: [support_agent]
approver: finance_lead
tools: [adp_orders.lookup]
budget: {max_cost_cents: 10}
"""
PACK = "ctxpack.support@5.2.0"


def version_of(face: HttpFace) -> int:
    found: int = face.send("GET", "/v1/pins", by=OPERATOR).json()["version"]
    return found


def signed(face: HttpFace, path: str, body: dict[str, Any], by: str = OPERATOR, tenant: str = TENANT) -> dict[str, Any]:
    """The body of an act with the tokens of its statements."""
    said = face.send("POST", f"{path}/statement", by=by, tenant=tenant, json=body)
    assert said.status_code == 200, said.text
    tokens = []
    for one in said.json()["statements"]:
        [signing_input] = one["signing_inputs"].values()
        tokens.append(face.signature(signing_input, by))
    return {**body, "tokens": tokens}


def another_pack(face: HttpFace, version: str) -> dict[str, Any]:
    """The envelope of another version of the published pack, as its author signs it."""
    document = face.send("GET", f"/v1/packs/{PACK}", by=OPERATOR).json()["document"]
    document["pack_meta"]["pack_version"] = version
    return seal(PACK_TYPE, canonical(document), face.app.keys, "pack")


def published(face: HttpFace, version: str) -> str:
    sent = face.send(
        "POST", "/v1/packs", by=OPERATOR, json=signed(face, "/v1/packs", {"envelope": another_pack(face, version)})
    )
    assert sent.status_code == 201, sent.text
    ref: str = sent.json()["ref"]
    return ref


def test_what_is_published_is_listed_in_pages_and_read_with_a_tag(face: HttpFace) -> None:
    whole = face.send("GET", "/v1/packs", by=OPERATOR).json()
    assert PACK in [one["ref"] for one in whole["items"]]
    found, cursor = [], ""
    while True:
        page = face.send("GET", "/v1/packs", by=OPERATOR, params={"limit": 1, "cursor": cursor}).json()
        found += page["items"]
        if (cursor := page["cursor"]) is None:
            break
    assert found == whole["items"]
    one = face.send("GET", f"/v1/packs/{PACK}", by=OPERATOR)
    assert one.json()["document"]["pack_meta"]["tenant"] == "tenant_acme_prod"
    assert one.headers["etag"] == f'"{one.json()["digest"]}"'
    again = face.send("GET", f"/v1/packs/{PACK}", by=OPERATOR, headers={"If-None-Match": one.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_pack_is_published_by_the_signature_of_a_publisher(face: HttpFace) -> None:
    ref = published(face, "5.3.0")
    assert ref == "ctxpack.support@5.3.0"
    read = face.send("GET", f"/v1/packs/{ref}", by=OPERATOR).json()
    assert (read["publisher"], read["withdrawn"]) == (OPERATOR, False)
    same = {"envelope": another_pack(face, "5.3.0")}
    nothing = face.send("POST", "/v1/packs/statement", by=OPERATOR, json=same)
    assert nothing.json() == {"statements": []}, "the same content again changes nothing"
    again = face.send("POST", "/v1/packs", by=OPERATOR, json={**same, "tokens": []})
    assert (again.status_code, again.json()) == (200, {"ref": ref}), "nothing was created"


def test_an_expansion_says_what_its_author_signs(face: HttpFace) -> None:
    text = SHORT.replace("ctxpack.http", "ctxpack.signed")
    made = face.send("POST", "/v1/packs/expand", by=OPERATOR, json={"declaration": text}).json()
    kid, signature = face.app.keys.sign("pack", base64.b64decode(made["signing_input"]))
    envelope = {
        "payloadType": made["payload_type"],
        "payload": made["payload"],
        "signatures": [{"keyid": kid, "sig": base64.b64encode(signature).decode()}],
    }
    sent = face.send("POST", "/v1/packs", by=OPERATOR, json=signed(face, "/v1/packs", {"envelope": envelope}))
    assert (sent.status_code, sent.json()) == (201, {"ref": "ctxpack.signed@1.0.0"})


def test_nothing_but_the_publishers_signature_of_this_artifact_publishes_it(face: HttpFace) -> None:
    envelope, other = another_pack(face, "5.9.0"), another_pack(face, "5.9.1")
    foreign = signed(face, "/v1/packs", {"envelope": other})["tokens"]
    unsigned = {**envelope, "signatures": []}
    for by, body, status in (
        (OPERATOR, {"envelope": envelope, "tokens": foreign}, 403),
        (OPERATOR, {"envelope": envelope, "tokens": [face.token(OPERATOR)]}, 403),
        (OPERATOR, {"envelope": envelope, "tokens": [""]}, 403),
        (OPERATOR, {"envelope": envelope, "tokens": []}, 422),
        (OPERATOR, {"envelope": envelope, "tokens": foreign * 2}, 422),
        (OPERATOR, {"envelope": envelope}, 422),
        (OPERATOR, {"envelope": unsigned, "tokens": foreign}, 403),
        (OPERATOR, {"envelope": {}, "tokens": foreign}, 403),
        (LEAD, {"envelope": other, "tokens": foreign}, 403),
        (REQUESTER, {"envelope": other, "tokens": foreign}, 403),
    ):
        answer = face.send("POST", "/v1/packs", by=by, json=body)
        assert answer.status_code == status, (by, answer.text)
    for version in ("5.9.0", "5.9.1"):
        assert face.send("GET", f"/v1/packs/ctxpack.support@{version}", by=OPERATOR).status_code == 404


def test_a_changed_payload_is_no_longer_the_authors(face: HttpFace) -> None:
    envelope = another_pack(face, "5.9.2")
    document = json.loads(base64.b64decode(str(envelope["payload"])))
    document["pack_meta"]["pack_version"] = "5.9.3"
    changed = {**envelope, "payload": base64.b64encode(canonical(document)).decode()}
    answer = face.send("POST", "/v1/packs/statement", by=OPERATOR, json={"envelope": changed})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_signed")


def test_a_withdrawn_pack_stays_readable_and_is_withdrawn_once(face: HttpFace) -> None:
    ref = published(face, "5.4.0")
    before = face.send("GET", f"/v1/packs/{ref}", by=OPERATOR)
    body = signed(face, f"/v1/packs/{ref}/withdraw", {"reason": "a fault", "expected": version_of(face)})
    assert face.send("POST", f"/v1/packs/{ref}/withdraw", by=LEAD, json=body).status_code == 403
    done = face.send("POST", f"/v1/packs/{ref}/withdraw", by=OPERATOR, json=body)
    assert done.json()["version"] == version_of(face), done.text
    after = face.send("GET", f"/v1/packs/{ref}", by=OPERATOR, headers={"If-None-Match": before.headers["etag"]})
    assert (after.status_code, after.json()["withdrawn"]) == (200, True)
    assert ref in face.send("GET", "/v1/pins", by=OPERATOR).json()["withdrawn"]
    again = face.send("POST", f"/v1/packs/{ref}/withdraw", by=OPERATOR, json=body)
    assert (again.status_code, again.json()["errors"][0]["code"]) == (422, "stale_version")


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
def test_who_governs_nothing_reads_nothing_of_it(face: HttpFace, by: str) -> None:
    for path in ("/v1/packs", f"/v1/packs/{PACK}", "/v1/packs/nothing@1.0.0", "/v1/pins"):
        answer = face.send("GET", path, by=by)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
