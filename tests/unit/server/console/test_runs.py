"""The pages of runs show what `/v1` shows to the same person."""

from __future__ import annotations

import html

import pytest

from tests.http_face import OPERATOR, OTHER_TENANT, REQUESTER, HttpFace


def decided(face: HttpFace) -> str:
    return str(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])


def test_a_list_shows_the_runs_that_the_api_lists(face: HttpFace) -> None:
    mine = decided(face)
    for person in (REQUESTER, OPERATOR):
        listed = face.send("GET", "/v1/runs", by=person).json()["items"]
        page = face.page("/runs", person).text
        assert all(f"/console/runs/{run['run_id']}" in page for run in listed)
        assert mine in page
    assert mine not in face.page("/runs", OPERATOR, tenant=OTHER_TENANT).text


def test_a_person_without_a_role_for_it_sees_no_run_of_another(face: HttpFace) -> None:
    mine = decided(face)
    assert mine in face.page("/runs", REQUESTER).text
    assert mine not in face.page("/runs", "usr_772").text
    assert face.page(f"/runs/{mine}", "usr_772").status_code == 404
    assert face.page(f"/ask/runs.replay?run={mine}", "usr_772").status_code == 404


def test_a_filter_is_a_link(face: HttpFace) -> None:
    ended, waits = decided(face), face.waiting_run()
    page = face.page("/runs?state=waiting", OPERATOR).text
    assert (ended in page, waits in page, "<option selected>waiting</option>" in page) == (False, True, True)
    assert waits in face.page("/runs?rule=R_HIGH_VALUE_REQUIRES_APPROVAL", OPERATOR).text


def test_a_run_shows_its_story_its_reasons_its_budget_and_its_record(face: HttpFace) -> None:
    run = decided(face)
    page = html.unescape(face.page(f"/runs/{run}").text)
    story = face.send("GET", f"/v1/runs/{run}/timeline").json()
    for part in story["parts"]:
        assert part["title"] in page
    record = face.send("GET", f"/v1/runs/{run}").json()
    used = record["run_budget"]["atomic_usage"]
    assert f"{used['tool_calls']} of {record['run_budget']['max_tool_calls']}" in page
    assert record["record"]["record_id"] in page
    assert record["record"]["effects"][0]["tool_call_id"] in page
    assert "data-follow" not in page, "an ended run does not change"


def test_a_run_that_goes_on_is_followed(face: HttpFace) -> None:
    assert "data-follow" in face.page(f"/runs/{face.waiting_run()}").text


@pytest.mark.parametrize("name", ["run_nothing", "..%2f", "x" * 200, "%00"])
def test_another_run_is_not_found(face: HttpFace, name: str) -> None:
    assert face.page(f"/runs/{name}").status_code in (404, 422)
    assert face.page(f"/runs/{decided(face)}", REQUESTER, tenant=OTHER_TENANT).status_code == 404
