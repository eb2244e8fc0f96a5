"""The events of a run over HTTP: cut after every single one and resumed, nothing is missing and nothing comes twice."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import httpx
import pytest

from contextos.workspace.logins.development_tokens import development_token
from tests.http_face import LEAD, OTHER_TENANT, REQUESTER, TENANT, HttpFace


def read(lines: Any) -> Any:
    """Yield (id, event, document) of each event of a stream."""
    found: dict[str, str] = {}
    for line in lines:
        if not line and found:
            yield found["id"], found["event"], json.loads(found["data"])
            found = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value


def resume(face: HttpFace, run: str, after: str = "", **who: str) -> httpx.Response:
    return face.send("GET", f"/v1/runs/{run}/events", headers={"Last-Event-ID": after}, **who)  # type: ignore[arg-type]


async def so_far(face: HttpFace, run: str) -> list[str]:
    """The ids of the events of a run until now."""
    return [one.id async for one in face.app.runs.stream(TENANT, run)]


def test_a_stream_that_is_cut_after_every_event_and_resumed_is_the_whole_journal(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    union: list[tuple[str, str, Any]] = []
    while (answer := resume(face, run, union[-1][0] if union else "")).status_code != 204:
        assert answer.headers["content-type"].startswith("text/event-stream")
        union += islice(read(answer.text.splitlines()), 1)
    assert len({one for one, _, _ in union}) == len(union)
    assert union == list(read(resume(face, run).text.splitlines()))
    names = [event for _, event, _ in union]
    assert (names[0], names[-1]) == ("RUN_STARTED", "RUN_FINISHED")
    entries = face.call(face.app.stores.tenant(TENANT).read(run))
    assert names.count("TOOL_CALL_START") == sum(entry.kind == "tool.dispatching" for entry in entries) > 0
    assert all(document["type"] == event for _, event, document in union)


def test_a_reader_of_a_live_run_sees_the_rest_as_it_happens(face: HttpFace, url: str) -> None:
    run = face.waiting_run()
    headers = {"Authorization": f"Bearer {face.token(REQUESTER)}"}
    before = face.call(so_far(face, run))
    with (
        httpx.Client(base_url=url, headers=headers, timeout=60) as client,
        client.stream("GET", f"/v1/runs/{run}/events", headers={"Last-Event-ID": before[1]}) as stream,
    ):
        events = read(stream.iter_lines())
        seen = list(islice(events, len(before) - 2))
        face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=face.signed_answer(run))
        seen += list(events)
    assert [one for one, _, _ in seen[: len(before) - 2]] == before[2:]
    assert [*before[:2], *(one for one, _, _ in seen)] == face.call(so_far(face, run))
    assert seen[-1][1] == "RUN_FINISHED"
    assert resume(face, run, seen[-1][0]).status_code == 204


def test_a_server_that_stops_ends_its_streams(face: HttpFace, url: str) -> None:
    run = face.waiting_run()
    headers = {"Authorization": f"Bearer {face.token(REQUESTER)}"}
    with (
        httpx.Client(base_url=url, headers=headers, timeout=60) as client,
        client.stream("GET", f"/v1/runs/{run}/events") as stream,
    ):
        events = read(stream.iter_lines())
        next(events)
        face.api.state.stopping.set()
        try:
            assert all(event != "RUN_FINISHED" for _, event, _ in events)
        finally:
            face.api.state.stopping.clear()


def test_a_stream_ends_with_the_token_of_its_reader(face: HttpFace) -> None:
    run = face.waiting_run()
    made = development_token(
        face.app.settings, face.app.deployment.ports, TENANT, user=REQUESTER, agent=None, delegation=None, ttl_s=5
    )
    token, _ = face.call(made)
    answer = face.send("GET", f"/v1/runs/{run}/events", token=token)
    assert [one for one, _, _ in read(answer.text.splitlines())] == face.call(so_far(face, run))
    assert face.send("GET", f"/v1/runs/{run}/events", token=token).status_code == 401


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "run_1.1.0.0000", "1\x00", "x" * 201])
def test_what_names_no_event_is_refused(face: HttpFace, after: str) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    answer = face.send("GET", f"/v1/runs/{run}/events", headers={"Last-Event-ID": after})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


def test_the_events_of_another_tenant_are_not_there(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    assert resume(face, run, by=REQUESTER, tenant=OTHER_TENANT).status_code == 404


def test_text_of_a_tool_or_a_user_begins_no_field_of_the_stream(face: HttpFace) -> None:
    body = face.request()
    body["session_id"] = "sess_1"
    run = face.send("POST", "/v1/runs", json=body).json()["run_id"]
    text = resume(face, run).text
    assert all(line.startswith(("id: ", "event: ", "data: ")) for line in text.splitlines() if line)
    assert "\r" not in text


EVENTS = {"Accept": "text/event-stream"}


def test_a_request_is_answered_by_its_events_and_then_by_what_a_client_without_a_stream_gets(face: HttpFace) -> None:
    body = face.request()
    answer = face.send("POST", "/v1/runs", json=body, headers=EVENTS)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (201, "text/event-stream")
    *events, last = answer.text.strip().split("\n\n")
    again = face.send("POST", "/v1/runs", json=body)
    assert answer.headers["location"] == again.headers["location"]
    run = again.json()["run_id"]
    assert list(read([*"\n\n".join([*events, ""]).splitlines(), ""])) == list(read(resume(face, run).text.splitlines()))
    kind, said = last.splitlines()
    outcome = json.loads(said.removeprefix("data: "))
    assert (kind, outcome["name"], outcome["value"]) == ("event: CUSTOM", "contextos.outcome", again.json())
    assert face.send("POST", "/v1/runs", json=body, headers=EVENTS).text.count("event: RUN_FINISHED") == 1


def test_the_stream_of_a_request_ends_where_its_run_waits_for_a_person(face: HttpFace) -> None:
    body = face.request("next")
    body["input"]["context"]["refund_amount"] = 7_777
    text = face.send("POST", "/v1/runs", json=body, headers=EVENTS).text
    outcome = json.loads(text.strip().splitlines()[-1].removeprefix("data: "))["value"]
    assert (outcome["waits_for"], outcome["ended"]) == ("approval", False)
    last = [one for one, _, _ in read(text.split('event: CUSTOM\ndata: {"type": "CUSTOM"')[0].splitlines())]
    ids = [line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: ")]
    assert ids[: len(last)] == last
    assert ids == face.call(so_far(face, outcome["run_id"]))


def test_the_stream_of_a_long_running_request_goes_to_its_end(face: HttpFace) -> None:
    answer = face.send("POST", "/v1/runs", json=face.request(mode="long_running"), headers=EVENTS)
    assert answer.status_code == 201
    outcome = json.loads(answer.text.strip().splitlines()[-1].removeprefix("data: "))["value"]
    assert (outcome["ended"], outcome["record"]["status"]) == (True, "DECIDED")


@pytest.mark.parametrize("changes", [{"user": {"user_id": "usr_other"}}, {"input": {}}, {"tenant_id": "tenant_other"}])
def test_a_request_that_is_refused_is_a_problem_document_and_no_stream(face: HttpFace, changes: Any) -> None:
    body = {**face.request(), **changes}
    batch, stream = (face.send("POST", "/v1/runs", json=body, headers=one) for one in ({}, EVENTS))
    assert stream.status_code == batch.status_code >= 400
    assert stream.json() == batch.json()


def test_a_name_that_was_used_for_another_request_streams_nothing_of_that_run(face: HttpFace) -> None:
    body = face.request()
    assert face.send("POST", "/v1/runs", json=body).status_code == 201
    body["input"]["context"]["refund_amount"] = 1
    answer = face.send("POST", "/v1/runs", json=body, headers=EVENTS)
    assert (answer.status_code, answer.json()["code"]) == (422, "conflicting_request")


@pytest.mark.parametrize(
    ("mode", "accept", "streams"),
    [
        ("batch", "text/event-stream;q=0, */*", False),
        ("batch", "*/*", False),
        ("batch", "application/json, Text/Event-Stream", True),
        ("long_running", "*/*", False),
        ("stream", "*/*", True),
        ("stream", "", True),
        ("stream", "text/*;q=0.5, application/json", True),
        ("stream", "application/json", False),
        ("stream", "text/event-stream;q=0.0, */*", False),
        ("stream", "*/*;q=0", False),
    ],
)
def test_a_stream_is_sent_in_the_mode_stream_and_to_those_who_ask_for_it(
    face: HttpFace, mode: str, accept: str, streams: bool
) -> None:
    body = face.request(mode=mode)
    answer = face.send("POST", "/v1/runs", json=body, headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("text/event-stream") is streams
    if streams:
        assert '"name": "contextos.outcome"' in answer.text.strip().splitlines()[-1]


def test_a_client_that_goes_away_stops_its_stream_and_not_its_run(face: HttpFace, url: str) -> None:
    body = face.request()
    headers = {"Authorization": f"Bearer {face.token(REQUESTER)}", **EVENTS}
    with (
        httpx.Client(base_url=url, headers=headers, timeout=60) as client,
        client.stream("POST", "/v1/runs", json=body) as stream,
    ):
        run = stream.headers["location"].rpartition("/")[2]
    assert face.ended(run)["status"] == "DECIDED"
