"""The entries of a run, in pages, one by one, and by tool call, for callers who may see the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http_face import LEAD, OTHER_TENANT, TENANT, HttpFace, http_face


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("entries")) as made:
        yield made


@pytest.fixture(scope="module")
def run(face: HttpFace) -> str:
    return str(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])


def test_entries_come_in_pages_as_they_are_recorded(face: HttpFace, run: str) -> None:
    path = f"/v1/runs/{run}/entries"
    first = face.send("GET", path, params={"limit": 20}).json()
    second = face.send("GET", path, params={"limit": 20, "cursor": first["cursor"]}).json()
    recorded = face.call(face.app.runs.entries(face.call(face.app.runs.get(TENANT, run))))
    listed = [(one["seq"], one["kind"], one["hash"]) for one in (*first["items"], *second["items"])]
    assert listed == [(entry.seq, entry.kind, entry.hash) for entry in recorded]
    assert second["cursor"] is None
    of_others = face.send("GET", path, params={"limit": 20, "cursor": first["cursor"], "call": "tool_x"})
    assert (of_others.status_code, of_others.json()["errors"][0]["code"]) == (422, "unknown_cursor")


def test_one_entry_and_the_entries_of_a_call(face: HttpFace, run: str) -> None:
    path = f"/v1/runs/{run}/entries"
    [one] = face.send("GET", path, params={"seq": 14}).json()["items"]
    assert (one["seq"], one["kind"]) == (14, "tool.dispatching")
    call = one["body"]["envelope"]["tool_call_id"]
    kinds = [entry["kind"] for entry in face.send("GET", path, params={"call": call}).json()["items"]]
    assert kinds == ["tool.dispatching", "tool.returned"]
    assert face.send("GET", path, params={"seq": 999}).json() == {"items": [], "cursor": None}
    assert face.send("GET", path, params={"seq": 0}).status_code == 422


def test_who_may_not_see_the_run_sees_no_entry(face: HttpFace, run: str) -> None:
    for by, tenant in ((LEAD, TENANT), ("usr_772", TENANT), (LEAD, OTHER_TENANT)):
        assert face.send("GET", f"/v1/runs/{run}/entries", by=by, tenant=tenant).status_code == 404
