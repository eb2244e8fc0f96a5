"""F45: what belongs to another tenant, or to another user, is answered over HTTP exactly as what does not exist.

Every route of the OpenAPI document is probed, so a new one is too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face

NOWHERE = "run_0000000000000000"
BODIES: dict[str, dict[str, Any]] = {
    "AnswerDraft": {"verdict": "approved"},
    "SignedAnswer": {"verdict": "approved", "tokens": ["a.b.c"]},
    "ReasonDraft": {"reason": "no"},
    "SignedReasonDraft": {"tokens": ["a.b.c"]},
    "SettlementDraft": {"happened": False, "evidence_ref": "artifact:bank#rev_1"},
    "SignedSettlementDraft": {"happened": False, "evidence_ref": "artifact:bank#rev_1", "tokens": ["a.b.c"]},
    "SlotAnswer": {"answer": {}, "at_us": 0},
    "SignedSlotAnswer": {"answer": {}, "at_us": 0, "tokens": ["a.b.c"]},
    "Nothing": {},
    "SignedNothing": {"tokens": ["a.b.c"]},
    "ErasureDraft": {"seq": 1},
    "SignedErasureDraft": {"seq": 1, "tokens": ["a.b.c"]},
}
"""A valid body of each route that names a thing in its path."""
GOVERNED = ("{ref}", "{proposal}", "{capability}")


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("tenants")) as made:
        yield made


@pytest.fixture(scope="module")
def run(face: HttpFace) -> str:
    """A run of the first tenant that waits for its lead."""
    return face.waiting_run()


def routes_with_a_name(face: HttpFace) -> list[tuple[str, str, dict[str, Any] | None]]:
    """Method, path and body of each route that has a run in its path."""
    found = []
    for path, operations in face.api.openapi()["paths"].items():
        for method, operation in operations.items():
            # Sessions are named by their user: `tests/unit/server/routes/test_sessions.py`. What a
            # tenant governs is named by references of its own: `test_f48_http_control.py`. The questions of flows:
            # `test_h17_the_context_selector.py`.
            probed = ("{run}", "{session}", "{selection}", *GOVERNED)
            assert "{" not in path or any(one in path for one in probed), f"nothing probes {path}"
            if "{run}" in path:
                stated = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
                body = BODIES[stated["$ref"].rpartition("/")[2]] if stated else None
                asks = [one for one in operation.get("parameters", ()) if one["in"] == "query" and one["required"]]
                query = "&".join(f"{one['name']}={{run}}" for one in asks)
                found.append((method.upper(), f"{path}?{query}" if query else path, body))
    return found


def probe(face: HttpFace, method: str, path: str, body: Any, name: str, **who: str) -> httpx.Response:
    ledger = path.replace("{ledger}", "effect")
    filled = "".join(name if part == "{" else part for part in _parts(ledger))
    return face.send(method, filled, **who, **({"json": body} if body is not None else {}))  # type: ignore[arg-type]


def _parts(path: str) -> Iterator[str]:
    """The path with each remaining parameter as one `{`."""
    inside = False
    for char in path:
        if char == "{":
            yield "{"
        if not inside and char not in "{}":
            yield char
        inside = char != "}" and (inside or char == "{")


@pytest.mark.parametrize("by", [REQUESTER, LEAD, OPERATOR])
def test_every_route_answers_another_tenant_as_if_the_run_did_not_exist(face: HttpFace, run: str, by: str) -> None:
    request_id = face.call(face.app.runs.get(TENANT, run)).request_id
    routes = routes_with_a_name(face)
    assert len(routes) >= 7
    for method, path, body in routes:
        answers = [
            probe(face, method, path, body, name, by=by, tenant=OTHER_TENANT)
            for name in (run, request_id, NOWHERE, "req_nobody")
        ]
        assert {one.status_code for one in answers} == {404}, (method, path)
        assert len({one.content for one in answers}) == 1, (method, path)
        assert len({tuple(sorted(one.headers.items())) for one in answers}) == 1, (method, path)


def test_every_route_answers_another_user_as_if_the_run_did_not_exist(face: HttpFace, run: str) -> None:
    for method, path, body in routes_with_a_name(face):
        there, nowhere = (probe(face, method, path, body, name, by="usr_772") for name in (run, NOWHERE))
        assert there.status_code == 404, (method, path)
        assert (there.content, there.headers) == (nowhere.content, nowhere.headers)


def test_the_owner_of_the_run_and_its_lead_are_answered(face: HttpFace, run: str) -> None:
    """Else the tests above would pass for a route that answers nobody."""
    for method, path, body in routes_with_a_name(face):
        if path.endswith(("/events", "/decision")):
            # A run that waits has a stream without an end (`tests/unit/server/routes/test_events.py`) and
            # has decided nothing (`tests/spec/test_flow.py`).
            continue
        by = LEAD if "/approvals/" in path else REQUESTER
        assert probe(face, method, path, body, run, by=by).status_code != 404, (method, path)


def test_lists_of_another_tenant_are_empty_and_its_cursors_name_nothing(face: HttpFace, run: str) -> None:
    face.send("POST", "/v1/runs", json=face.request())
    cursor = face.send("GET", "/v1/runs", by=OPERATOR, params={"limit": 1}).json()["cursor"]
    assert cursor
    for path, by in (("/v1/runs", OPERATOR), ("/v1/approvals", LEAD)):
        assert face.send("GET", path, by=by, tenant=OTHER_TENANT).json()["items"] == []
        foreign = face.send("GET", path, by=by, tenant=OTHER_TENANT, params={"cursor": cursor})
        assert (foreign.status_code, foreign.json()["errors"][0]["code"]) == (422, "unknown_cursor")


def test_an_export_of_a_run_of_another_tenant_is_refused_as_one_of_no_run(face: HttpFace, run: str) -> None:
    mine = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    for path, more in (("/v1/exports/statement", {}), ("/v1/exports", {"tokens": ["a.b.c"]})):
        answers = [
            face.send("POST", path, by=OPERATOR, tenant=OTHER_TENANT, json={"runs": runs, **more})
            for runs in ([run], [NOWHERE], [mine, NOWHERE])
        ]
        assert {one.status_code for one in answers} == {404}
        assert len({one.content for one in answers}) == 1
        assert len({tuple(sorted(one.headers.items())) for one in answers}) == 1


def test_a_list_of_questions_tells_nobody_without_the_role_that_there_are_any(face: HttpFace, run: str) -> None:
    face.waiting_run()
    nothing = face.send("GET", "/v1/approvals", by="usr_772", tenant=OTHER_TENANT, params={"limit": 1})
    for by in (REQUESTER, OPERATOR):
        answer = face.send("GET", "/v1/approvals", by=by, params={"limit": 1})
        assert (answer.content, answer.headers) == (nothing.content, nothing.headers)
    assert face.send("GET", "/v1/approvals", by=LEAD, params={"limit": 1}).json()["items"]


def test_a_request_for_another_tenant_is_refused_whether_it_exists_or_not(face: HttpFace) -> None:
    answers = [
        face.send("POST", "/v1/runs", json=face.request(tenant_id=name)) for name in (OTHER_TENANT, "tenant_nowhere")
    ]
    assert [one.status_code for one in answers] == [403, 403]
    assert answers[0].content == answers[1].content


def test_who_takes_the_id_of_a_request_of_another_user_learns_that_it_is_taken_and_no_more(face: HttpFace) -> None:
    """The ids of requests are of the whole tenant, so that one id is one run."""
    theirs = face.request()
    run_id = face.send("POST", "/v1/runs", json=theirs).json()["run_id"]
    user = {**theirs["user"], "user_id": "usr_772"}
    mine = {**theirs, "user": {name: one for name, one in user.items() if name != "delegation"}}
    answer = face.send("POST", "/v1/runs", by="usr_772", json=mine)
    assert (answer.status_code, answer.json()["code"]) == (422, "conflicting_request")
    assert not any(one in answer.text + str(answer.headers) for one in (run_id, REQUESTER))
    for path in (f"/v1/runs/{theirs['request_id']}", f"/v1/runs/{run_id}"):
        assert face.send("GET", path, by="usr_772").status_code == 404
