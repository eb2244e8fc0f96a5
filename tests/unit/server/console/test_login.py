"""The login of a development workspace: a token of this workspace, sent by the page itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.http_face import LEAD, HttpFace

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
    csrf = re.search(r'name="csrf" value="([^"]+)"', face.page("/inbox").text)
    assert csrf is not None
    same = {"Sec-Fetch-Site": "same-origin"}
    assert face.page("/logout", method="POST", headers=same, data={"csrf": "x"}).status_code == 403
    answer = face.page("/logout", method="POST", headers=same, data={"csrf": csrf[1]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/login")
    assert "Max-Age=0" in answer.headers["set-cookie"]
