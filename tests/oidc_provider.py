"""A real OpenID Provider on the loopback: the authorization code flow with PKCE, unless a test makes it do otherwise.

`Browser` is a person's browser: it keeps cookies as the rules for them say, and follows redirects between the provider
and the service.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx

from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.workspace import open_unchecked
from contextos.workspace.settings import Settings
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face
from tests.issuer import AUDIENCE, ISSUER, jwks, token
from tests.loopback import Answer, Asked, serving
from tests.unit.adapters.test_signed_directory import KEEPER, write
from tests.world import public_key

ORIGIN = "https://contextos.acme.example"
CLIENT = "contextos-console"
SECRET = "s3cret/of+the client"
GROUPS = {REQUESTER: ["idp-support"], "usr_772": ["idp-support"], LEAD: ["idp-lead"], OPERATOR: ["idp-operator"]}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin", "Origin": ORIGIN}
JSON = {"Content-Type": "application/json"}


@dataclass
class Provider:
    """`person` logs in at it, in `tenants`. `id_claims`, `access_claims` and `answer` are what a test changes (None
    leaves a member out), `issues` signs the tokens, `checks_pkce` and `instead` make it another provider.
    """

    url: str = ""
    person: str = REQUESTER
    tenants: list[str] = field(default_factory=lambda: [TENANT])
    life_s: int = 3_600
    id_claims: dict[str, Any] = field(default_factory=dict)
    access_claims: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    response: dict[str, str] = field(default_factory=lambda: {"iss": ISSUER})
    issues: Callable[..., str] = token
    checks_pkce: bool = True
    instead: Callable[[Asked], Answer | None] = lambda _: None
    exchanges: list[dict[str, str]] = field(default_factory=list)
    issued: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def serve(self, asked: Asked) -> Answer:
        with self.lock:
            if (instead := self.instead(asked)) is not None:
                return instead
            parts = urlsplit(asked.path)
            if parts.path == "/jwks.json":
                return 200, json.dumps(jwks()).encode(), JSON
            if parts.path == "/authorize":
                return 303, b"", {"Location": self.authorize(parts.query)}
            assert parts.path == "/token", "it has no other endpoint"
            status, said = self._exchange(asked)
            return status, json.dumps(said).encode(), JSON

    def authorize(self, query: str) -> str:
        """Log the person in who was sent here, and return where they are sent back to."""
        asked = dict(parse_qsl(query, strict_parsing=True))
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["redirect_uri"] == f"{ORIGIN}/callback"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = {**asked, "person": self.person}
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], **self.response})}"

    def _exchange(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        basic = base64.b64encode(f"{CLIENT}:s3cret%2Fof%2Bthe+client".encode()).decode()
        if asked.headers["Authorization"] != f"Basic {basic}":
            return 401, {"error": "invalid_client"}
        form = dict(parse_qsl(asked.body.decode(), strict_parsing=True))
        self.exchanges.append(form)
        known = self._codes.pop(form["code"], None)
        if known is None or form["grant_type"] != "authorization_code" or form["redirect_uri"] != known["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "<script>alert(1)</script>"}
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if self.checks_pkce and challenge.decode() != known["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        now_s = int(time.time())
        says: dict[str, Any] = {
            "sub": known["person"],
            "iat": now_s,
            "exp": now_s + self.life_s,
            "auth_time": now_s,
            "groups": GROUPS.get(known["person"], []),
            "tenants": self.tenants,
            "email": "somebody@acme.example",
        }
        identity = {**says, "aud": CLIENT, "nonce": known["nonce"], **self.id_claims}
        access = {**says, "scope": "orders.read payments.refund", "client_id": CLIENT, **self.access_claims}
        made = {
            "id_token": self.issues(**identity),
            "access_token": self.issues(**{"header": {"typ": "at+jwt"}, **access}),
            "refresh_token": "refresh-me",
            "token_type": "Bearer",
            "expires_in": self.life_s,
            **self.answer,
        }
        self.issued.append({name: str(made[name]) for name in ("id_token", "access_token", "refresh_token")})
        return 200, {name: one for name, one in made.items() if one is not None}


@contextmanager
def provider() -> Iterator[Provider]:
    made = Provider()
    with serving(made.serve) as url:
        made.url = url
        yield made


def settings_text(url: str, **changes: Any) -> str:
    """The tables of the settings for a directory of this provider's users, and for logins at it."""
    roles = (
        '{ idp-support = "support_agent", idp-support-leads = "support_lead", idp-lead = "finance_lead", '
        'idp-operator = "operator" }'
    )
    logins = {
        "origin": ORIGIN,
        "client_id": CLIENT,
        "authorization_url": f"{url}/authorize",
        "token_url": f"{url}/token",
        "secret_file": "client.secret",
        **changes,
    }
    listed = [f"{name} = {json.dumps(value)}" for name, value in logins.items()]
    return f"""
[directory]
kind = "oidc"
path = "directory.dsse.json"
signers = ["{public_key(KEEPER).hex()}"]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
roles = {roles}
jwks_url = "{url}/jwks.json"
token_type = "at+jwt"
clients = ["{CLIENT}"]
tenant_claim = "tenants"
scopes = ["orders.read", "payments.refund"]
[browser_logins]
{chr(10).join(listed)}
"""


async def begin_with_provider(path: Path, url: str, **changes: Any) -> None:
    """Make a workspace of refunds whose users log in at the provider; two tenants have the same people."""
    made = make_workspace(path)
    listed = json.loads((path / "directory.json").read_text("utf-8"))
    write(path / "directory.dsse.json", 1, {**listed, OTHER_TENANT: listed[TENANT]})
    (path / "client.secret").write_text(SECRET)
    (path / "client.secret").chmod(0o600)
    toml = (path / "contextos.toml").read_text("utf-8").replace('"unsafe_local_directory", ', "")
    (path / "contextos.toml").write_text(f"{toml}\n{settings_text(url, **changes)}\n", "utf-8")
    app = await open_unchecked(Settings.read(path))
    await app.initialise(TENANT, by=example_operator(path))
    await seed_graph(app, made)
    app.close()


@contextmanager
def browser_face(folder: Path, **changes: Any) -> Iterator[tuple[HttpFace, Provider]]:
    """The API of such a workspace, and its provider."""
    with provider() as made, http_face(folder, lambda path: begin_with_provider(path, made.url, **changes)) as face:
        yield face, made


@dataclass
class Browser:
    """A browser of one person. `cookies` are those that the service set."""

    face: HttpFace
    provider: Provider
    cookies: dict[str, str] = field(default_factory=dict)
    set_cookies: list[str] = field(default_factory=list)

    def send(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        """A request as a page of the service sends it, unless `headers` say otherwise; None leaves one out."""
        jar = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        made = {**jar, **SAME_ORIGIN, **(headers or {})}
        sent = {name: value.encode("latin-1") for name, value in made.items() if value is not None}
        # The cookies are those of this browser, and not of the client that all of them share.
        self.face.client.cookies.clear()
        answer = self.face.anonymous(method, path, headers=sent, **more)
        for one in answer.headers.get_list("set-cookie"):
            self.set_cookies.append(one)
            name, _, value = one.partition(";")[0].partition("=")
            if value.strip('"'):
                self.cookies[name] = value
            else:
                self.cookies.pop(name, None)
        return answer

    def begin(self, to: str = "/runs", **parameters: str) -> str:
        """Begin a login; return the query with which the provider is asked."""
        answer = self.send("GET", "/login", params={"to": to, **parameters}, headers={"Origin": None})  # type: ignore[dict-item]
        assert answer.status_code == 303, answer.text
        return urlsplit(answer.headers["location"]).query

    def answered(self, query: str) -> str:
        """Log in at the provider; return the path and query with which it sends the browser back."""
        with httpx.Client(trust_env=False) as client:
            answer = client.get(f"{self.provider.url}/authorize?{query}")
        location = urlsplit(answer.headers["location"])
        assert f"{location.scheme}://{location.netloc}" == ORIGIN
        return f"{location.path}?{location.query}"

    def back(self, path: str) -> httpx.Response:
        """Come back from the provider."""
        return self.send("GET", path, headers={"Origin": None, "Sec-Fetch-Site": "cross-site"})  # type: ignore[dict-item]

    def log_in(self, person: str = REQUESTER, **parameters: str) -> httpx.Response:
        """Log in, from the first click to the page of the service."""
        self.provider.person = person
        return self.back(self.answered(self.begin(**parameters)))

    def csrf(self) -> dict[str, str]:
        """The header that a page sends with a request that changes something."""
        return {"X-CSRF-Token": self.send("GET", "/v1/caller").json()["csrf_token"]}


def state_of(query: str) -> str:
    return parse_qs(query)["state"][0]
