"""F50: no caller and no tenant takes the place of others: each route refuses too many requests, with a time to wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
import uvicorn

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.server import connections
from contextos.server.operate.work import WorkTime
from contextos.server.rates import MAX_LISTS_PER_TENANT, MAX_STREAMS, MAX_STREAMS_PER_TENANT, Places, RequestRates
from contextos.server.serving import listen
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face

OPEN = ("/v1/health", "/v1/ready")


class StandingClock:
    at_us = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.at_us


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("rates")) as made:
        yield made


@pytest.fixture
def clock(face: HttpFace) -> Iterator[StandingClock]:
    """A clock that stands, with two requests a minute for a caller and four for a tenant."""
    limits = AdmissionLimits(max_http_requests_per_minute_per_caller=2, max_http_requests_per_minute_per_tenant=4)
    before, clock = face.api.state.rates, StandingClock()
    face.api.state.rates = RequestRates(limits, clock)
    yield clock
    face.api.state.rates = before


def statuses(face: HttpFace, by: str, count: int, tenant: str | None = None) -> list[int]:
    who = {"by": by} if tenant is None else {"by": by, "tenant": tenant}
    return [face.send("GET", "/v1/runs", **who).status_code for _ in range(count)]


def test_a_caller_who_sends_too_much_is_refused_until_there_is_room_again(face: HttpFace, clock: StandingClock) -> None:
    assert statuses(face, REQUESTER, 3) == [200, 200, 429]
    refused = face.send("GET", "/v1/runs")
    assert refused.headers["content-type"] == "application/problem+json"
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("overloaded", "30")
    clock.at_us += 29_000_000
    assert statuses(face, REQUESTER, 1) == [429]
    clock.at_us += 1_000_000
    assert statuses(face, REQUESTER, 2) == [200, 429]
    assert face.send("HEAD", "/v1/runs").status_code == 429
    clock.at_us += 30_000_000
    assert [face.send(method, "/v1/runs").status_code for method in ("HEAD", "GET")] == [200, 429]


def test_other_callers_and_other_tenants_are_answered_meanwhile(face: HttpFace, clock: StandingClock) -> None:
    assert statuses(face, REQUESTER, 20)[-1] == 429
    assert statuses(face, LEAD, 2) == [200, 200]
    assert statuses(face, OPERATOR, 1) == [429], "the tenant has used up its own"
    assert statuses(face, REQUESTER, 2, OTHER_TENANT) == [200, 200]


def test_many_tokens_of_one_person_count_as_one_caller(face: HttpFace, clock: StandingClock) -> None:
    tokens = []
    for _ in range(4):
        face._tokens.clear()
        clock.at_us += 1
        tokens.append(face.token(REQUESTER))
    answers = [face.send("GET", "/v1/runs", token=token).status_code for token in tokens]
    assert answers == [200, 200, 429, 429]


def test_every_route_that_needs_a_token_counts(face: HttpFace, clock: StandingClock) -> None:
    assert statuses(face, REQUESTER, 3)[-1] == 429
    tried = 0
    for path, operations in face.api.openapi()["paths"].items():
        for method in operations:
            filled = path.replace("{ledger}", "effect").replace("{run}", "run_0").replace("{session}", "s")
            if path not in OPEN:
                tried += 1
                assert face.send(method.upper(), filled).status_code == 429, (method, path)
    assert tried >= 15


def test_a_token_that_does_not_count_uses_nothing_up(face: HttpFace, clock: StandingClock) -> None:
    for _ in range(20):
        assert face.send("GET", "/v1/runs", token=face.token(REQUESTER)[:-4] + "AAAA").status_code == 401
    assert statuses(face, REQUESTER, 2) == [200, 200]


def test_long_work_of_a_tenant_takes_no_place_of_another(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    go = threading.Event()

    async def held(_time: WorkTime) -> None:
        assert go.wait(60)

    holding = face.begin(face.api.state.work.do(TENANT, held))
    try:
        for path, by, body in (
            (f"/v1/runs/{run}/replay", REQUESTER, None),
            ("/v1/verifications", OPERATOR, {}),
            ("/v1/exports/statement", OPERATOR, {"runs": [run]}),
        ):
            refused = face.send("POST", path, by=by, **({} if body is None else {"json": body}))
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2"), path
        assert face.send("GET", f"/v1/runs/{run}").status_code == 200
        other = face.send("POST", "/v1/verifications", by=OPERATOR, tenant=OTHER_TENANT, json={})
        assert other.status_code == 200
    finally:
        go.set()
        holding.result(60)
    assert face.send("POST", f"/v1/runs/{run}/replay").status_code == 200


def test_lists_of_a_tenant_take_no_place_of_another(face: HttpFace) -> None:
    lists = face.api.state.lists
    with ExitStack() as taken:
        for _ in range(MAX_LISTS_PER_TENANT):
            taken.enter_context(lists.place(TENANT))
        assert statuses(face, REQUESTER, 1) == [429]
        assert face.send("GET", "/v1/approvals", by=LEAD).status_code == 429
        assert statuses(face, REQUESTER, 1, OTHER_TENANT) == [200]
    assert statuses(face, REQUESTER, 1) == [200]


def test_the_limits_are_those_of_the_settings(face: HttpFace) -> None:
    limits = face.app.settings.pressure
    assert face.api.state.rates._limits is limits
    assert limits.max_http_requests_per_minute_per_caller < limits.max_http_requests_per_minute_per_tenant


def test_streams_leave_connections_to_requests_and_to_other_tenants(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stream is one request of the quota, and stays open for ten minutes."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(face.api.state, "streams", Places("streams of events", 16, 8))
    run, bound = face.waiting_run(), listen("127.0.0.1:0")
    config = uvicorn.Config(face.api, http=connections.BoundedConnection, lifespan="off", access_log=False)
    server, port = uvicorn.Server(config), bound.getsockname()[1]
    served = face.begin(server.serve(sockets=[bound]))
    url = f"http://127.0.0.1:{port}/v1"
    mine, other = ({"Authorization": f"Bearer {face.token(REQUESTER, one)}"} for one in (TENANT, OTHER_TENANT))
    read: list[Iterator[bytes]] = []
    with ExitStack() as opened:
        try:
            for _ in range(8):
                stream = opened.enter_context(httpx.stream("GET", f"{url}/runs/{run}/events", headers=mine, timeout=60))
                assert stream.status_code == 200
                read.append(stream.iter_raw())
                next(read[-1])
            refused = httpx.get(f"{url}/runs/{run}/events", headers=mine)
            assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
            assert httpx.get(f"{url}/runs", headers=mine).status_code == 200
            assert httpx.get(f"{url}/runs", headers=other).status_code == 200
            assert httpx.get(f"{url}/ready").status_code == 200
        finally:
            opened.close()
            server.should_exit = True
            served.result(30)
    assert face.api.state.streams._taken_by_tenant.total() == 0


def test_a_server_has_more_connections_than_streams_and_more_streams_than_one_tenant() -> None:
    assert MAX_STREAMS_PER_TENANT < MAX_STREAMS < connections.MAX_CONNECTIONS
