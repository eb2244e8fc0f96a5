"""What every kind of token shares: the keys that count, and what is read before anything is verified.

The attacks are in `tests/attacks/test_e28_oidc_tokens.py` and `tests/attacks/test_e33_bearer_tokens.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from contextos.errors import InvalidInput, SignatureInvalid
from contextos.trust.identity.jwt import check_jwks, token_key_id, token_type_of
from tests.issuer import token


@pytest.mark.parametrize(
    "listed",
    [
        None,
        {},
        {"keys": {}},
        {"keys": [{"kid": str(n)} for n in range(65)]},
        {"keys": [{"kty": "oct", "kid": "a"}]},
        {"keys": [{"kty": "EC", "kid": "a"}, {"kty": "RSA", "n": "AQ", "e": "AQ", "d": "AQ"}]},
        {"jwks_uri": "https://login.acme.example/keys", "issuer": "x"},
    ],
    ids=["nothing", "no list", "a table", "too many", "a secret", "a private key", "discovery"],
)
def test_what_is_no_jwk_set_is_refused(listed: Any) -> None:
    with pytest.raises(InvalidInput):
        check_jwks(listed)


def test_a_key_without_an_id_is_left_out() -> None:
    assert check_jwks({"keys": [{"kty": "RSA"}, {"kid": "a"}, "no key"]}).keys() == {"a"}


def test_the_key_id_of_a_token_is_read_without_trust() -> None:
    assert token_key_id(token()) == "ec-1"
    for said in ("", "a.b", token(header={"kid": None}), "x" * 20_000):
        with pytest.raises(SignatureInvalid):
            token_key_id(said)


def test_keys_that_share_an_id_are_all_kept() -> None:
    listed = [
        {"kty": "EC", "kid": "a"},
        {"kty": "RSA", "kid": "a"},
        {"kty": "RSA", "kid": 7},
        {"kty": "RSA", "kid": ""},
    ]
    assert check_jwks({"keys": listed}) == {"a": listed[:2]}


def test_with_a_use_only_keys_that_state_it_count() -> None:
    listed = [{"kid": "a", "use": "jwt-svid"}, {"kid": "b", "use": "x509-svid"}, {"kid": "c"}, {"kid": "b"}]
    assert check_jwks({"keys": listed}, use="jwt-svid").keys() == {"a"}


def test_the_type_of_a_token_is_read_without_trust() -> None:
    assert token_type_of(token()) == "JWT"
    assert token_type_of(token(header={"typ": None})) is None
    assert token_type_of(token(header={"typ": 7})) is None
