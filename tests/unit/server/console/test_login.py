"""The login of a development workspace: a token of this workspace, sent by the page itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.http_face import LEAD, OTHER_TENANT, TENANT, HttpFace
from tests.oidc_provider import Browser, browser_face

HOST = "127.0.0.1:8765"
HERE = {"Host": HOST, "Origin": f"http://{HOST}"}


@pytest.fixture(autouse=True)
def _no_kept_cookie(face: HttpFace) -> Iterator[None]:
    yield
    face.client.cookies.clear()


def test_a_token_becomes_a_session_and_leads_back(face: HttpFace) -> None:
    page = face.anonymous("GET", "/console/login?to=/console/runs", headers={"Host": HOST})
    assert 'value="/console/runs"' in page.text
    sent = {"token": f" {face.token(LEAD)}\n", "to": "/console/runs"}
    answer = face.anonymous("POST", "/console/login", headers=HERE, data=sent)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/runs")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    seen = face.anonymous("GET", "/console/inbox", headers={"Host": HOST, "Cookie": cookie.partition(";")[0]})
    assert (seen.status_code, LEAD in seen.text) == (200, True)


@pytest.mark.parametrize("token", ["", "a.b.c", "x" * 5_000])
def test_another_token_is_refused_on_the_page(face: HttpFace, token: str) -> None:
    answer = face.anonymous("POST", "/console/login", headers=HERE, data={"token": token, "to": "/console"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert "does not count here" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": HOST},
        {"Host": HOST, "Origin": "null"},
        {"Host": HOST, "Origin": "https://evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
def test_another_page_logs_nobody_in(face: HttpFace, headers: dict[str, str]) -> None:
    answer = face.anonymous("POST", "/console/login", headers=headers, data={"token": face.token(LEAD)})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_login_leads_to_no_other_host(face: HttpFace, to: str) -> None:
    answer = face.anonymous("POST", "/console/login", headers=HERE, data={"token": face.token(LEAD), "to": to})
    assert answer.headers["location"] == "/console"
    assert 'name="to" value="/console"' in face.anonymous("GET", "/console/login", headers=HERE, params={"to": to}).text


def test_what_is_not_a_form_is_refused(face: HttpFace) -> None:
    assert face.anonymous("POST", "/console/login", headers=HERE, json={"token": "x"}).status_code == 415
    assert face.anonymous("POST", "/console/login", headers=HERE, data={"token": "x" * 9_000}).status_code == 413


def test_a_logout_needs_the_token_of_the_page_and_forgets_the_cookie(face: HttpFace) -> None:
    own = {"Sec-Fetch-Site": "same-origin", "Cookie": face.new_cookie()}
    csrf = re.search(r'name="csrf" value="([^"]+)"', face.page("/inbox", headers=own).text)
    assert csrf is not None
    assert face.page("/logout", method="POST", headers=own, data={"csrf": "x"}).status_code == 403
    answer = face.page("/logout", method="POST", headers=own, data={"csrf": csrf[1]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/login")
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_who_is_of_several_tenants_names_one_and_is_logged_in_there(tmp_path: Path) -> None:
    with browser_face(tmp_path) as (face, provider):
        provider.tenants = [TENANT, OTHER_TENANT]
        browser = Browser(face, provider)
        login = browser.send("GET", "/console/login?to=/console/runs").headers["location"]
        assert login == "/login?to=%2Fconsole%2Fruns"
        back = browser.log_in(to="/console/runs")
        asked = urlsplit(back.headers["location"])
        assert (asked.path, parse_qs(asked.query)["to"]) == ("/console/login", ["/console/runs"])
        page = browser.send("GET", f"{asked.path}?{asked.query}")
        assert 'name="tenant"' in page.text
        assert 'value="/console/runs"' in page.text
        named = browser.send("GET", f"/console/login?to=/console/runs&tenant={OTHER_TENANT}").headers["location"]
        assert named == f"/login?to=%2Fconsole%2Fruns&tenant={OTHER_TENANT}"
        assert browser.log_in(to="/console/runs", tenant=OTHER_TENANT).status_code == 303
        assert browser.send("GET", "/v1/caller").json()["tenant_id"] == OTHER_TENANT
