"""Each read operation of the table has a page: its fields, its answer, and the rules of who may ask it."""

from __future__ import annotations

import html

import pytest

from contextos.server.console.tables import MORE, SECTIONS, pages_of, section_of
from contextos.service.operations.operation import OF_RUN
from contextos.service.operations.table import OPERATION_TABLE
from tests.http_face import OPERATOR, REQUESTER, HttpFace

LISTS = [one for one in OPERATION_TABLE if one.effect == "read" and one.about is None]


@pytest.mark.parametrize("operation", LISTS, ids=lambda one: one.name)
def test_an_operation_has_a_page_in_its_section(face: HttpFace, operation: object) -> None:
    name = operation.name  # type: ignore[attr-defined]
    section = section_of(operation)  # type: ignore[arg-type]
    allowed = not {"operator"}.isdisjoint(operation.roles)  # type: ignore[attr-defined]
    assert (f"/console/ask/{name}" in face.page(f"/sections/{section}", OPERATOR).text) == allowed
    assert face.page(f"/ask/{name}", OPERATOR).status_code == (200 if allowed else 403)
    assert face.page(f"/ask/{name}", REQUESTER).status_code == 403


def test_every_group_has_one_section() -> None:
    groups = [group for groups in SECTIONS.values() for group in groups]
    assert len(groups) == len(set(groups))
    assert {operation.group for operation in OPERATION_TABLE} - set(groups) == {"runs"}, (
        "what is about a run is on its page"
    )
    assert pages_of(MORE, frozenset({"operator", "auditor"})) == []


def test_an_answer_is_what_the_api_answers(face: HttpFace) -> None:
    page = html.unescape(face.page("/ask/facts.list?subject=customer:cus_77", OPERATOR).text)
    listed = face.send("GET", "/v1/facts", by=OPERATOR, params={"subject": "customer:cus_77"}).json()["items"]
    assert listed
    assert all(fact["fact_id"] in page and fact["source"] in page for fact in listed)
    assert page.count("<tr>") == len(listed) + 1
    first = face.page("/ask/facts.list?subject=customer:cus_77&limit=1", OPERATOR).text
    assert "cursor=" in first


def test_an_operation_on_a_run_is_asked_about_a_run_that_the_reader_sees(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    page = face.page(f"/ask/runs.replay?run={run}").text
    assert (">true<" in page, "DECIDED" in page) == (True, True)
    assert face.page("/ask/runs.replay?run=run_nothing").status_code == 404
    assert face.page("/ask/runs.replay").status_code == 404


@pytest.mark.parametrize(
    "name",
    ["runs.cancel", "facts.set", "exports.make", "models.check", "nothing", *(f"{one.name}x" for one in LISTS[:1])],
)
def test_what_changes_something_has_no_page(face: HttpFace, name: str) -> None:
    assert face.page(f"/ask/{name}", OPERATOR).status_code == 404


@pytest.mark.parametrize("query", ["limit=many", "limit=0", "limit=1e9", "nothing=1", "cursor=x"])
def test_a_field_that_does_not_fit_is_named(face: HttpFace, query: str) -> None:
    answer = face.page(f"/ask/facts.list?subject=customer:cus_77&{query}", OPERATOR)
    assert answer.status_code == 200
    assert f"/{query.partition('=')[0]}" in html.unescape(answer.text)


def test_what_is_needed_is_asked_for_first(face: HttpFace) -> None:
    assert "Fill in what is needed" in face.page("/ask/facts.list", OPERATOR).text
    assert OF_RUN.name == "run"
    assert face.page("/sections/nothing", OPERATOR).status_code == 404
