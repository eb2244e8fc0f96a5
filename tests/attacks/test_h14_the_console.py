"""The console adds no power: what a page shows is text, and nobody acts or reads through it who may not.

40 hostile strings go through the fields of requests and of answers. Sessions of others, other pages and other tenants
are refused at each address.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.http_face import HOST, LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face

HOSTILE = (
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</textarea><img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><style>*{background:url(//evil.example)}</style></svg>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<a href=javascript:alert(1)>x</a>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<form action=//evil.example><button>go",
    "<div hx-get=//evil.example hx-trigger=load></div>",
    "<div data-hx-on:load='alert(1)'></div>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "`-alert(1)-`",
    "{{ 7 * 7 }}",
    "{% include 'base.html' %}",
    "{{ reader.csrf_token }}",
    "${7*7}",
    "<!--",
    "-->",
    "]]>",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "pay\u200bment",
    "\ufeffpay",
    "a\u0300" * 40,
    "\U000e0041\U000e0042",
    "A" * 3_000,
    "é" * 500,
    "a\nb\tc",
    '=HYPERLINK("//evil.example")',
    "+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\\u202e",
    "%3Cscript%3E",
)


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("console")) as made:
        yield made


class Markup(HTMLParser):
    """The tags of a page, with what could run, and its addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in ("iframe", "object", "embed", "base", "style", "math") or (tag == "script" and "src" not in named):
            self.runs.append(tag)
        self.runs += [name for name in named if name.startswith("on") or name == "style" or "hx-on" in name]
        self.addresses += [
            named[name] or "" for name in ("src", "href", "action", "hx-get", "data-hx-get") if name in named
        ]


def markup(text: str) -> Markup:
    read = Markup()
    read.feed(text)
    return read


def is_harmless(text: str) -> bool:
    read = markup(text)
    return read.runs == [] and all(one.startswith(("/console", "/v1/runs/", "#")) for one in read.addresses)


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_text_on_every_page(face: HttpFace, hostile: str) -> None:
    sent = face.request()
    sent["input"]["message"] = hostile
    sent["input"]["context"]["note"] = hostile
    run = face.send("POST", "/v1/runs", json=sent).json()["run_id"]
    waits = face.waiting_run()
    # A reason with hidden characters, or one that is too long, is refused before anybody signs it.
    draft = {"verdict": "denied", "reason": hostile}
    is_refused = face.send("POST", f"/v1/approvals/{waits}/statement", by=LEAD, json=draft).status_code == 422
    denial = {"verdict": "denied", "reason": "no" if is_refused else hostile}
    [stated] = face.send("POST", f"/v1/approvals/{waits}/statement", by=LEAD, json=denial).json()["statements"]
    [signing] = stated["signing_inputs"].values()
    signed = {**denial, "tokens": [face.signature(signing, LEAD)]}
    assert face.send("POST", f"/v1/approvals/{waits}/answer", by=LEAD, json=signed).status_code == 200
    face.ended(waits)
    for path in (f"/runs/{run}", f"/runs/{waits}", "/runs", f"/ask/runs.context?run={run}"):
        page = face.page(path, OPERATOR)
        assert page.status_code == 200, path
        assert is_harmless(page.text), path
        assert not re.search("[\u200b\u202e\u2066\ufeff\U000e0041]", page.text), path
    for name in ("subject", "rule", "approver"):
        if len(hostile) <= 512:
            page = face.page("/runs", OPERATOR, params={name: hostile})
            assert is_harmless(page.text)
            assert page.status_code == 200
    assert is_harmless(face.page("/ask/facts.list", OPERATOR, params={"subject": hostile}).text)
    assert is_harmless(face.page("/ask/facts.list", OPERATOR, params={hostile: "1"}).text)
    assert is_harmless(face.anonymous("GET", "/console/login", params={"to": hostile[:900]}).text)


def test_hidden_characters_are_written_out(face: HttpFace) -> None:
    sent = face.request()
    sent["input"]["message"] = "pay\u202e0001"
    run = face.send("POST", "/v1/runs", json=sent).json()["run_id"]
    assert "pay\\u202e0001" in html.unescape(face.page(f"/runs/{run}").text)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_no_page_of_the_console_changes_anything(face: HttpFace, method: str) -> None:
    run = face.waiting_run()
    for path in ("", "/inbox", f"/inbox/{run}", "/runs", f"/runs/{run}", "/sections/govern", "/ask/facts.set"):
        assert face.page(path, LEAD, method=method).status_code == 405


def test_a_person_of_another_tenant_reads_nothing_of_this_one(face: HttpFace) -> None:
    run = face.waiting_run()
    for person in (LEAD, OPERATOR, REQUESTER):
        for path in ("/inbox", "/runs", f"/inbox/{run}", f"/runs/{run}", f"/ask/runs.replay?run={run}"):
            page = face.page(path, person, tenant=OTHER_TENANT)
            assert (run in page.text.replace(path, ""), TENANT in page.text) == (False, False)


def test_an_answer_without_a_signature_counts_nowhere(face: HttpFace) -> None:
    run = face.waiting_run()
    csrf = re.search(r'data-csrf="([^"]+)"', face.page("/inbox", LEAD).text)
    assert csrf is not None
    headers = {
        "Host": "127.0.0.1:8765",
        "Cookie": face.cookie(LEAD),
        "Sec-Fetch-Site": "same-origin",
        "X-CSRF-Token": csrf[1],
    }
    for body in ({"verdict": "approved"}, {"verdict": "approved", "tokens": ["a.b.c"]}):
        answer = face.anonymous("POST", f"/v1/approvals/{run}/answer", headers=headers, json=body)
        assert answer.status_code in (403, 422)
    without = {name: value for name, value in headers.items() if name != "X-CSRF-Token"}
    refused = face.anonymous("POST", f"/v1/approvals/{run}/statement", headers=without, json={"verdict": "approved"})
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf_token")
    assert face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["waits_for"] == "approval"


def test_a_cookie_is_worth_nothing_as_a_token_and_a_token_nothing_as_a_cookie(face: HttpFace) -> None:
    cookie, token = face.cookie(LEAD), face.token(LEAD)
    assert token not in cookie
    assert face.send("GET", "/v1/caller", token=cookie.partition("=")[2]).status_code == 401
    planted = {"Host": HOST, "Cookie": f"contextos-session={token}"}
    assert face.anonymous("GET", "/v1/caller", headers=planted).status_code == 401
    assert face.anonymous("GET", "/console/inbox", headers=planted).headers["location"].startswith("/console/login")


def test_a_cookie_counts_nowhere_after_logout_and_the_token_still_does(face: HttpFace) -> None:
    cookie, other = face.new_cookie(LEAD), face.new_cookie(LEAD)
    page = face.page("/inbox", headers={"Cookie": cookie})
    [csrf] = set(re.findall(r'name="csrf" value="([^"]+)"', page.text))
    answer = face.page("/logout", method="POST", headers={"Cookie": cookie}, data={"csrf": csrf})
    assert answer.status_code == 303
    for path in ("/console/inbox", "/console/runs", "/v1/caller"):
        replayed = face.anonymous("GET", path, headers={"Host": HOST, "Cookie": cookie})
        assert replayed.status_code in (303, 401), path
    assert face.page("/inbox", headers={"Cookie": other}).status_code == 200, "another browser stays logged in"
    assert face.send("GET", "/v1/caller", by=LEAD).status_code == 200


def test_a_login_ends_the_session_that_this_browser_had(face: HttpFace) -> None:
    before = face.new_cookie(LEAD)
    headers = {"Host": HOST, "Origin": f"http://{HOST}", "Cookie": before}
    again = face.anonymous("POST", "/console/login", headers=headers, data={"token": face.token(OPERATOR)})
    face.client.cookies.clear()
    assert again.status_code == 303
    assert face.page("/inbox", headers={"Cookie": before}).status_code == 303


def test_a_cookie_of_another_workspace_is_nobody(face: HttpFace, tmp_path: Path) -> None:
    with http_face(tmp_path) as other:
        headers = {"Host": HOST, "Cookie": other.cookie(LEAD)}
        assert other.anonymous("GET", "/console/inbox", headers=headers).status_code == 200
        assert face.anonymous("GET", "/console/inbox", headers=headers).status_code == 303
        assert face.anonymous("GET", "/v1/caller", headers=headers).status_code == 401


@pytest.mark.parametrize("origin", ["http://127.0.0.1:3000", "http://localhost:8765", "https://127.0.0.1:8765", "null"])
def test_a_page_of_another_port_or_name_logs_nobody_in_or_out_and_reads_nothing(face: HttpFace, origin: str) -> None:
    """A login that another page makes would put a person into a session of an attacker."""
    headers = {"Host": HOST, "Origin": origin, "Sec-Fetch-Site": "same-site"}
    answer = face.anonymous("POST", "/console/login", headers=headers, data={"token": face.token(LEAD)})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    cookie = {**headers, "Cookie": face.cookie(LEAD)}
    assert face.anonymous("POST", "/console/logout", headers=cookie, data={"csrf": "x"}).status_code == 403
    assert face.anonymous("GET", "/console/inbox", headers=cookie).status_code == 403
    assert face.anonymous("GET", "/v1/runs", headers=cookie).status_code == 403


def test_a_page_is_shown_in_no_frame_and_kept_in_no_cache(face: HttpFace) -> None:
    for path in ("/inbox", "/runs", "/sections/govern", "/runs/run_nothing"):
        headers = face.page(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "script-src 'self'" in headers["content-security-policy"]
        assert (headers["cache-control"], headers["cross-origin-opener-policy"]) == ("no-store", "same-origin")
        assert len(headers.get_list("content-security-policy")) == 1


def test_other_answers_keep_their_stricter_headers(face: HttpFace) -> None:
    headers = face.send("GET", "/v1/caller").headers
    assert headers["content-security-policy"].startswith("default-src 'none'; base-uri")
    assert "script-src" not in headers["content-security-policy"]
