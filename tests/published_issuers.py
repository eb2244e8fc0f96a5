"""What issuers publish and sign, as their own documentation shows it: key sets, headers, claims, and fitting settings.

Each shape has the members that its issuer really writes, also those that mean nothing here. The keys are those of
`tests/issuer.py`, and `Doors` tries one token at every door of one deployment.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from joserfc import jws

from contextos.adapters.key_files import KeyFiles
from contextos.adapters.oidc_directory import SignedIn
from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.errors import NotFound, SignatureInvalid, Unavailable
from contextos.server.mcp.oauth import oauth_resource
from contextos.server.mcp.serving import governed_server
from contextos.server.mcp.sessions import ServedSessions
from contextos.server.serving import listen, serve_oauth
from contextos.store.shared.clock import SystemClock
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.seal import seal
from contextos.workspace import open_unchecked
from contextos.workspace.logins.bearer import BearerTokens
from contextos.workspace.settings import Settings
from tests.http_face import REQUESTER, TENANT, HttpFace, http_face
from tests.issuer import keys, segment
from tests.loopback import Answer, Asked
from tests.mcp_face import ROOT
from tests.oidc_provider import CLIENT, SECRET, Browser, Provider, provider
from tests.sessions import chosen_by_agent
from tests.unit.adapters.test_signed_directory import KEEPER, write
from tests.world import public_key

RESOURCE = "https://tools.acme.example/mcp"
AGENT = "agt_support"
X5C = ["MIIDDTCCAfWgAwIBAgIJAN1L0"]
"""A certificate that nobody reads, so that it can be any text."""


def published(key: str, **members: Any) -> dict[str, Any]:
    """The public half of a key with these members and no others; None leaves one out."""
    made = keys()[key].as_dict(private=False)
    bare = {name: made[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in made}
    return {**bare, **{name: one for name, one in members.items() if one is not None}}


@dataclass(frozen=True)
class Shape:
    """An issuer. `listed` is its key set, `key` the one of ours that signs, `head` and `says` what its tokens have
    beside the times. `settings` is what an operator writes in `[directory]`.
    """

    name: str
    issuer: str
    listed: list[Any]
    key: str
    head: Mapping[str, Any]
    says: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    user: str = REQUESTER
    beside: Mapping[str, Any] = field(default_factory=dict)

    def jwks(self) -> dict[str, Any]:
        return {"keys": self.listed, **self.beside}

    def claims(self, **changes: Any) -> dict[str, Any]:
        now_s = int(time.time())
        made = {"iss": self.issuer, "aud": RESOURCE, "sub": self.user, "iat": now_s, "exp": now_s + 600, **self.says}
        return {name: one for name, one in {**made, **changes}.items() if one is not None}

    def token(self, header: Mapping[str, Any] | None = None, *, by: str = "", **changes: Any) -> str:
        """A token of the issuer; `header` and `changes` replace members, and None leaves one out."""
        head = {name: one for name, one in {**self.head, **(header or {})}.items() if one is not None}
        return signed(head, self.claims(**changes), by or self.key, str(self.head["alg"]))


def signed(head: Mapping[str, Any], claims: Mapping[str, Any], key: str, alg: str) -> str:
    said = f"{segment(dict(head))}.{segment(dict(claims))}"
    signature = jws.JWSRegistry.algorithms[alg].sign(said.encode(), keys()[key])  # type: ignore[attr-defined]
    return f"{said}.{segment(signature)}"


def _shapes() -> list[Shape]:
    rs = "RS256"
    ours: dict[str, Any] = {"clients": [CLIENT]}
    return [
        Shape(
            "okta",
            "https://acme.okta.example/oauth2/default",
            [
                published("rsa-2", kid="w3Fq-old", alg=rs, use="sig", status="EXPIRED"),
                published("rsa-1", kid="5pLV-now", alg=rs, use="sig", status="ACTIVE"),
            ],
            "rsa-1",
            {"kid": "5pLV-now", "alg": rs},
            {
                "ver": 1,
                "jti": "AT.0mP4JKAZX1iACIT4vbEDF7LpvDVjxypPMf0D7uX39RE",
                "cid": CLIENT,
                "uid": "00uid4BxXw6I6TV4m0g3",
                "auth_time": 1_700_000_000,
                "scp": ["openid", "orders.read"],
                "groups": ["Everyone", "idp-support"],
            },
            {**ours, "scopes_claim": "scp"},
        ),
        Shape(
            "auth0",
            "https://acme.eu.auth0.example/",
            [
                published(
                    "rsa-1", kid="NjVBRjY5MDlCMUIwNzU4RTA2", alg=rs, use="sig", x5c=X5C, x5t="NjVBRjY5MDlCMUIwNzU4"
                )
            ],
            "rsa-1",
            {"alg": rs, "typ": "at+jwt", "kid": "NjVBRjY5MDlCMUIwNzU4RTA2"},
            {
                "aud": [RESOURCE, "https://acme.eu.auth0.example/userinfo"],
                "azp": CLIENT,
                "jti": "gX2",
                "client_id": CLIENT,
                "scope": "openid orders.read",
                "permissions": ["orders.read"],
                "https://acme.example/roles": ["idp-support"],
            },
            {**ours, "token_type": "at+jwt", "roles_claim": "https://acme.example/roles"},
        ),
        Shape(
            "entra",
            "https://login.microsoftonline.example/8f1c/v2.0",
            [
                published(
                    "rsa-1",
                    kid="CtTuhMJmD5M7DLdzD2v2x3QKSRY",
                    use="sig",
                    x5t="CtTuhMJmD5M7DLdzD2v2x3QKSRY",
                    x5c=X5C,
                    cloud_instance_name="microsoftonline.example",
                    issuer="https://login.microsoftonline.example/{tenantid}/v2.0",
                ),
                published("rsa-2", kid="kWbkHa0GzSfdlEhZ3rE", use="sig", x5t="kWbkHa0GzSfdlEhZ3rE", x5c=X5C),
            ],
            "rsa-1",
            {"typ": "JWT", "alg": rs, "kid": "CtTuhMJmD5M7DLdzD2v2x3QKSRY", "x5t": "CtTuhMJmD5M7DLdzD2v2x3QKSRY"},
            {
                "nbf": 1_700_000_000,
                "aio": "AXQAi/8WAAAA",
                "azp": CLIENT,
                "azpacr": "1",
                "oid": REQUESTER,
                "rh": "0.AXoA",
                "roles": ["idp-support"],
                "scp": "orders.read",
                "sub": "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ",
                "tid": "8f1c",
                "uti": "fqiBqXLPj0eQa82S-IYFAA",
                "ver": "2.0",
                "xms_ftd": "x",
            },
            {**ours, "user_claim": "oid", "roles_claim": "roles", "scopes_claim": "scp"},
        ),
        Shape(
            "google",
            "https://accounts.google.example",
            [
                published("rsa-2", kid="7d8f26c1f6b0", alg=rs, use="sig"),
                published("rsa-1", kid="1f40f0a8ef3d", alg=rs, use="sig"),
            ],
            "rsa-1",
            {"alg": rs, "kid": "1f40f0a8ef3d", "typ": "JWT"},
            {
                "azp": RESOURCE,
                "hd": "acme.example",
                "email": "ana@acme.example",
                "email_verified": True,
                "at_hash": "uJQ6z",
                "name": "Ana",
                "locale": "en",
            },
            {"roles_claim": "hd", "roles": {"acme.example": "support_agent"}},
        ),
        Shape(
            "keycloak",
            "https://sso.acme.example/realms/acme",
            [
                published("enc", kid="yJ4-enc", alg="RSA-OAEP", use="enc", x5c=X5C, x5t="b0", **{"x5t#S256": "c1"}),
                published("rsa-1", kid="FJ86-sig", alg=rs, use="sig", x5c=X5C, x5t="b0", **{"x5t#S256": "c1"}),
                published("ec-1", kid="Kq3-es", alg="ES256", use="sig"),
                published("ed-1", kid="Pv2-ed", alg="EdDSA", use="sig"),
            ],
            "rsa-1",
            {"alg": rs, "typ": "JWT", "kid": "FJ86-sig"},
            {
                "typ": "Bearer",
                "azp": CLIENT,
                "aud": [RESOURCE, "account"],
                "acr": "1",
                "allowed-origins": ["/*"],
                "realm_access": {"roles": ["offline_access"]},
                "resource_access": {"account": {"roles": ["view-profile"]}},
                "scope": "openid orders.read",
                "groups": ["/staff", "idp-support"],
                "sid": "b3",
            },
            ours,
        ),
        Shape(
            "cognito",
            "https://cognito-idp.eu-west-1.amazonaws.example/eu-west-1_Ab12",
            [
                {**published("rsa-2", kid="A1g="), "alg": rs, "use": "sig"},
                {**published("rsa-1", kid="m0x4dLk="), "alg": rs, "use": "sig"},
            ],
            "rsa-1",
            {"kid": "m0x4dLk=", "alg": rs},
            {
                "cognito:groups": ["idp-support"],
                "cognito:username": "ana",
                "token_use": "id",
                "origin_jti": "aaaa",
                "event_id": "bbbb",
                "auth_time": 1_700_000_000,
            },
            {"roles_claim": "cognito:groups"},
        ),
        Shape(
            "github",
            "https://token.actions.githubusercontent.example",
            [
                published("rsa-1", kid="cc413527-173f-5a05", alg=rs, use="sig", x5c=X5C, x5t="78167F72", n_comment="x"),
                published("rsa-2", kid="38826b17-6a30-5f9b", alg=rs, use="sig", x5c=X5C, x5t="4F1B0F1E"),
            ],
            "rsa-1",
            {"typ": "JWT", "alg": rs, "x5t": "78167F72", "kid": "cc413527-173f-5a05"},
            {
                "repository": "acme/shop",
                "actor": "ana",
                "ref": "refs/heads/main",
                "run_attempt": "2",
                "environment": "prod",
                "job_workflow_ref": "acme/shop/.github/workflows/x.yml@refs/heads/main",
                "nbf": 1_700_000_000,
            },
            {"roles_claim": "repository", "roles": {"acme/shop": "support_agent"}},
            user="repo:acme/shop:ref:refs/heads/main",
        ),
        Shape(
            "gitlab",
            "https://gitlab.acme.example",
            [
                published("rsa-1", kid="kewiQq9jiC84CvSsJYOB", use="sig", alg=rs),
                published("rsa-2", kid="4i3sFE7s", use="sig", alg=rs),
            ],
            "rsa-1",
            {"kid": "kewiQq9jiC84CvSsJYOB", "typ": "JWT", "alg": rs},
            {
                "namespace_path": "acme",
                "project_path": "acme/shop",
                "ref_protected": "true",
                "pipeline_source": "web",
                "user_identities": [{"provider": "github", "extern_uid": "2435223452345"}],
                "nbf": 1_700_000_000.5,
            },
            {"roles_claim": "project_path", "roles": {"acme/shop": "support_agent"}},
            user="project_path:acme/shop:ref_type:branch:ref:main",
        ),
        Shape(
            "kubernetes",
            "https://kubernetes.default.svc.cluster.local",
            [published("rsa-1", kid="JWT-k8s_4Gb", use="sig", alg=rs)],
            "rsa-1",
            {"alg": rs, "kid": "JWT-k8s_4Gb"},
            {
                "aud": [RESOURCE],
                "nbf": 1_700_000_000,
                "kubernetes.io": {
                    "namespace": "shop",
                    "pod": {"name": "a", "uid": "b"},
                    "serviceaccount": {"name": "support", "uid": "c"},
                    "warnafter": 1_700_000_000,
                },
            },
            {"roles_claim": "sub", "roles": {"system:serviceaccount:shop:support": "support_agent"}},
            user="system:serviceaccount:shop:support",
        ),
        Shape(
            "ping",
            "https://sso.acme.example:9031",
            [
                published("ec-2", kid="k1", use="sig", x5t="q"),
                published("rsa-1", kid="k1", use="sig"),
                published("ec-1", kid="k1", use="sig", alg="ES256", key_ops=["verify"]),
                published("enc", kid="k1", use="enc", alg="RSA-OAEP-256", key_ops=["wrapKey"]),
            ],
            "ec-1",
            {"alg": "ES256", "kid": "k1", "typ": "application/AT+JWT", "pi.atm": "2"},
            {"scope": ["orders.read"], "client_id": CLIENT, "jti": "Yn", "groups": "idp-support"},
            {**ours, "token_type": "at+jwt"},
        ),
        Shape(
            "dex",
            "https://dex.acme.example/dex",
            [
                published("rsa-1", kid="a5c0f1", use="sig", alg=rs),
                {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA", "kid": "pq"},
            ],
            "rsa-1",
            {"alg": rs, "kid": "a5c0f1"},
            {
                "at_hash": "x",
                "email": "ana@acme.example",
                "email_verified": True,
                "groups": ["idp-support"],
                "federated_claims": {"connector_id": "ldap", "user_id": "7"},
            },
        ),
        Shape(
            "zitadel, EdDSA",
            "https://id.acme.example",
            [
                {"kty": "OKP", "crv": "X448", "x": "AA", "kid": "e1"},
                published("ed-1", kid="e1", alg="Ed25519"),
                {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "e1"},
                "no key at all",
                published("rsa-2", use="sig"),
            ],
            "ed-1",
            {"alg": "EdDSA", "kid": "e1", "cty": "JWT", "typ": "jwt"},
            {"scope": "", "groups": ["idp-support"], "note": "x" * 8_000, "iat": int(time.time()) - 5.25},
            {"algorithms": ["RS256", "PS256", "EdDSA"]},
            beside={"spiffe_sequence": 1, "cache": {"max_age": 1}},
        ),
        Shape(
            "open banking, PS256",
            "https://auth.bank.example",
            [published("rsa-1", kid="ps", alg="PS256", use="sig"), published("rsa-2", kid="ps", alg=rs, use="sig")],
            "rsa-1",
            {"alg": "PS256", "kid": "ps", "typ": "JWT"},
            {"groups": ["idp-support"]},
            {"algorithms": ["RS256", "PS256"]},
        ),
    ]


def shapes() -> dict[str, Shape]:
    return {one.name: one for one in _shapes()}


def settings_of(shape: Shape, url: str) -> str:
    """The tables of the settings for the users of this issuer, whose keys and login are at `url`."""
    said = {
        "kind": "oidc",
        "path": "directory.dsse.json",
        "signers": [public_key(KEEPER).hex()],
        "issuer": shape.issuer,
        "audience": RESOURCE,
        "jwks_url": f"{url}/jwks.json",
        "scopes": ["orders.read", "payments.refund"],
        **{name: one for name, one in shape.settings.items() if name != "roles"},
    }
    logins = {
        "origin": "https://contextos.acme.example",
        "client_id": CLIENT,
        "authorization_url": f"{url}/authorize",
        "token_url": f"{url}/token",
        "secret_file": "client.secret",
    }
    others = {f"idp-{role}": role for role in ("support_lead", "finance_lead", "operator")}
    roles = {**shape.settings.get("roles", {"idp-support": "support_agent"}), **others}
    tables = {"directory": said, "directory.roles": roles, "browser_logins": logins}
    return "\n".join(
        f"[{name}]\n" + "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items())
        for name, table in tables.items()
    )


@dataclass
class Doors:
    """One deployment, whose users are those of one issuer. `keys` is what is at the address of its key set, and
    `fetched` how often it was asked for.
    """

    shape: Shape
    provider: Provider
    keys: Answer
    face: HttpFace = field(init=False)
    mcp_url: str = ""
    fetched: int = 0

    def answers(self, token: str) -> dict[str, Any]:
        """What each door says to a token: the person, 401 or 503."""
        return {
            "http": self._http("/v1/caller", token),
            "http runs": self._http("/v1/runs", token),
            "mcp": self._mcp(token),
            "browser": self._browser(token),
            "in process": self._in_process(token),
            "sign_in": self._sign_in(token),
        }

    def all_say(self, token: str) -> Any:
        """The one answer of all doors."""
        said = self.answers(token)
        assert len(set(map(str, said.values()))) == 1, said
        return said["http"]

    def _http(self, path: str, token: str) -> Any:
        answer = self.face.anonymous("GET", path, headers={"Authorization": f"Bearer {token}"})
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith('Bearer realm="contextos", error="invalid_token"')
            assert set(answer.json()) == {"type", "title", "status", "detail", "code"}, "and nothing of the reason"
        return self._said(answer)

    def _mcp(self, token: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
        with httpx.Client(trust_env=False, timeout=60) as client:
            answer = client.post(f"{self.mcp_url}?session=s1", json=body, headers=headers)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith('Bearer error="invalid_token"')
        return self._said(answer)

    def _browser(self, token: str) -> Any:
        """Log in at the provider, which issues this token as the access token."""
        provider, issuer = self.provider, self.shape

        def issues(**says: Any) -> str:
            if "header" in says:
                return token
            named = {name: says[name] for name in ("aud", "nonce")}
            return issuer.token({"typ": None}, azp=None, **named, sub=_subject(token) or issuer.user)

        provider.issues, provider.response = issues, {"iss": issuer.issuer}
        browser = Browser(self.face, provider)
        answer = browser.log_in()
        if answer.status_code == 303:
            return self._said(browser.send("GET", "/v1/caller"))
        assert answer.status_code in (403, 503), answer.text
        return 503 if answer.status_code == 503 else 401

    def _in_process(self, token: str) -> Any:
        tokens: BearerTokens = self.face.app.bearer_tokens(bound_to="127.0.0.1")
        return self._of(tokens.caller(token))

    def _sign_in(self, token: str) -> Any:
        return self._of(self.face.app.sign_in(TENANT, token, agent_id=AGENT))

    def _of(self, work: Any) -> Any:
        try:
            found = self.face.call(work)
        except (SignatureInvalid, NotFound):
            return 401
        except Unavailable:
            return 503
        return found.user_id if isinstance(found, SignedIn) else found.subject

    def _said(self, answer: httpx.Response) -> Any:
        if answer.status_code == 503:
            assert int(answer.headers["retry-after"]) >= 1
        if answer.status_code != 200:
            return answer.status_code
        said = answer.json()
        assert "error" not in said, said
        return said.get("subject", self.shape.user)


def _subject(token: str) -> str | None:
    subject = (unverified_payload(token) or {}).get("sub")
    return subject if isinstance(subject, str) else None


@contextmanager
def doors(folder: Path, shape: Shape) -> Iterator[Doors]:
    """A deployment whose users are those of `shape`, with every door open."""
    with provider() as made:
        sent = {"Cache-Control": "no-store, max-age=0", "Expires": "0"}
        opened = Doors(shape, made, (200, json.dumps(shape.jwks()).encode(), sent))

        def instead(asked: Asked) -> Answer | None:
            if asked.path != "/jwks.json":
                return None
            opened.fetched += 1
            return opened.keys

        async def begin(path: Path) -> None:
            workspace = make_workspace(path)
            pack = json.loads((ROOT / "examples" / "support_refund" / "pack.json").read_bytes())
            chosen_by_agent(pack)
            envelope = seal(PACK_TYPE, canonical(pack), KeyFiles(path / "keys", SystemClock()), "pack")
            (path / "packs" / "support.json").write_text(json.dumps(envelope), "utf-8")
            write(path / "directory.dsse.json", 1, json.loads((path / "directory.json").read_text("utf-8")))
            (path / "client.secret").write_text(SECRET, "utf-8")
            (path / "client.secret").chmod(0o600)
            toml = (path / "contextos.toml").read_text("utf-8").replace('"unsafe_local_directory", ', "")
            (path / "contextos.toml").write_text(f"{toml}\n{settings_of(shape, made.url)}\n", "utf-8")
            app = await open_unchecked(Settings.read(path))
            await app.initialise(TENANT, by=example_operator(path))
            await seed_graph(app, workspace)
            app.close()

        made.instead = instead
        with http_face(folder, begin) as opened.face, mcp_served(opened.face) as opened.mcp_url:
            yield opened


@contextmanager
def mcp_served(face: HttpFace) -> Iterator[str]:
    """The MCP server of the deployment, as `contextos mcp serve --http` serves it."""
    bound = listen("127.0.0.1:0")
    resource = oauth_resource(face.app, TENANT, AGENT)
    stated = face.request("next")["input"]["context"]
    sessions = ServedSessions(face.app, TENANT, AGENT, "support.refund", context=stated)
    done = face.begin(serve_oauth(governed_server(sessions, resource), bound, resource))
    url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
    try:
        yield url
    finally:
        done.cancel()
        with suppress(CancelledError):
            done.result(30)
        bound.close()
