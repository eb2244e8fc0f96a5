"""What of an answer is a credential: the attacks have what is refused; here is where the line goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.adapters.oauth.issued_token import ACCESS_TOKEN, issued_credential
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.ports.credentials import CredentialRequest
from contextos.errors import InvalidInput
from tests.authorization_server import token_of

ASKED = CredentialRequest("tenant_acme", "run_1", "s", "a", "https://api.example", ("a", "b"), 300)
NOW_US = 1_793_000_000_000_000


def answer(**changes: Any) -> bytes:
    said = {
        "access_token": "0123456789abcdef",
        "issued_token_type": ACCESS_TOKEN,
        "token_type": "Bearer",
        "expires_in": 300,
        "scope": "b a",
        **changes,
    }
    return json.dumps({name: value for name, value in said.items() if value is not None}).encode()


def jwt(**changes: Any) -> bytes:
    made = {"aud": ASKED.audience, "exp": NOW_US // 1_000_000 + 300, "scope": "a b", "jti": "one", **changes}
    return answer(access_token=token_of({name: value for name, value in made.items() if value is not None}))


def test_the_longest_life_that_was_asked_for_is_accepted_and_one_second_more_is_not() -> None:
    assert issued_credential(answer(), ASKED, NOW_US).expires_at_us == NOW_US + 300_000_000
    with pytest.raises(InvalidInput, match="longer than 300 s; shorten"):
        issued_credential(answer(expires_in=301), ASKED, NOW_US)
    with pytest.raises(InvalidInput, match="longer than 300 s; shorten"):
        issued_credential(jwt(exp=NOW_US // 1_000_000 + 302), ASKED, NOW_US)


def test_members_that_nobody_asked_for_are_dropped() -> None:
    assert issued_credential(answer(session_state="x", not_before_policy=0), ASKED, NOW_US).scopes == ("b", "a")


@pytest.mark.parametrize("audience", ["https://api.example", ["https://api.example"], None])
def test_a_jwt_for_the_service_alone_is_accepted(audience: Any) -> None:
    credential = issued_credential(jwt(aud=audience), ASKED, NOW_US)
    assert credential.reference == f"jti_hash:{digest(b'one')}"


@pytest.mark.parametrize("audience", ["https://api.example/", [], ["a", "https://api.example"], 5, {"a": 1}])
def test_a_jwt_for_anybody_else_is_refused(audience: Any) -> None:
    with pytest.raises(InvalidInput, match="for another service; correct the audience"):
        issued_credential(jwt(aud=audience), ASKED, NOW_US)


@pytest.mark.parametrize("scope", ["a b c", "c", "", " a", "a  b", "A"])
def test_scopes_that_nobody_asked_for_are_refused(scope: str) -> None:
    for body in (answer(scope=scope), jwt(scope=scope)):
        with pytest.raises(InvalidInput, match="scopes that nobody asked for"):
            issued_credential(body, ASKED, NOW_US)


@pytest.mark.parametrize("token", ["aaaaaaaa.bbbbbbbb.cccccccc", "e30.e30.c2lnbmF0dXJl", "W10.e30.c2lnbmF0dXJl00"])
def test_a_token_that_is_no_jwt_is_opaque(token: str) -> None:
    reference = issued_credential(answer(access_token=token), ASKED, NOW_US).reference
    assert reference == f"token_hash:{digest(token.encode())}"


@pytest.mark.parametrize("body", [b"", b"null", b"[" * 70_000, b'{"access_token": NaN}', b"\xff"])
def test_an_answer_that_is_no_object_is_refused_and_not_quoted(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="the answer of the token endpoint is refused"):
        issued_credential(body, ASKED, NOW_US)


def test_no_refusal_quotes_the_token() -> None:
    secret = "0123456789abcdef-SECRET"
    for changes in ({"expires_in": "x"}, {"token_type": "mac"}, {"scope": 5}, {"access_token": secret + " "}):
        with pytest.raises(InvalidInput) as refused:
            issued_credential(answer(**{"access_token": secret, **changes}), ASKED, NOW_US)
        assert "SECRET" not in str(refused.value)
