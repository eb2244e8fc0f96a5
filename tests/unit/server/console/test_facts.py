"""The page of facts shows what holds of a subject and what held before."""

from __future__ import annotations

import html

import pytest

from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, HttpFace
from tests.unit.service.operations.test_facts import KNOWN
from tests.unit.service.operations.test_packs import signed

SUBJECT = "customer:cus_page"


def write(face: HttpFace, route: str, value: str) -> None:
    body = {"subject": SUBJECT, "predicate": "tier", "value": value, **KNOWN}
    done = face.send("POST", route, by=OPERATOR, json=signed(face, route, body))
    assert done.status_code in (200, 201), done.text


def test_a_subject_shows_what_holds_and_what_held(face: HttpFace) -> None:
    write(face, "/v1/facts", "silver")
    write(face, "/v1/facts/replace", "gold")
    page = html.unescape(face.page(f"/facts?subject={SUBJECT}", OPERATOR).text)
    now, before = page.index("What holds now"), page.index("What held before")
    assert now < page.index(">gold<") < before < page.index(">silver<")
    assert "/console/do/facts.replace?subject=customer%3Acus_page&predicate=tier" in page
    assert KNOWN["source"] in page
    assert SUBJECT not in face.page("/facts", OPERATOR).text


def test_another_tenant_knows_nothing_of_it(face: HttpFace) -> None:
    page = face.page(f"/facts?subject={SUBJECT}", OPERATOR, tenant=OTHER_TENANT)
    assert (page.status_code, ">gold<" in page.text, "Nothing is known" in page.text) == (200, False, True)


@pytest.mark.parametrize("subject", ["nothing", "a b", "<script>", "x" * 201])
def test_what_is_not_a_subject_is_said_so(face: HttpFace, subject: str) -> None:
    page = face.page("/facts", OPERATOR, params={"subject": subject})
    assert (page.status_code, "/subject" in html.unescape(page.text)) == (200, True)


@pytest.mark.parametrize("person", [REQUESTER, LEAD])
def test_who_reads_no_facts_has_no_page_of_them(face: HttpFace, person: str) -> None:
    assert face.page(f"/facts?subject={SUBJECT}", person).status_code == 403
