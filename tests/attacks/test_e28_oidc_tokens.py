"""E28: tokens that the trusted issuer did not make for this audience, now, with one of its own keys."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from joserfc.jwk import ECKey

from contextos.errors import SignatureInvalid
from contextos.trust.identity.oidc import TrustedIssuer, verify_oidc_token
from tests.issuer import AUDIENCE, ISSUER, NOW_S, TRUSTED, claims, jwks, keys, mac_with, segment, signed, token

NOW_US = NOW_S * 1_000_000


def unsigned(alg: str) -> str:
    return f"{segment({'alg': alg, 'kid': 'ec-1', 'typ': 'JWT'})}.{segment(claims())}."


def swapped() -> str:
    """The claims of another person under a signature that the issuer made."""
    head, _, signature = token().split(".")
    return f"{head}.{segment(claims(sub='user_cfo'))}.{signature}"


def own_key(**header: object) -> str:
    """A token that the attacker signed with a key of their own, which they bring along."""
    attacker = ECKey.generate_key("P-256", {"kid": "ec-1"})
    real = keys()["ec-1"]
    try:
        keys()["ec-1"] = attacker
        return token(header={"jwk": attacker.as_dict(private=False), **header})
    finally:
        keys()["ec-1"] = real


ATTACKS: dict[str, Callable[[], str]] = {
    "alg none": lambda: unsigned("none"),
    "alg None": lambda: unsigned("None"),
    "alg none, with a signature": lambda: unsigned("none") + token().rpartition(".")[2],
    "no alg": lambda: f"{segment({'kid': 'ec-1'})}.{segment(claims())}.{token().rpartition('.')[2]}",
    "HS256 with the public key as PEM": lambda: mac_with(keys()["rsa-1"].as_pem(private=False)),
    "HS256 with the public key as JWK": lambda: mac_with(json.dumps(keys()["rsa-1"].as_dict(private=False)).encode()),
    "an algorithm that is not listed": lambda: token("rsa-1", "RS512"),
    "another person under a real signature": swapped,
    "a key in the header": own_key,
    "a key behind a URL": lambda: own_key(jku="https://attacker.example/jwks"),
    "the id of another key of the issuer": lambda: token("ec-1", header={"kid": "ec-2"}),
    "the id of a key of another type": lambda: token("ec-1", header={"kid": "rsa-1"}),
    "an id that is a path": lambda: token("ec-1", header={"kid": "../../dev/null"}),
    "an id that is not a text": lambda: token("ec-1", header={"kid": None}),
    "a key for encryption": lambda: token("enc", "RS256"),
    "a key of 1024 bits": lambda: token("weak", "RS256"),
    "an algorithm that the key does not have": lambda: token("ec-1", header={"alg": "PS256"}),
    "an extension that nobody understands": lambda: token(header={"crit": ["x"], "x": 1}),
    "an extension under a key that no library checks": lambda: token("ed-1", "Ed25519", {"crit": ["x"], "x": 1}),
    "a payload that is not encoded": lambda: token(header={"b64": False}),
    "a payload that is not encoded, under such a key": lambda: token("ed-1", "Ed25519", {"b64": False}),
    "expired": lambda: token(iat=NOW_S - 600, exp=NOW_S - 300),
    "from the future": lambda: token(iat=NOW_S + 600, exp=NOW_S + 900),
    "for ever": lambda: token(exp=NOW_S + 10**8),
    "for another audience": lambda: token(aud="payroll"),
    "issued to another client": lambda: token(aud=[AUDIENCE, "payroll"], azp="payroll"),
    "of another issuer": lambda: token(iss="https://login.attacker.example"),
    "of an issuer whose name begins alike": lambda: token(iss=f"{ISSUER}/"),
    "a log-out token": lambda: token(header={"typ": "logout+jwt"}),
    "padded": lambda: token() + "=",
    "with a line break": lambda: token() + "\n",
    "in two parts": lambda: token().rpartition(".")[0],
    "encrypted": lambda: token() + ".e30.e30",
    "very long": lambda: token(note="x" * 20_000),
    "nothing": lambda: "",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_token_that_the_issuer_did_not_make_for_us_is_refused(attack: Callable[[], str]) -> None:
    with pytest.raises(SignatureInvalid) as refused:
        verify_oidc_token(attack(), TRUSTED, jwks(), now_us=NOW_US)
    assert "user_9041" not in str(refused.value), "a refusal quotes nothing of the token"


def test_the_same_tokens_without_the_attack_count() -> None:
    for kid, alg in (("ec-1", "ES256"), ("ec-2", "ES256"), ("rsa-1", "RS256"), ("ed-1", "Ed25519")):
        assert verify_oidc_token(token(kid, alg), TRUSTED, jwks(), now_us=NOW_US).subject == "user_9041"


def test_a_key_counts_for_the_algorithm_that_its_issuer_states() -> None:
    alg = "PS256"
    stated = {"keys": [{**one, "alg": "RS256"} if one["kid"] == "rsa-1" else one for one in jwks()["keys"]]}
    assert verify_oidc_token(token("rsa-1", alg), TRUSTED, jwks(), now_us=NOW_US)
    assert verify_oidc_token(token("rsa-1", "RS256"), TRUSTED, stated, now_us=NOW_US)
    with pytest.raises(SignatureInvalid, match="not one for its algorithm"):
        verify_oidc_token(token("rsa-1", alg), TRUSTED, stated, now_us=NOW_US)


def test_claims_with_one_name_twice_are_refused() -> None:
    """Two readers of such a token could see two different people."""
    payload = json.dumps(claims())[:-1] + ', "sub": "user_cfo"}'
    said = signed({"alg": "ES256", "kid": "ec-1"}, payload.encode())
    with pytest.raises(SignatureInvalid, match="not JSON"):
        verify_oidc_token(said, TRUSTED, jwks(), now_us=NOW_US)


def test_a_key_that_the_issuer_withdrew_signs_nothing_more() -> None:
    left = {"keys": [one for one in jwks()["keys"] if one["kid"] != "ec-1"]}
    with pytest.raises(SignatureInvalid, match="no key"):
        verify_oidc_token(token(), TRUSTED, left, now_us=NOW_US)


def test_a_token_of_one_trusted_issuer_is_none_of_the_other() -> None:
    other = TrustedIssuer("https://login.partner.example", AUDIENCE)
    with pytest.raises(SignatureInvalid, match="another issuer"):
        verify_oidc_token(token(), other, jwks(), now_us=NOW_US)
