"""Logins with a browser, from the first click to logout. The attacks are in `test_f51_browser_sessions.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qsl

import pytest

from tests.http_face import LEAD, REQUESTER, TENANT, HttpFace
from tests.oidc_provider import ORIGIN, Browser, Provider, browser_face

SESSION, LOGIN = "__Host-contextos-session", "__Host-contextos-login"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpFace, Provider]]:
    with browser_face(tmp_path_factory.mktemp("browsers")) as made:
        yield made


@pytest.fixture
def browser(served: tuple[HttpFace, Provider]) -> Browser:
    return Browser(*served)


def test_a_person_logs_in_sends_a_request_and_logs_out(browser: Browser) -> None:
    answer = browser.log_in(to="/runs?state=waiting#top")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{ORIGIN}/runs?state=waiting#top")
    caller = browser.send("GET", "/v1/caller").json()
    assert (caller["kind"], caller["tenant_id"], caller["subject"]) == ("user", TENANT, REQUESTER)
    body = browser.face.request(user={"delegation": {"auth_type": "oauth2", "scopes": ["payments.refund"]}})
    body["user"]["delegation"]["scopes"].append("orders.read")
    sent = browser.send("POST", "/v1/runs", headers=browser.csrf(), json=body)
    assert (sent.status_code, sent.json()["record"]["status"]) == (201, "DECIDED"), sent.text
    assert [one["user_id"] for one in browser.send("GET", "/v1/runs").json()["items"]] == [REQUESTER]
    assert browser.send("POST", "/logout", headers=browser.csrf()).status_code == 204
    assert browser.cookies == {}
    assert browser.send("GET", "/v1/caller").status_code == 401


def test_cookies_are_for_this_host_alone_and_no_script_reads_them(browser: Browser) -> None:
    browser.log_in()
    for name in (SESSION, LOGIN):
        said = next(one for one in browser.set_cookies if one.startswith(f"{name}=") and "Max-Age=0" not in one)
        assert {part.strip() for part in said.split(";")[1:]} >= {"HttpOnly", "Secure", "Path=/", "SameSite=lax"}
        assert "domain" not in said.lower()


def test_a_login_asks_for_a_code_with_everything_that_binds_it(browser: Browser) -> None:
    asked = dict(parse_qsl(browser.begin()))
    assert asked["code_challenge_method"] == "S256"
    assert len({asked[name] for name in ("state", "nonce", "code_challenge")}) == 3
    assert browser.cookies[LOGIN].partition(".")[0] not in json.dumps(asked)
    again = dict(parse_qsl(browser.begin()))
    assert all(again[name] != asked[name] for name in ("state", "nonce", "code_challenge"))


def test_a_lead_who_logged_in_reads_the_question_and_still_has_to_sign(browser: Browser) -> None:
    """A session is no proof of an approval, as a bearer token is none."""
    face = browser.face
    requester = Browser(face, browser.provider)
    requester.log_in()
    body = face.request("next")
    body["user"]["delegation"].pop("token_ref")
    sent = requester.send("POST", "/v1/runs", headers=requester.csrf(), json=body)
    run = sent.json()["run_id"]
    browser.log_in(LEAD)
    assert browser.send("GET", "/v1/caller").json()["roles"] == ["finance_lead"]
    path = f"/v1/approvals/{run}"
    assert browser.send("GET", path).status_code == 200
    for proof in ({}, {"verdict": "approved"}, {"verdict": "approved", "tokens": [browser.cookies[SESSION]]}):
        answer = browser.send("POST", f"{path}/answer", headers=browser.csrf(), json=proof)
        assert answer.status_code in (403, 422)
    said = browser.send("POST", f"{path}/statement", headers=browser.csrf(), json={"verdict": "approved"}).json()
    [signed] = said["statements"][0]["signing_inputs"].values()
    given = {"verdict": "approved", "tokens": [face.signature(signed, LEAD)]}
    assert browser.send("POST", f"{path}/answer", headers=browser.csrf(), json=given).status_code == 200
    assert requester.send("GET", path).status_code == 404
