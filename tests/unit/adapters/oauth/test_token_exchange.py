"""`TokenExchange` against a real server: what is asked for, and what each answer of the server means."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.encrypted_keys import read_secret
from contextos.adapters.oauth.token_exchange import TokenExchange
from contextos.contracts.ports.credentials import Credential, CredentialRequest
from contextos.errors import InvalidInput, Unavailable
from contextos.store.shared.clock import SystemClock
from contextos.trust.identity.claims import mint_claim, mint_subject_token
from contextos.trust.seal import KeyRing
from tests.authorization_server import (
    AUDIENCE,
    CLIENT,
    JSON,
    SECRET,
    AuthorizationServer,
    authorization_server,
    port_of,
)
from tests.loopback import Asked

RING = KeyRing.from_seed(b"\x07" * 32)
URN = "agent:acme/shop@1.0.0"


def request_to(server: AuthorizationServer, **more: Any) -> CredentialRequest:
    server.public_key = lambda kid: RING.public_key("claim", kid)
    common: dict[str, Any] = {
        "keys": RING,
        "issuer": "contextos:test",
        "audience": server.url,
        "tenant_id": "tenant_acme",
        "run_id": "run_0123456789abcdef",
        "agent_urn": URN,
        "scopes": frozenset({"a:read", "b:read"}),
        "now_us": SystemClock().now_us(),
        "ttl_s": 60,
        "jti": "tool_1",
    }
    chain: Any = ({"kind": "user", "id": "ana"}, {"kind": "agent", "id": URN})
    from contextos.contracts.envelopes.identity import Principal

    chain = tuple(Principal.model_validate(one) for one in chain)
    given: dict[str, Any] = {
        "tenant_id": "tenant_acme",
        "run_id": "run_0123456789abcdef",
        "subject_token": mint_subject_token(user_id="ana", **common),
        "actor_token": mint_claim(session_id=None, chain=chain, **common).token,
        "audience": AUDIENCE,
        "scopes": ("a:read", "b:read"),
        "ttl_s": 300,
        **more,
    }
    return CredentialRequest(**given)


def exchanged(server: AuthorizationServer, wanted: CredentialRequest | None = None, **port: Any) -> Credential:
    return asyncio.run(port_of(server, **port).exchange(wanted or request_to(server)))


def test_a_request_carries_the_trace_of_its_run() -> None:
    trace = {"traceparent": "00-12345678901234567890123456789012-1234567890123456-01", "tracestate": "contextos=1"}
    with authorization_server() as server:
        exchanged(server, request_to(server, trace=trace))
        assert {name: server.asked[-1].headers[name] for name in trace} == trace
        assert "baggage" not in server.asked[-1].headers


def test_the_form_is_that_of_the_rfc_and_the_answer_a_credential() -> None:
    with authorization_server() as server:
        before_us = SystemClock().now_us()
        credential = exchanged(server)
        [form], [subject], [actor] = server.forms, server.subjects, server.actors
        assert set(form) == {
            "grant_type",
            "subject_token",
            "subject_token_type",
            "actor_token",
            "actor_token_type",
            "audience",
            "scope",
            "requested_token_type",
        }
        assert (form["audience"], form["scope"]) == (AUDIENCE, "a:read b:read")
        assert (subject["sub"], subject["may_act"], actor["sub"]) == ("ana", {"sub": URN}, URN)
        assert [credential.token] == server.issued
        assert credential.scopes == ("a:read", "b:read")
        assert before_us + 120_000_000 <= credential.expires_at_us <= SystemClock().now_us() + 120_000_000
        assert credential.reference.startswith("jti_hash:sha256:")
        assert credential.token not in repr(credential)
        assert form["subject_token"] not in repr(request_to(server))


def test_an_answer_without_a_scope_has_the_scope_that_was_asked_for() -> None:
    with authorization_server() as server:
        server.answer, server.claims = {"scope": None}, {"scope": None, "aud": None, "exp": None, "jti": None}
        credential = exchanged(server)
        assert credential.scopes == ("a:read", "b:read")
        assert credential.reference.startswith("token_hash:sha256:")


def test_an_opaque_token_is_a_credential_and_less_than_was_asked_for_is_said() -> None:
    with authorization_server() as server:
        server.answer = {"access_token": "opaque.0123456789-abcdef", "token_type": "bearer", "scope": "a:read"}
        credential = exchanged(server)
        assert (credential.token, credential.scopes) == ("opaque.0123456789-abcdef", ("a:read",))


def test_a_wrong_secret_and_each_error_say_what_to_do() -> None:
    with authorization_server() as server:
        with pytest.raises(InvalidInput, match=r"`invalid_client`; check `client_id` and the secret"):
            exchanged(server, secret="wrong")
        wanted = request_to(server, scopes=("admin",))
        with pytest.raises(InvalidInput, match=r"`invalid_scope`; let the issuer grant the `required_scopes`"):
            exchanged(server, wanted)
        server.public_key = lambda _kid: None
        with pytest.raises(InvalidInput, match="let the issuer trust the key for claims") as refused:
            asyncio.run(port_of(server).exchange(wanted))
        assert "eyJ" not in str(refused.value)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_server_that_cannot_answer_is_unavailable(status: int) -> None:
    with authorization_server() as server:
        server.instead = lambda _: (status, b'{"error": "invalid_request"}', JSON)
        with pytest.raises(Unavailable, match=f"answered {status}"):
            exchanged(server)


def test_a_server_that_nobody_reaches_is_unavailable() -> None:
    with authorization_server() as server:
        wanted = request_to(server)
    with pytest.raises(Unavailable):
        asyncio.run(port_of(server).exchange(wanted))


def test_a_secret_that_cannot_be_read_for_a_moment_is_an_outage_and_sends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with authorization_server() as server:
        secret = partial(read_secret, file, "", "/credentials")
        port = TokenExchange(server.url, CLIENT, secret, SystemClock(), internal=True)
        with pytest.raises(Unavailable, match="cannot be read"):
            asyncio.run(port.exchange(request_to(server)))
        assert server.asked == []
        file.write_text(SECRET)
        file.chmod(0o600)
        assert asyncio.run(port.exchange(request_to(server))).token


def test_an_address_inside_needs_somebody_who_says_so() -> None:
    with authorization_server() as server:
        with pytest.raises(InvalidInput, match="internal"):
            exchanged(server, internal=False)
        assert server.asked == []


def test_a_redirect_is_not_followed() -> None:
    with authorization_server() as server, authorization_server() as other:
        server.instead = lambda _: (307, b"", {"Location": other.url})
        with pytest.raises(InvalidInput, match="the status 307"):
            exchanged(server)
        assert other.asked == []


def test_the_issuer_is_named_or_is_the_url() -> None:
    with authorization_server() as server:
        assert port_of(server).issuer == server.url
        assert port_of(server, issuer="https://login.example").issuer == "https://login.example"


def test_an_error_that_is_no_known_one_is_not_shown() -> None:
    def tells(asked: Asked) -> Any:
        return 400, json.dumps({"error": asked.body.decode()}).encode(), JSON

    with authorization_server() as server:
        server.instead = tells
        with pytest.raises(InvalidInput, match="the status 400; check the URL") as refused:
            exchanged(server)
        assert "subject_token" not in str(refused.value)
