"""Cookies: which one a request has, how one is set, and from which page a request with one counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request, Response

from contextos.server.cookies import SESSION_COOKIE, check_same_origin, cookie_of, set_cookie
from contextos.server.problems import HttpProblem
from contextos.workspace.logins.sessions import csrf_token_of

TLS: Any = SimpleNamespace(is_secure=True, origin=lambda _: "https://a.example")
PLAIN: Any = SimpleNamespace(is_secure=False, origin=lambda _: "http://127.0.0.1:8765")
NOWHERE: Any = SimpleNamespace(is_secure=False, origin=lambda _: "")
COOKIE = f"dA.{'0' * 64}.{'A' * 43}"


def request(method: str = "GET", *headers: tuple[str, str]) -> Request:
    listed = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "method": method, "headers": listed, "path": "/", "query_string": b""})


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ([], None),
        (["other=1"], None),
        ([f"{SESSION_COOKIE}=a"], "a"),
        ([f"other=1;{SESSION_COOKIE}=a=b; third"], "a=b"),
        ([f"{SESSION_COOKIE}="], ""),
        ([f"{SESSION_COOKIE}=a; {SESSION_COOKIE}=b"], ""),
        ([f"{SESSION_COOKIE}=a", f"{SESSION_COOKIE}=b"], ""),
        (["contextos-session=a"], None),
        ([f"{SESSION_COOKIE.lower()}=a"], None),
    ],
)
def test_a_cookie_is_the_only_one_of_its_exact_name(sent: list[str], found: str | None) -> None:
    assert cookie_of(request("GET", *(("Cookie", one) for one in sent)), TLS, SESSION_COOKIE) == found


def test_without_tls_the_name_promises_nothing() -> None:
    assert cookie_of(request("GET", ("Cookie", "contextos-session=a")), PLAIN, SESSION_COOKIE) == "a"
    assert cookie_of(request("GET", ("Cookie", f"{SESSION_COOKIE}=a")), PLAIN, SESSION_COOKIE) is None


def test_a_cookie_is_set_and_forgotten() -> None:
    answer = Response()
    set_cookie(answer, TLS, SESSION_COOKIE, "a.b", 60)
    set_cookie(answer, PLAIN, SESSION_COOKIE, "", 60)
    assert answer.headers.getlist("set-cookie") == [
        f"{SESSION_COOKIE}=a.b; HttpOnly; Max-Age=60; Path=/; SameSite=lax; Secure",
        'contextos-session=""; HttpOnly; Max-Age=0; Path=/; SameSite=lax',
    ]


OURS, SITE = ("Origin", "https://a.example"), ("Sec-Fetch-Site", "same-origin")
TOKEN = ("X-CSRF-Token", csrf_token_of(COOKIE))


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", []),
        ("GET", [SITE]),
        ("GET", [OURS]),
        ("HEAD", [("Sec-Fetch-Site", "none")]),
        ("POST", [OURS, TOKEN]),
        ("POST", [SITE, TOKEN]),
        ("DELETE", [SITE, OURS, TOKEN]),
    ],
)
def test_a_page_of_this_service_is_answered(method: str, headers: list[tuple[str, str]]) -> None:
    check_same_origin(request(method, *headers), TLS, COOKIE)


@pytest.mark.parametrize(
    ("method", "headers", "code"),
    [
        ("GET", [("Sec-Fetch-Site", "cross-site")], "cross_site"),
        ("GET", [SITE, SITE], "cross_site"),
        ("GET", [("Origin", "null")], "cross_site"),
        ("POST", [TOKEN], "cross_site"),
        ("POST", [("Sec-Fetch-Site", "none"), TOKEN], "cross_site"),
        ("POST", [OURS, ("Sec-Fetch-Site", "same-site"), TOKEN], "cross_site"),
        ("POST", [SITE, ("Origin", "https://b.example"), TOKEN], "cross_site"),
        ("POST", [OURS, OURS, TOKEN], "cross_site"),
        ("POST", [OURS], "csrf_token"),
        ("PATCH", [OURS, ("X-CSRF-Token", "é")], "csrf_token"),
        ("OPTIONS", [OURS, TOKEN, TOKEN], "csrf_token"),
    ],
)
def test_no_other_page_is(method: str, headers: list[tuple[str, str]], code: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        check_same_origin(request(method, *headers), TLS, COOKIE)
    assert (refused.value.status_code, refused.value.code) == (403, code)


def test_a_name_that_leads_here_by_chance_has_no_page_of_ours() -> None:
    for method, headers in (("GET", []), ("GET", [SITE]), ("POST", [OURS, TOKEN])):
        with pytest.raises(HttpProblem, match="only from a page of this service"):
            check_same_origin(request(method, *headers), NOWHERE, COOKIE)
