"""The pages that compare runs, derive them again and show their entries give no more than the runs themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.attacks.test_h14_the_console import HOSTILE, is_harmless
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, HttpFace, http_face

PATHS = ("/runs/{run}/compare?other={other}", "/runs/{run}/replay", "/runs/{run}/entries", "/runs/{run}/entries?seq=1")


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("closer")) as made:
        yield made


@pytest.fixture(scope="module")
def plain(face: HttpFace) -> str:
    return str(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_text_on_each_of_them(face: HttpFace, plain: str, hostile: str) -> None:
    sent = face.request()
    sent["input"]["message"] = hostile
    sent["input"]["context"]["note"] = f"kg:order:ord_881#snapshot_kg_1{hostile}"
    run = face.send("POST", "/v1/runs", json=sent).json()["run_id"]
    for path in PATHS:
        page = face.page(path.format(run=run, other=plain), OPERATOR)
        assert (page.status_code, is_harmless(page.text)) == (200, True), path
        assert not re.search("[\u200b\u202e\u2066\ufeff\U000e0041]", page.text), path
    for params in ({"other": hostile}, {"other": hostile[:128]}):
        page = face.page(f"/runs/{plain}/compare", OPERATOR, params=params)
        assert (page.status_code in (404, 422), is_harmless(page.text)) == (True, True)
    page = face.page(f"/runs/{plain}/entries", OPERATOR, params={"call": hostile})
    assert (page.status_code in (200, 422), is_harmless(page.text)) == (True, True)


def test_a_run_that_somebody_may_not_see_is_not_there(face: HttpFace, plain: str) -> None:
    own = face.waiting_run()
    for person, tenant in ((LEAD, "tenant_acme_prod"), (OPERATOR, OTHER_TENANT), ("usr_772", "tenant_acme_prod")):
        for path in PATHS:
            page = face.page(path.format(run=plain, other=own), person, tenant=tenant)
            assert (page.status_code, "ord_881" in page.text) == (404, False), path
    for other in ("run_nothing", "a b", "../x"):
        assert face.page(f"/runs/{plain}/compare", params={"other": other}).status_code == 404
    for query in ("seq=99999", "seq=0", "seq=x", "cursor=1.x", "call=" + "a" * 201):
        assert face.page(f"/runs/{plain}/entries?{query}").status_code in (404, 422), query


def test_a_link_is_shown_to_the_roles_that_open_it(face: HttpFace, plain: str) -> None:
    for person, is_shown in ((REQUESTER, False), (OPERATOR, True)):
        text = face.page(f"/runs/{plain}", person).text
        assert ("/console/facts?subject=" in text) is is_shown
        for address in set(re.findall(r'href="(/(?:console/(?:ask|runs/[a-z0-9_]+/)|v1/)[^"]*)"', text)):
            if address.startswith("/console"):
                page = face.page(address.removeprefix("/console").replace("&amp;", "&"), person)
                assert page.status_code == 200, address


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_they_change_nothing(face: HttpFace, plain: str, method: str) -> None:
    for path in PATHS:
        assert face.page(path.format(run=plain, other=plain), method=method).status_code == 405


def test_a_session_reads_the_record_that_the_page_offers(face: HttpFace, plain: str) -> None:
    session = {"Host": "127.0.0.1:8765", "Cookie": face.cookie(REQUESTER)}
    path = f"/v1/runs/{plain}/record"
    assert f'href="{path}"' in face.page(f"/runs/{plain}").text
    for site, status in (("same-origin", 200), ("cross-site", 403)):
        answer = face.anonymous("GET", path, headers={**session, "Sec-Fetch-Site": site})
        assert answer.status_code == status
