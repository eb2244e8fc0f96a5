"""Two runs are compared for callers who may see both, over every interface of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contextos.service.operations.comparisons import MAX_DIFFERENCE_CHARS
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, HttpFace, http_face


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("comparisons")) as made:
        yield made


def begun(face: HttpFace, **changes: str) -> str:
    sent = face.request()
    sent["input"]["context"].update(changes)
    return str(face.send("POST", "/v1/runs", json=sent).json()["run_id"])


def test_the_first_difference_is_stated_apart(face: HttpFace) -> None:
    run, other = begun(face), face.waiting_run()
    found = face.send("GET", f"/v1/runs/{run}/comparison", params={"other": other}).json()
    assert (found["run_id"], found["other_id"], found["equal"]) == (run, other, False)
    assert found["first"] == found["differences"][0]
    assert found["first"]["value"] == '"ord_881"'
    request = face.send("GET", f"/v1/runs/{other}").json()["request_id"]
    by_request = face.send("GET", f"/v1/runs/{run}/comparison", params={"other": request}).json()
    assert by_request["differences"] == found["differences"]
    itself = face.send("GET", f"/v1/runs/{run}/comparison", params={"other": run}).json()
    assert (itself["equal"], itself["first"], itself["differences"]) == (True, None, [])


def test_a_long_value_is_cut(face: HttpFace) -> None:
    run, other = begun(face), begun(face, note="x" * 5_000)
    found = face.send("GET", f"/v1/runs/{run}/comparison", params={"other": other}).json()
    [note] = [one for one in found["differences"] if one["place"] == "/input/context/note"]
    assert (note["value"], len(note["other"])) == (None, MAX_DIFFERENCE_CHARS + 1)


def test_both_runs_have_to_be_visible(face: HttpFace) -> None:
    run, other = begun(face), face.waiting_run()
    assert face.send("GET", f"/v1/runs/{run}/comparison", by=OPERATOR, params={"other": other}).status_code == 200
    for by, tenant, first, second in (
        (REQUESTER, "tenant_acme_prod", run, "run_0000000000000000"),
        (REQUESTER, "tenant_acme_prod", run, "a b"),
        (LEAD, "tenant_acme_prod", run, other),
        (OPERATOR, OTHER_TENANT, run, other),
    ):
        answer = face.send("GET", f"/v1/runs/{first}/comparison", by=by, tenant=tenant, params={"other": second})
        assert answer.status_code == 404, answer.text
    assert face.send("GET", f"/v1/runs/{run}/comparison").status_code == 422


def test_somebody_does_not_see_the_run_of_another_through_their_own(face: HttpFace) -> None:
    run, sent, person = begun(face), face.request(), "usr_772"
    sent["user"] = {"user_id": person}
    own = face.send("POST", "/v1/runs", by=person, json=sent).json()["run_id"]
    assert face.send("GET", f"/v1/runs/{own}/comparison", by=person, params={"other": own}).status_code == 200
    hidden = face.send("GET", f"/v1/runs/{own}/comparison", by=person, params={"other": run})
    assert hidden.status_code == 404
