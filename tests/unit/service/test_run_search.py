"""A search finds the runs whose record fits, and of those that it reads each that does not verify."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from contextos.service.run_search import EVERY_RUN, RunSearch
from contextos.service.runs import Run
from tests.http_face import LEAD, TENANT, HttpFace, http_face


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("search")) as made:
        yield made


@pytest.fixture(scope="module")
def run(face: HttpFace) -> Run:
    """A refund that a lead approved."""
    name = face.waiting_run()
    answer = face.signed_answer(name)
    assert face.send("POST", f"/v1/approvals/{name}/answer", by=LEAD, json=answer).status_code == 200
    assert face.ended(name)["ended"] is True
    found: Run = face.call(face.app.runs.get(TENANT, name))
    assert found.status == "DECIDED"
    return found


def criteria(run: Run) -> dict[str, Any]:
    assert run.record is not None
    return {
        "subject": "customer:cus_79",
        "decision": "support.refund.execute",
        "approver": LEAD,
        "rule": "R_HIGH_VALUE_REQUIRES_APPROVAL",
        "status": "DECIDED",
        "began_from_us": run.began_at_us,
        "began_before_us": run.began_at_us + 1,
    }


OTHERS: dict[str, Any] = {
    "subject": "customer:cus_0",
    "decision": "support.refund",
    "approver": "usr_771",
    "rule": "R_HIGH_VALUE",
    "status": "ESCALATED",
}


def test_a_run_fits_each_criterion_and_all_of_them_together(run: Run) -> None:
    fits = criteria(run)
    assert RunSearch(**fits).finds(run)
    assert EVERY_RUN.finds(run)
    assert all(RunSearch(**{name: value}).finds(run) for name, value in fits.items())
    assert run.record is not None
    assert RunSearch(decision=run.record.record_id).finds(run)


@pytest.mark.parametrize("name", OTHERS)
def test_one_criterion_that_does_not_fit_is_enough(run: Run, name: str) -> None:
    assert not RunSearch(**{**criteria(run), name: OTHERS[name]}).finds(run)


def test_the_time_is_from_and_not_up_to(run: Run) -> None:
    assert not RunSearch(began_from_us=run.began_at_us + 1).finds(run)
    assert not RunSearch(began_before_us=run.began_at_us).finds(run)


def test_a_run_without_a_record_fits_no_criterion_of_a_record(run: Run) -> None:
    erased = replace(run, record=None)
    assert not RunSearch(rule="R_HIGH_VALUE_REQUIRES_APPROVAL").finds(erased)
    assert RunSearch(status="DECIDED").finds(erased)


def test_a_run_that_does_not_verify_cannot_hide_from_a_search(run: Run) -> None:
    altered = replace(run, record=None, status=None, fault="entry 3 was altered")
    assert RunSearch(**OTHERS, began_from_us=run.began_at_us + 1).finds(altered)
