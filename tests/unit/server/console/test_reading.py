"""Who reads a page of the console, and what everybody else gets."""

from __future__ import annotations

import pytest

from tests.http_face import HttpFace

HOST = {"Host": "127.0.0.1:8765"}


def test_who_is_not_logged_in_is_sent_to_the_login_and_back(face: HttpFace) -> None:
    answer = face.anonymous("GET", "/console/runs?state=waiting", headers=HOST)
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/console/login?to=%2Fconsole%2Fruns%3Fstate%3Dwaiting",
    )


@pytest.mark.parametrize(
    "cookie", ["contextos-session=a.b.c", "contextos-session=", "contextos-session=x; contextos-session=y"]
)
def test_a_cookie_that_proves_nobody_is_no_login(face: HttpFace, cookie: str) -> None:
    assert face.anonymous("GET", "/console/inbox", headers={**HOST, "Cookie": cookie}).status_code == 303


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
        ("cross-site", "navigate", 200),
        ("cross-site", "no-cors", 403),
        ("cross-site", "cors", 403),
        ("same-site", "no-cors", 403),
    ],
)
def test_a_link_from_elsewhere_opens_a_page_and_nothing_else_does(
    face: HttpFace, site: str, mode: str, status: int
) -> None:
    answer = face.page("/inbox", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode})
    assert answer.status_code == status


def test_an_error_is_a_page_that_says_what_is_wrong(face: HttpFace) -> None:
    answer = face.page("/runs/run_nothing")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "there is nothing at this address that you may see" in answer.text
    wrong = face.page("/runs?status=maybe")
    assert (wrong.status_code, "/status" in wrong.text) == (422, True)


def test_no_cache_keeps_a_page(face: HttpFace) -> None:
    assert face.page("/inbox").headers["cache-control"] == "no-store"


def test_an_empty_field_of_a_form_is_not_a_part_of_the_link(face: HttpFace) -> None:
    answer = face.page("/runs?state=waiting&subject=&rule=&approver=")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/runs?state=waiting")
    assert face.page("/runs?state=").headers["location"] == "/console/runs"


def test_who_follows_a_list_after_the_session_ended_reads_the_page_again(face: HttpFace) -> None:
    answer = face.anonymous("GET", "/console/inbox", headers={**HOST, "HX-Request": "true"})
    assert (answer.status_code, answer.headers["hx-refresh"], "location" in answer.headers) == (401, "true", False)


def test_a_name_that_leads_here_by_chance_shows_nothing(face: HttpFace) -> None:
    assert face.page("/inbox", headers={"Host": "evil.example"}).status_code == 403


def test_a_logout_after_the_session_ended_leads_to_the_first_page(face: HttpFace) -> None:
    answer = face.anonymous("POST", "/console/logout", headers=HOST)
    assert answer.headers["location"] == "/console/login?to=%2Fconsole"
