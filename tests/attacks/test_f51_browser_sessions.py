"""F51: a browser's session is that of the person who logged in, in this browser, until logout; no other page uses it.

The provider is a real server with the authorization code flow (`tests.oidc_provider`), which a test makes misbehave.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
import pytest

from contextos.contracts.documents.identities import BROWSER_SESSIONS, SealedIdentity
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, Batch
from contextos.server.routes import events
from contextos.trust.seal import KeyRing, decode_base64, seal
from contextos.workspace.logins.sessions import MAX_SESSIONS, SESSIONS_TYPE
from tests.attacks.test_f45_http_tenants import routes_with_a_name
from tests.http_face import LEAD, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face, served_url
from tests.issuer import NOW_S, mac_with, segment, token
from tests.oidc_provider import CLIENT, ORIGIN, SECRET, Browser, Provider, browser_face

SESSION, LOGIN = "__Host-contextos-session", "__Host-contextos-login"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpFace, Provider]]:
    with browser_face(tmp_path_factory.mktemp("browsers")) as made:
        yield made


@pytest.fixture
def face(served: tuple[HttpFace, Provider]) -> HttpFace:
    return served[0]


@pytest.fixture
def provider(served: tuple[HttpFace, Provider]) -> Iterator[Provider]:
    """The provider as it should be, and again after the test."""
    made = served[1]
    kept = replace(made)
    yield made
    for name in ("person", "tenants", "life_s", "id_claims", "access_claims", "answer", "response", "issues"):
        setattr(made, name, getattr(kept, name))
    made.checks_pkce, made.instead = kept.checks_pkce, kept.instead
    made.id_claims, made.access_claims, made.answer = {}, {}, {}


@pytest.fixture
def browser(face: HttpFace, provider: Provider) -> Browser:
    return Browser(face, provider)


@pytest.fixture
def logged_in(browser: Browser) -> Browser:
    assert browser.log_in().status_code == 303
    return browser


def status_and_code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["code"])


def is_nobody(browser: Browser) -> bool:
    return browser.send("GET", "/v1/caller").status_code == 401


# Requests that another page makes the browser send.

OTHER_PAGES: dict[str, dict[str, Any]] = {
    "a form of another site": {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    "a page of another host of the domain": {"Sec-Fetch-Site": "same-site", "Origin": "https://www.acme.example"},
    "another port": {"Sec-Fetch-Site": "same-site", "Origin": f"{ORIGIN}:8443"},
    "without TLS": {"Sec-Fetch-Site": "cross-site", "Origin": ORIGIN.replace("https", "http")},
    "a longer name": {"Sec-Fetch-Site": None, "Origin": f"{ORIGIN}.evil.example"},
    "a sandboxed page": {"Sec-Fetch-Site": None, "Origin": "null"},
    "an old browser that names no page": {"Sec-Fetch-Site": None, "Origin": None},
    "headers that contradict each other": {"Sec-Fetch-Site": "cross-site"},
    "headers that contradict the other way": {"Origin": "https://evil.example"},
    "a bookmark": {"Sec-Fetch-Site": "none", "Origin": None},
}


@pytest.mark.parametrize("headers", OTHER_PAGES.values(), ids=OTHER_PAGES)
def test_no_other_page_changes_anything_even_with_the_token(logged_in: Browser, headers: dict[str, Any]) -> None:
    csrf = logged_in.csrf()
    for path in ("/v1/runs", "/logout"):
        answer = logged_in.send("POST", path, headers={**csrf, **headers}, json=logged_in.face.request())
        assert status_and_code(answer) == (403, "cross_site")
        assert "access-control-allow-origin" not in answer.headers
    assert not is_nobody(logged_in)


def test_every_route_that_changes_something_needs_the_token_of_the_session(
    logged_in: Browser, face: HttpFace, provider: Provider
) -> None:
    another = Browser(face, provider)
    another.log_in()
    tokens: list[dict[str, Any]] = [{}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "A" * 43}, another.csrf()]
    tokens.append({"X-CSRF-Token": ",".join([logged_in.csrf()["X-CSRF-Token"]] * 2)})
    paths = ["/logout"]
    for path, operations in face.api.openapi()["paths"].items():
        paths += [path for method in operations if method != "get"]
        assert set(operations) <= {"get", "post", "put", "patch", "delete"}
    assert len(paths) >= 8
    for path in paths:
        method = next((one for one in face.api.openapi()["paths"].get(path, {}) if one != "get"), "post")
        for csrf in tokens:
            answer = logged_in.send(method.upper(), path, headers=csrf, json={})
            assert status_and_code(answer) == (403, "csrf_token"), (path, csrf)


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site", "Origin": None}, {"Sec-Fetch-Site": "same-site", "Origin": None}]
)
def test_no_other_page_reads_anything(logged_in: Browser, headers: dict[str, Any]) -> None:
    """Also where it cannot see the answer: how long it took, or how large it is, would tell."""
    for path in ("/v1/caller", "/v1/runs", "/v1/approvals"):
        assert status_and_code(logged_in.send("GET", path, headers=headers)) == (403, "cross_site")


def test_a_token_and_a_cookie_are_two_identities(logged_in: Browser, face: HttpFace, provider: Provider) -> None:
    provider.person = LEAD
    Browser(face, provider).log_in(LEAD)
    access = provider.issued[-1]["access_token"]
    assert face.send("GET", "/v1/caller", token=access).json()["subject"] == LEAD
    for sent in (f"Bearer {access}", "Bearer wrong", ""):
        answer = logged_in.send("GET", "/v1/caller", headers={"Authorization": sent})
        assert status_and_code(answer) == (400, "two_credentials")


def test_a_bearer_token_needs_no_page_and_has_no_session(face: HttpFace, provider: Provider) -> None:
    Browser(face, provider).log_in()
    access = provider.issued[-1]["access_token"]
    caller = face.send("GET", "/v1/caller", token=access, headers={"Sec-Fetch-Site": "cross-site"}).json()
    assert (caller["subject"], caller["csrf_token"]) == (REQUESTER, None)
    assert status_and_code(face.send("POST", "/logout", token=access)) == (400, "no_session")


# Sessions that somebody else has, or made.


def test_a_login_begins_a_session_that_nobody_knew_and_ends_the_one_before(logged_in: Browser) -> None:
    first = logged_in.cookies[SESSION]
    assert logged_in.log_in().status_code == 303
    second = logged_in.cookies[SESSION]
    assert first.rpartition(".")[2] != second.rpartition(".")[2]
    logged_in.cookies = {SESSION: first}
    assert is_nobody(logged_in)
    logged_in.cookies = {SESSION: second}
    assert not is_nobody(logged_in)


def test_a_cookie_that_was_planted_before_the_login_is_no_session_after_it(browser: Browser) -> None:
    planted = f"{segment(TENANT.encode())}.{'0' * 64}.{'A' * 43}"
    browser.cookies[SESSION] = planted
    assert is_nobody(browser)
    assert browser.log_in().status_code == 303
    assert browser.cookies[SESSION] != planted
    browser.cookies = {SESSION: planted}
    assert is_nobody(browser)


def test_a_stolen_cookie_is_nobody_after_the_logout(logged_in: Browser, face: HttpFace, provider: Provider) -> None:
    thief = Browser(face, provider, dict(logged_in.cookies))
    assert not is_nobody(thief)
    csrf = logged_in.csrf()
    assert logged_in.send("POST", "/logout", headers=csrf).status_code == 204
    assert is_nobody(thief)
    assert thief.send("POST", "/v1/runs", headers=csrf, json=face.request()).status_code == 401
    assert thief.send("POST", "/logout", headers=csrf).status_code == 401


class Later:
    """The clock of the deployment, some time from now."""

    def __init__(self, clock: Any, seconds: int) -> None:
        self._clock, self._us = clock, seconds * 1_000_000

    def now_us(self) -> int:
        return int(self._clock.now_us()) + self._us


@pytest.mark.parametrize(("life_s", "after_s"), [(600, 601), (80_000, 28_801)], ids=["its token", "the longest time"])
def test_a_session_ends_with_its_token_and_after_the_longest_time(
    browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch, life_s: int, after_s: int
) -> None:
    provider.life_s = life_s
    browser.log_in()
    sessions = browser.face.api.state.browser_logins.sessions
    clock = sessions.clock
    monkeypatch.setattr(sessions, "clock", Later(clock, after_s - 60))
    assert not is_nobody(browser)
    monkeypatch.setattr(sessions, "clock", Later(clock, after_s))
    assert is_nobody(browser)


def test_a_cookie_names_no_session_of_another_tenant_or_person(
    browser: Browser, face: HttpFace, provider: Provider
) -> None:
    provider.tenants = [TENANT, OTHER_TENANT]
    assert browser.log_in(tenant=TENANT).status_code == 303
    tenant, person, secret = browser.cookies[SESSION].split(".")
    other = Browser(face, provider)
    other.log_in(LEAD, tenant=TENANT)
    _, lead, _ = other.cookies[SESSION].split(".")
    answers = []
    for cookie in (
        f"{segment(OTHER_TENANT.encode())}.{person}.{secret}",
        f"{segment(b'tenant_nowhere')}.{person}.{secret}",
        f"{tenant}.{lead}.{secret}",
        f"{tenant}.{person}.{'A' * 43}",
        f"{tenant}.{person}.{secret}A",
        f"{tenant}.{person}.{secret}.{secret}",
        f"{tenant}A.{person}.{secret}",
        f"..{secret}",
        f"{'A' * 5_000}.{person}.{secret}",
        "",
        "é",
    ):
        browser.cookies = {SESSION: cookie}
        answers.append(browser.send("GET", "/v1/caller"))
    assert {one.status_code for one in answers} == {401}
    assert len({(one.content, tuple(sorted(one.headers.items()))) for one in answers}) == 1


def test_two_cookies_of_one_name_are_none(logged_in: Browser) -> None:
    right = logged_in.cookies[SESSION]
    for said in (f"{SESSION}=x; {SESSION}={right}", f"{SESSION}={right}; {SESSION}=x", f"{SESSION}={right};{SESSION}="):
        logged_in.cookies = {}
        assert logged_in.send("GET", "/v1/caller", headers={"Cookie": said}).status_code == 401


def test_a_session_of_one_tenant_sees_nothing_of_another(browser: Browser, provider: Provider, face: HttpFace) -> None:
    """The same person, who is one of both tenants."""
    provider.tenants = [TENANT, OTHER_TENANT]
    browser.log_in(tenant=TENANT)
    body = face.request(user={})
    run = browser.send("POST", "/v1/runs", headers=browser.csrf(), json=body).json()["run_id"]
    there = Browser(face, provider)
    there.log_in(tenant=OTHER_TENANT)
    assert there.send("GET", "/v1/caller").json()["tenant_id"] == OTHER_TENANT
    assert there.send("GET", "/v1/runs").json()["items"] == []
    csrf, answered = there.csrf(), 0
    for method, path, body in routes_with_a_name(face):
        more = {} if body is None else {"json": body}
        filled = path.replace("{ledger}", "effect")
        one, other = (
            there.send(method, filled.replace("{run}", name), headers=csrf, **more) for name in (run, "run_" + "0" * 16)
        )
        assert (one.status_code, one.content, one.headers) == (404, other.content, other.headers), (method, path)
        answered += 1
    assert answered >= 7


def test_a_writer_of_the_database_makes_up_no_session(logged_in: Browser, face: HttpFace) -> None:
    parts = logged_in.cookies[SESSION].split(".")
    tenant, person, secret = parts
    store, elsewhere = face.app.stores.tenant(TENANT), face.app.stores.tenant(OTHER_TENANT)
    found = face.call(BROWSER_SESSIONS.one(store, person))
    said = loads(decode_base64(found.body.envelope["payload"]))
    lead = canonical({**said, "sessions": {name: {**one, "subject": LEAD} for name, one in said["sessions"].items()}})
    forged = [
        seal(SESSIONS_TYPE, lead, KeyRing.from_seed(b"x" * 32), "claim"),
        {**found.body.envelope, "payload": base64.b64encode(lead).decode()},
        {},
    ]

    def put(place: Any, name: str, envelope: dict[str, Any]) -> None:
        before = face.call(BROWSER_SESSIONS.one(place, name))
        write = BROWSER_SESSIONS.write(name, before.version if before else 0, SealedIdentity(envelope))
        face.call(place.commit(Batch(run=CONTROL, writes=(write,))))

    for envelope in forged:
        put(store, person, envelope)
        assert is_nobody(logged_in)
    # What the runtime sealed for one person of one tenant, under the name of another.
    put(store, "0" * 64, found.body.envelope)
    put(elsewhere, person, found.body.envelope)
    for cookie in (f"{tenant}.{'0' * 64}.{secret}", f"{segment(OTHER_TENANT.encode())}.{person}.{secret}"):
        logged_in.cookies = {SESSION: cookie}
        assert is_nobody(logged_in)
    put(store, person, found.body.envelope)
    logged_in.cookies = {SESSION: ".".join(parts)}
    assert not is_nobody(logged_in)


def test_a_person_has_a_bounded_number_of_sessions(face: HttpFace, provider: Provider) -> None:
    browsers = [Browser(face, provider) for _ in range(MAX_SESSIONS + 1)]
    for one in browsers:
        assert one.log_in("usr_772").status_code == 303
    assert [is_nobody(one) for one in browsers] == [True] + [False] * MAX_SESSIONS


def test_no_cookie_and_no_token_is_kept_or_logged(
    browser: Browser, face: HttpFace, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        browser.log_in()
        browser.send("GET", "/v1/caller")
        cookie = browser.cookies[SESSION]
        found = face.call(BROWSER_SESSIONS.one(face.app.stores.tenant(TENANT), cookie.split(".")[1]))
        browser.send("POST", "/logout", headers=browser.csrf())
    kept = decode_base64(found.body.envelope["payload"])
    stored = b"".join(one.read_bytes() for one in face.path.glob("contextos.db*") if one.is_file())
    assert cookie.split(".")[1].encode() in stored
    assert REQUESTER.encode() in kept
    for one in (cookie.rpartition(".")[2], SECRET, *provider.issued[-1].values()):
        assert one.encode() not in stored + kept
        assert one not in caplog.text
    assert b"somebody@acme.example" not in kept, "only the claims that the settings name are kept"


# Logins that end elsewhere than they began.


def test_an_answer_counts_in_the_browser_that_began_the_login_alone(
    browser: Browser, face: HttpFace, provider: Provider
) -> None:
    """Login CSRF: the attacker's own answer, in the browser of a victim."""
    attacker = Browser(face, provider)
    path = attacker.answered(attacker.begin())
    asked = len(provider.exchanges)
    assert status_and_code(browser.back(path)) == (403, "login_refused"), "it began none"
    browser.begin()
    assert status_and_code(browser.back(path)) == (403, "login_refused"), "it began another"
    assert SESSION not in browser.cookies
    assert len(provider.exchanges) == asked, "the code was not spent"
    assert attacker.back(path).status_code == 303


STATES: dict[str, Callable[[dict[str, str]], list[tuple[str, str]]]] = {
    "no state": lambda said: [("code", said["code"])],
    "an empty state": lambda said: [*{**said, "state": ""}.items()],
    "another state": lambda said: [*{**said, "state": "A" * 43}.items()],
    "two states": lambda said: [*said.items(), ("state", said["state"])],
    "two codes": lambda said: [*said.items(), ("code", "x")],
    "no code": lambda said: [("state", said["state"])],
    "a code that is too long": lambda said: [*{**said, "code": "A" * 4_000}.items()],
    "another issuer": lambda said: [*{**said, "iss": "https://login.attacker.example"}.items()],
    "an issuer whose name begins alike": lambda said: [*{**said, "iss": f"{said['iss']}/"}.items()],
    "two issuers": lambda said: [*said.items(), ("iss", "https://login.attacker.example")],
    "an error": lambda said: [*said.items(), ("error", "<script>alert(1)</script>")],
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_an_answer_that_does_not_fit_begins_no_session(
    browser: Browser, change: Callable[[dict[str, str]], list[tuple[str, str]]]
) -> None:
    path, _, query = browser.answered(browser.begin()).partition("?")
    sent = change(dict(parse_qsl(query)))
    answer = browser.back(f"{path}?{urlencode(sent)}")
    is_twice = len(dict(sent)) < len(sent)
    assert status_and_code(answer) == ((400, "parameter_twice") if is_twice else (403, "login_refused"))
    assert SESSION not in browser.cookies
    assert "script" not in answer.text


def test_a_code_counts_once(browser: Browser) -> None:
    path = browser.answered(browser.begin())
    attempt = browser.cookies[LOGIN]
    assert browser.back(path).status_code == 303
    session = browser.cookies.pop(SESSION)
    assert status_and_code(browser.back(path)) == (403, "login_refused")
    browser.cookies[LOGIN] = attempt
    assert status_and_code(browser.back(path)) == (403, "login_refused"), "the provider refuses it too"
    assert SESSION not in browser.cookies
    browser.cookies = {SESSION: session}
    assert not is_nobody(browser)


@pytest.mark.parametrize("checks_pkce", [True, False], ids=["PKCE", "the nonce alone"])
def test_a_code_of_another_login_is_refused_by_two_checks(
    browser: Browser, face: HttpFace, provider: Provider, checks_pkce: bool
) -> None:
    """Code injection: the attacker knows the victim's `state`, and puts in a code of a login of their own."""
    attacker = Browser(face, provider)
    provider.person = LEAD
    stolen = dict(parse_qsl(browser.answered(browser.begin()).partition("?")[2]))["code"]
    provider.checks_pkce = checks_pkce
    own = dict(parse_qsl(attacker.answered(attacker.begin()).partition("?")[2]))
    answer = attacker.back(f"/callback?{urlencode({**own, 'code': stolen})}")
    assert status_and_code(answer) == (403, "login_refused")
    assert SESSION not in attacker.cookies


ID_TOKENS: dict[str, dict[str, Any]] = {
    "of another login": {"nonce": "A" * 43},
    "without a nonce": {"nonce": None},
    "of another issuer": {"iss": "https://login.attacker.example"},
    "for another client": {"aud": "another"},
    "for two clients": {"aud": [CLIENT, "another"]},
    "issued to another client": {"aud": [CLIENT, "another"], "azp": "another"},
    "that is expired": {"iat": NOW_S - 7_200, "exp": NOW_S - 3_600},
    "of somebody else": {"sub": LEAD},
    "of nobody": {"sub": None},
    "that is an access token": {"header": {"typ": "at+jwt"}},
    "by another key": {"kid": "ec-2"},
    "without a key": {"header": {"kid": None}},
}


@pytest.mark.parametrize("change", ID_TOKENS.values(), ids=ID_TOKENS)
def test_an_id_token_of_another_login_or_issuer_begins_no_session(
    browser: Browser, provider: Provider, change: dict[str, Any]
) -> None:
    change = dict(change)
    kid = change.pop("kid", None)
    provider.id_claims = change
    if kid is not None:
        provider.issues = lambda **says: token(header={"kid": kid, **says.pop("header", {})}, **says)
    assert status_and_code(browser.log_in()) == (403, "login_refused")
    assert SESSION not in browser.cookies


ACCESS_TOKENS: dict[str, dict[str, Any]] = {
    "for another API": {"aud": "another"},
    "issued to another client": {"client_id": "another"},
    "of somebody else": {"sub": LEAD},
    "that is expired": {"iat": NOW_S - 7_200, "exp": NOW_S - 3_600},
    "of a person without a role": {"groups": ["idp-guests"]},
    "of a person without a tenant": {"tenants": []},
    "of a person of a tenant that does not exist": {"tenants": ["tenant_nowhere"]},
    "that is an ID token": {"header": {"typ": "JWT"}},
}


@pytest.mark.parametrize("change", ACCESS_TOKENS.values(), ids=ACCESS_TOKENS)
def test_an_access_token_that_is_not_for_this_service_begins_no_session(
    browser: Browser, provider: Provider, change: dict[str, Any]
) -> None:
    provider.access_claims = change
    assert status_and_code(browser.log_in()) == (403, "login_refused")
    assert SESSION not in browser.cookies


@pytest.mark.parametrize(
    "answer",
    [{"id_token": mac_with(b"public")}, {"id_token": "a.b.c"}, {"id_token": f"{segment({'alg': 'none'})}.e30."}],
    ids=["a shared secret", "no token", "no signature"],
)
def test_a_token_that_the_provider_did_not_sign_begins_no_session(
    browser: Browser, provider: Provider, answer: dict[str, Any]
) -> None:
    provider.answer = answer
    assert status_and_code(browser.log_in()) == (403, "login_refused")


def test_a_person_of_several_tenants_says_which_one(browser: Browser, provider: Provider) -> None:
    provider.tenants = [TENANT, OTHER_TENANT]
    assert status_and_code(browser.log_in()) == (403, "login_refused")
    provider.tenants = [TENANT]
    named = [status_and_code(browser.log_in(tenant=one)) for one in (OTHER_TENANT, "tenant_nowhere")]
    assert named == [(403, "login_refused")] * 2
    assert browser.log_in(tenant=TENANT).status_code == 303


@pytest.mark.parametrize(
    "broken", [{"token_type": "DPoP"}, {"id_token": None}, {"access_token": None}, {"access_token": 7}], ids=str
)
def test_an_answer_of_the_provider_that_is_none_is_tried_later(
    browser: Browser, provider: Provider, broken: dict[str, Any]
) -> None:
    provider.answer = broken
    answer = browser.log_in()
    assert (answer.status_code, SESSION in browser.cookies) == (503, False)
    assert "retry-after" in answer.headers


@pytest.mark.parametrize(
    "status_and_body",
    [
        (500, b"<script>alert(1)</script>"),
        (401, b'{"error": "invalid_client"}'),
        (200, b"[]"),
        (200, b"{"),
        (302, b""),
        (200, b"[" * 100_000),
        (200, b"a" * 200_000),
    ],
    ids=lambda one: f"{one[0]} {one[1][:20]!r}",
)
def test_a_provider_that_fails_is_our_fault_and_shows_nothing(
    browser: Browser, provider: Provider, status_and_body: tuple[int, bytes]
) -> None:
    path = browser.answered(browser.begin())
    status, body = status_and_body
    provider.instead = lambda asked: (status, body, {}) if asked.path == "/token" else None
    answer = browser.back(path)
    assert answer.status_code == 503
    assert "script" not in answer.text
    assert SESSION not in browser.cookies


ELSEWHERE = [
    "https://evil.example",
    "//evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n//evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    "evil.example",
    ".evil.example",
    "@evil.example",
    ":80@evil.example",
    "",
    "/é",
    "/<script>",
    '/"',
    "/ x",
    "/" + "a" * 2_000,
    "https:/evil.example",
    "///evil.example",
]


@pytest.mark.parametrize("to", ELSEWHERE)
def test_a_login_ends_at_a_path_of_this_service_alone(browser: Browser, to: str) -> None:
    answer = browser.send("GET", "/login", params={"to": to}, headers={"Origin": None})  # type: ignore[dict-item]
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/to")
    assert "location" not in answer.headers
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("to", ELSEWHERE)
def test_a_changed_cookie_of_a_login_leads_nowhere_else(browser: Browser, to: str) -> None:
    path = browser.answered(browser.begin())
    secret, _, tenant = browser.cookies[LOGIN].split(".")
    browser.cookies[LOGIN] = f"{secret}.{segment(to.encode())}.{tenant}"
    assert status_and_code(browser.back(path)) == (403, "login_refused")
    assert SESSION not in browser.cookies


@pytest.mark.parametrize("attempt", ["", "..", "A" * 43, f"{'A' * 43}.!.", f"{'A' * 43}._w.", "é.é.é", "A" * 9_000])
def test_a_cookie_of_a_login_that_nobody_set_begins_no_session(browser: Browser, attempt: str) -> None:
    path = browser.answered(browser.begin())
    browser.cookies[LOGIN] = attempt
    assert status_and_code(browser.back(path)) == (403, "login_refused")


def test_every_answer_of_a_login_has_the_strict_headers(browser: Browser) -> None:
    query = browser.begin()
    answers = [
        browser.send("GET", "/login"),
        browser.back(browser.answered(query)),
        browser.back("/callback"),
        browser.send("POST", "/logout"),
        browser.send("GET", "/logout"),
        browser.send("GET", "/v1/caller"),
    ]
    for one in answers:
        assert one.headers["content-security-policy"].startswith("default-src 'none'; base-uri 'none'; form-action")
        assert (one.headers["referrer-policy"], one.headers["cache-control"]) == ("no-referrer", "no-store")
        assert one.headers["cross-origin-resource-policy"] == "same-origin"


# Other deployments.


def test_without_the_setting_there_are_no_logins_and_no_cookie_counts(tmp_path: Any) -> None:
    with http_face(tmp_path) as face:
        for method, path in (("GET", "/login"), ("GET", "/callback?state=a&code=b"), ("POST", "/logout")):
            answer = face.send(method, path)
            assert status_and_code(answer) == (404, "not_found")
        cookie = {"Cookie": f"{SESSION}={segment(TENANT.encode())}.{'0' * 64}.{'A' * 43}"}
        assert face.anonymous("GET", "/v1/caller", headers=cookie).status_code == 401
        assert face.send("GET", "/v1/caller", headers=cookie).json()["csrf_token"] is None


def test_on_one_machine_without_tls_the_names_promise_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.oidc_provider.ORIGIN", "http://127.0.0.1:8765")
    here = {"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}
    monkeypatch.setattr("tests.oidc_provider.SAME_ORIGIN", here)
    with browser_face(tmp_path, origin="http://127.0.0.1:8765") as (face, provider):
        browser = Browser(face, provider)
        assert browser.log_in().status_code == 303
        assert set(browser.cookies) == {"contextos-session"}
        assert all("Secure" not in one and "HttpOnly" in one for one in browser.set_cookies)
        assert not is_nobody(browser)
        browser.cookies = {SESSION: browser.cookies["contextos-session"]}
        assert is_nobody(browser)


def test_a_stream_ends_with_the_logout(
    logged_in: Browser, face: HttpFace, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.001)
    lead, body = Browser(face, provider), face.request("next")
    body["user"]["delegation"].pop("token_ref")
    run = logged_in.send("POST", "/v1/runs", headers=logged_in.csrf(), json=body).json()["run_id"]
    lead.log_in(LEAD)
    jar = {"Cookie": f"{SESSION}={logged_in.cookies[SESSION]}", "Sec-Fetch-Site": "same-origin"}
    with (
        served_url(face) as url,
        httpx.Client(base_url=url, headers=jar, timeout=60) as client,
        client.stream("GET", f"/v1/runs/{run}/events") as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        assert logged_in.send("POST", "/logout", headers=logged_in.csrf()).status_code == 204
        assert is_nobody(logged_in)
        path, csrf = f"/v1/approvals/{run}", lead.csrf()
        said = lead.send("POST", f"{path}/statement", headers=csrf, json={"verdict": "denied"}).json()
        [signed] = said["statements"][0]["signing_inputs"].values()
        answered = {"verdict": "denied", "tokens": [face.signature(signed, LEAD)]}
        assert lead.send("POST", f"{path}/answer", headers=csrf, json=answered).status_code == 200
        assert "event: RUN_ERROR" not in list(lines)
