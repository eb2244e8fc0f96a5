"""A real authorization server on the loopback that exchanges tokens (RFC 8693), unless a test makes it do otherwise,
and an API behind it that verifies what it issues.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from joserfc import jws, jwt
from joserfc.jwk import ECKey, OKPKey

import contextos
from contextos.adapters.oauth.token_exchange import TokenExchange
from contextos.adapters.openapi.adapter import OpenApiAdapter, openapi_adapter
from contextos.adapters.openapi.draft import draft_openapi
from contextos.adapters.outbound import destination
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.store.shared.clock import SystemClock
from tests.loopback import Answer, Asked, serving
from tests.openapi_documents import OK, body_of, document

CLIENT, SECRET, AUDIENCE = "contextos-client", "s3cret/of+the client", "https://api.shop.example"
JSON = {"Content-Type": "application/json"}
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT = "urn:ietf:params:oauth:token-type:jwt"
ACCESS = "urn:ietf:params:oauth:token-type:access_token"


@cache
def signing_key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": "as-1"})


def token_of(claims: Mapping[str, Any]) -> str:
    return jwt.encode({"alg": "ES256", "kid": "as-1", "typ": "at+jwt"}, dict(claims), signing_key())


@dataclass
class AuthorizationServer:
    """`public_key` returns the key of the runtime for claims. `claims` and `answer` are what a test changes in the
    token and in the answer (None leaves a member out); `instead` replaces the whole answer. `forms` are the verified
    requests.
    """

    public_key: Callable[[str], bytes | None] = lambda _kid: None
    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    instead: Callable[[Asked], Answer | None] = lambda _: None
    forms: list[dict[str, str]] = field(default_factory=list)
    subjects: list[dict[str, Any]] = field(default_factory=list)
    actors: list[dict[str, Any]] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, asked: Asked) -> Answer:
        with self.lock:
            self.asked.append(asked)
            if (instead := self.instead(asked)) is not None:
                return instead
            status, said = self._exchange(asked)
            return status, json.dumps(said).encode(), JSON

    def _exchange(self, asked: Asked) -> tuple[int, dict[str, Any]]:
        basic = base64.b64encode(f"{CLIENT}:s3cret%2Fof%2Bthe+client".encode()).decode()
        if asked.headers["Authorization"] != f"Basic {basic}":
            return 401, {"error": "invalid_client"}
        pairs = parse_qsl(asked.body.decode(), strict_parsing=True)
        form = dict(pairs)
        kinds = (form.get("grant_type"), form.get("subject_token_type"), form.get("actor_token_type"))
        if len(form) != len(pairs) or kinds != (EXCHANGE, JWT, JWT):
            return 400, {"error": "invalid_request"}
        try:
            subject = self._verified(form["subject_token"], "ctxsub+jwt")
            actor = self._verified(form["actor_token"], "ctxid+jwt")
        except (ValueError, AssertionError, KeyError) as error:
            return 400, {"error": "invalid_request", "error_description": f"{error!r} {form}"}
        if subject["may_act"] != {"sub": actor["sub"]} or subject["tenant_id"] != actor["tenant_id"]:
            return 400, {"error": "invalid_request"}
        wanted = set(form["scope"].split())
        if not wanted <= set(subject["scope"].split()) & set(actor["scopes"]):
            return 400, {"error": "invalid_scope"}
        self.forms.append(form)
        self.subjects.append(subject)
        self.actors.append(actor)
        token = token_of(self._claims(form, subject, actor))
        self.issued.append(token)
        said = {
            "access_token": token,
            "issued_token_type": ACCESS,
            "token_type": "Bearer",
            "expires_in": 120,
            "scope": form["scope"],
            **self.answer,
        }
        return 200, {name: value for name, value in said.items() if value is not None}

    def _claims(self, form: Mapping[str, str], subject: Mapping[str, Any], actor: Mapping[str, Any]) -> dict[str, Any]:
        now_s = int(time.time())
        made = {
            "iss": self.url,
            "sub": subject["sub"],
            "act": {"sub": actor["sub"]},
            "aud": form["audience"],
            "scope": form["scope"],
            "tenant": subject["tenant_id"],
            "iat": now_s,
            "exp": now_s + 120,
            "jti": f"at-{len(self.issued)}-{now_s}",
            **self.claims,
        }
        return {name: value for name, value in made.items() if value is not None}

    def _verified(self, token: str, typ: str) -> dict[str, Any]:
        """The claims of a token that the runtime signed for this server, by its public key alone."""
        kid = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))["kid"]
        public = self.public_key(kid)
        assert public is not None, "a key that is not known"
        x = base64.urlsafe_b64encode(public).rstrip(b"=").decode()
        key = OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": x})
        found = jws.deserialize_compact(token, key, algorithms=["Ed25519"])
        claims: dict[str, Any] = json.loads(found.payload)
        assert found.headers()["typ"] == typ, "another kind of token"
        assert claims["aud"] == self.url, "for another issuer"
        assert claims["nbf"] <= time.time() + 5 < claims["exp"] + 5, "not valid now"
        return claims


@dataclass
class Shop:
    """The API: it answers only with a token of the server that is for it. `instead` replaces an answer."""

    url: str = ""
    instead: Callable[[Asked], Answer | None] = lambda _: None
    seen: list[tuple[str, str]] = field(default_factory=list)
    """The token and the path of each request."""
    served: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, asked: Asked) -> Answer:
        token = asked.headers.get("Authorization", "").removeprefix("Bearer ")
        with self.lock:
            self.seen.append((token, asked.path))
            if (instead := self.instead(asked)) is not None:
                return instead
            try:
                claims = jwt.decode(token, signing_key()).claims
            except ValueError:
                return 401, b'{"error": "invalid_token"}', JSON
            scope = "orders:read" if asked.method == "GET" else "refunds:write"
            wrong = claims["aud"] != AUDIENCE or claims["exp"] <= time.time() or scope not in claims["scope"].split()
            if wrong:
                return 403, b'{"error": "insufficient_scope"}', JSON
            self.served.append(claims)
            said = {"user": claims["sub"], "agent": claims["act"]["sub"], "tenant": claims["tenant"]}
            return 200, json.dumps(said).encode(), JSON


@contextmanager
def authorization_server() -> Iterator[AuthorizationServer]:
    made = AuthorizationServer()
    with serving(made.serve) as url:
        made.url = f"{url}/token"
        yield made


@contextmanager
def shop() -> Iterator[Shop]:
    made = Shop()
    with serving(made.serve) as url:
        made.url = url
        yield made


def port_of(server: AuthorizationServer, **more: Any) -> TokenExchange:
    """The port over the server, as the settings make it."""
    given: dict[str, Any] = {"internal": True, "timeout_s": 2, **more}
    secret = given.pop("secret", SECRET)
    return TokenExchange(server.url, CLIENT, lambda: secret.encode(), given.pop("clock", SystemClock()), **given)


PATHS = {
    "/orders/{id}": {
        "get": {
            "operationId": "read",
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "responses": OK,
        }
    },
    "/refunds": {
        "post": {
            "operationId": "pay",
            "requestBody": body_of({"type": "object", "properties": {"amount": {"type": "integer"}}}),
            "responses": OK,
        }
    },
}
SCOPES = {"read": ["orders:read"], "pay": ["refunds:write"]}


def file_of(url: str, name: str = "shop") -> dict[str, Any]:
    """The adapter file of the API, after its reviewer stated how its calls authenticate."""
    made = draft_openapi(name, document(PATHS), server=url, internal=True, reads=["read"]).to_json()
    file: dict[str, Any] = json.loads(json.dumps(made))
    file["connection"]["credentials"] = {"user": {"place": "bearer", "audience": AUDIENCE}}
    for capability in file["definition"]["capabilities"]:
        capability["required_scopes"] = SCOPES[capability["name"]]
        capability["output_integrity"] = "trusted"  # What the shop answers is its own.
        file["operations"][capability["name"]]["credentials"] = ["user"]
    return file


def adapter_of(file: Mapping[str, Any]) -> OpenApiAdapter:
    definition = AdapterDefinition.model_validate(file["definition"])
    return openapi_adapter(file["connection"], definition, file["operations"], Path())


def people(tenants: tuple[str, ...] = ("acme",), scopes: tuple[str, ...] = ("orders:read", "refunds:write")) -> Any:
    """A directory in which each tenant has the same names."""
    agent = {
        "agent_id": "agt_shop",
        "agent_urn": "agent:acme/shop@1.0.0",
        "workload_identity": "spiffe://acme/agents/shop",
        "role": "shop",
        "owner": "boss",
        "lifecycle": "active",
        "ceiling": "destructive",
        "scopes": list(scopes),
    }
    token = {"subject": "ana", "agent_id": "agt_shop", "scopes": list(scopes), "expires_at": 4102444800}
    user = {"user_id": "ana", "role": "clerk", "roles": ["clerk"], "scopes": list(scopes), "delegation_live": True}
    one = {
        "users": [user],
        "agents": [agent],
        "delegations": {"tok_ana": token},
        "approvers": [{"approver_id": "omar", "roles": ["lead"], "granted_by": {"lead": "ceo"}, "keys": []}],
    }
    return {tenant: json.loads(json.dumps(one)) for tenant in tenants}


def pack_of(adapter: Any, tenant: str = "acme", **more: Any) -> Any:
    endpoint = adapter.describe().egress[0]
    return contextos.pack(
        f"{tenant}.shop",
        version="1.0.0",
        tenant=tenant,
        tools=[adapter],
        who=["clerk"],
        approver="lead",
        egress=[endpoint],
        **more,
    )


def trusts(server: AuthorizationServer, app: Any) -> None:
    """Have the server trust the runtime's key for claims."""
    server.public_key = partial(app.keys.public_key, "claim")


def egress_of(*urls: str, tenants: tuple[str, ...] = ("acme",)) -> dict[str, list[str]]:
    return {tenant: [destination(url).endpoint for url in urls] for tenant in tenants}
