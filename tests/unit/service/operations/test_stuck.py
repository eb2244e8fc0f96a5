"""An operator lists what is stuck in their tenant, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.documents.operations import BREAKERS, CircuitDocument
from contextos.contracts.documents.subscriptions import UNDELIVERED, UndeliveredEvent
from contextos.contracts.journal import Batch
from contextos.deployment.dead_letters import add
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace

LISTS = ("/v1/dead-letters", "/v1/dead-letters/notices", "/v1/breakers")


def dead_run(face: HttpFace) -> str:
    """A run that failed for good."""
    run = face.waiting_run()
    store = face.app.stores.tenant(TENANT)
    seen = face.call(store.length(run))
    assert face.call(add(store, run, ("unavailable", "`crm` does not answer"), 1_700_000_000_000_000, seen=seen))
    return run


def every(face: HttpFace, path: str, **params: Any) -> list[dict[str, Any]]:
    """All items of a list, read one a page."""
    items: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = face.send("GET", path, by=OPERATOR, params={"limit": 1, "cursor": cursor, **params}).json()
        items += page["items"]
        cursor = page["cursor"]
    return items


def test_runs_that_failed_for_good_are_listed_with_their_last_error(face: HttpFace) -> None:
    runs = {dead_run(face), dead_run(face)}
    found = [one for one in every(face, "/v1/dead-letters") if one["run_id"] in runs]
    assert [one["run_id"] for one in found] == sorted(runs)
    assert {(one["code"], one["detail"], one["failures"]) for one in found} == {
        ("unavailable", "`crm` does not answer", 1)
    }


def test_notices_that_nobody_took_are_listed(face: HttpFace) -> None:
    lost = UndeliveredEvent("run_1", 7, "question.asked", 300, 1_700_000_000_000_000, "500 from desk")
    for key in ("desk/0000000000000007", "desk/0000000000000008"):
        write = UNDELIVERED.write(key, 0, lost)
        face.call(face.app.stores.tenant(TENANT).commit(Batch("run_1", writes=(write,))))
    found = every(face, "/v1/dead-letters/notices")
    assert len(found) == 2
    assert found[0] == {
        "subscriber": "desk",
        "run_id": "run_1",
        "sequence": 7,
        "event": "question.asked",
        "failures": 300,
        "detail": "500 from desk",
        "at_us": 1_700_000_000_000_000,
    }


def test_breakers_that_opened_are_listed(face: HttpFace) -> None:
    body = CircuitDocument("adp_crm", "find", "open", 5, 1, 2, "worker_1")
    write = BREAKERS.write("adp_crm.find", 0, body)
    face.call(face.app.stores.tenant(TENANT).commit(Batch("run_1", writes=(write,))))
    [found] = every(face, "/v1/breakers")
    assert (found["capability_id"], found["state"], found["failures"]) == ("adp_crm.find", "open", 5)


@pytest.mark.parametrize("path", LISTS)
def test_another_tenant_sees_nothing_of_it_and_who_has_no_role_is_refused(face: HttpFace, path: str) -> None:
    dead_run(face)
    assert face.send("GET", path, by=OPERATOR, tenant=OTHER_TENANT).json() == {"items": [], "cursor": None}
    for by in (REQUESTER, LEAD):
        assert face.send("GET", path, by=by).json()["code"] == "not_allowed"


@pytest.mark.parametrize("path", ["/v1/dead-letters", "/v1/dead-letters/notices", "/v1/breakers"])
def test_a_cursor_of_no_list_is_refused(face: HttpFace, path: str) -> None:
    answer = face.send("GET", path, by=OPERATOR, params={"cursor": "run_made_up"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "unknown_cursor")
