"""Which OIDC tokens count, and what is read from them. The attacks are in `tests/attacks/test_e28_oidc_tokens.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextos.errors import InvalidInput, InvalidSettings, SignatureInvalid
from contextos.trust.identity.jwt import MAX_TOKEN_LIFETIME_S
from contextos.trust.identity.oidc import TrustedIssuer, verify_oidc_token
from tests.issuer import AUDIENCE, ISSUER, NOW_S, TRUSTED, jwks, token

NOW_US = NOW_S * 1_000_000


def verify(said: str, **options: Any) -> Any:
    return verify_oidc_token(said, TRUSTED, jwks(), **{"now_us": NOW_US, **options})


@pytest.mark.parametrize(
    ("kid", "alg"), [("rsa-1", "RS256"), ("rsa-1", "PS256"), ("ec-1", "ES256"), ("ed-1", "Ed25519")]
)
def test_a_token_of_the_issuer_is_read(kid: str, alg: str) -> None:
    found = verify(token(kid, alg, email="a@acme.example"))
    assert (found.issuer, found.audience, found.subject) == (ISSUER, AUDIENCE, "user_9041")
    assert (found.issued_at_s, found.expires_at_s, found.auth_time_s) == (NOW_S - 5, NOW_S + 300, NOW_S - 10)
    assert found.claims["email"] == "a@acme.example"
    assert "acme.example" not in repr(found).replace(ISSUER, ""), "claims about a person are not in a log"


@pytest.mark.parametrize(
    ("change", "now_s"),
    [
        ({"exp": NOW_S}, NOW_S + 59),
        ({"iat": NOW_S + 60, "exp": NOW_S + 90}, NOW_S),
        ({"nbf": NOW_S + 60}, NOW_S),
        ({"aud": ["other", AUDIENCE], "azp": AUDIENCE}, NOW_S),
        ({"iat": NOW_S - 5.5}, NOW_S),
    ],
    ids=["expired within the leeway", "issued within it", "valid within it", "several audiences", "a fraction"],
)
def test_what_is_within_the_bounds_counts(change: dict[str, Any], now_s: int) -> None:
    assert verify(token(**change), now_us=now_s * 1_000_000).subject == "user_9041"


@pytest.mark.parametrize(
    "change",
    [
        {"exp": None},
        {"iat": None},
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": NOW_S - 61},
        {"iat": NOW_S + 61, "exp": NOW_S + 90},
        {"nbf": NOW_S + 61},
        {"exp": NOW_S + MAX_TOKEN_LIFETIME_S},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
        {"aud": None},
        {"aud": []},
        {"aud": {"contextos": True}},
        {"aud": ["other", AUDIENCE]},
        {"azp": "other"},
        {"auth_time": "then"},
    ],
    ids=str,
)
def test_what_is_out_of_bounds_does_not(change: dict[str, Any]) -> None:
    with pytest.raises(SignatureInvalid):
        verify(token(**change))


def test_a_question_binds_its_token_by_the_nonce() -> None:
    assert verify(token(nonce="sha256:1"), nonce="sha256:1").nonce == "sha256:1"
    for said, asked in ((token(nonce="sha256:2"), "sha256:1"), (token(), "sha256:1"), (token(nonce=""), "")):
        with pytest.raises(SignatureInvalid, match="nonce"):
            verify(said, nonce=asked)


def test_a_login_is_recent_or_the_token_is_refused() -> None:
    assert verify(token(auth_time=NOW_S - 300), max_auth_age_s=300).auth_time_s == NOW_S - 300
    for auth_time in (None, NOW_S - 361, NOW_S + 61):
        with pytest.raises(SignatureInvalid, match="logged in"):
            verify(token(auth_time=auth_time), max_auth_age_s=300)
    for never in (0, -1, 10**9):
        with pytest.raises(InvalidInput):
            verify(token(), max_auth_age_s=never)


def test_an_access_token_is_no_id_token_and_the_reverse() -> None:
    api = TrustedIssuer(ISSUER, AUDIENCE, token_type="at+jwt")
    access = token(header={"typ": "at+jwt"})
    assert verify_oidc_token(access, api, jwks(), now_us=NOW_US).subject == "user_9041"
    assert verify(token(header={"typ": None})).subject == "user_9041", "an ID token can leave its type out"
    for said, trusted in ((access, TRUSTED), (token(), api), (token(header={"typ": None}), api)):
        with pytest.raises(SignatureInvalid, match="type"):
            verify_oidc_token(said, trusted, jwks(), now_us=NOW_US)


@pytest.mark.parametrize(
    "setting",
    [
        {"issuer": ""},
        {"audience": ""},
        {"algorithms": ()},
        {"algorithms": ("none",)},
        {"algorithms": ("RS256", "HS256")},
        {"leeway_s": -1},
        {"leeway_s": 301},
        {"leeway_s": True},
        {"clients": ("",)},
        {"clients": "web"},
    ],
    ids=str,
)
def test_an_issuer_that_cannot_be_trusted_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        TrustedIssuer(**{"issuer": ISSUER, "audience": AUDIENCE, **setting})


def test_the_clients_of_an_issuer_are_those_to_which_its_tokens_were_issued() -> None:
    trusted = replace(TRUSTED, clients=("web", "cli"))
    for said in ({"azp": "web"}, {"client_id": "cli"}, {"azp": "web", "aud": ["account", AUDIENCE]}):
        assert verify_oidc_token(token(**said), trusted, jwks(), now_us=NOW_US).subject == "user_9041"
    for said in ({}, {"azp": "evil"}, {"client_id": "evil"}, {"azp": "web", "client_id": "evil"}, {"azp": ["web"]}):
        with pytest.raises(SignatureInvalid, match="another client"):
            verify_oidc_token(token(**said), trusted, jwks(), now_us=NOW_US)
