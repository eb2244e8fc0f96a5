"""G161: a token is signed by the key of its issuer for its algorithm, also where keys share an id; the log has why not.

The same tokens at every door are in `tests/e2e/test_issuers_as_they_publish.py`.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.jwks import PinnedJwks
from contextos.adapters.oidc_directory import OidcDirectory
from contextos.errors import SignatureInvalid
from contextos.trust.identity.oidc import TrustedIssuer, verify_oidc_token
from contextos.trust.identity.refusals import refusal_line, shown
from contextos.trust.identity.svid import TrustDomain
from contextos.trust.seal import KeyRing
from contextos.workspace.logins.bearer import BearerTokens, TrustedDomain
from contextos_sim.memory.stores import MemoryStores
from tests.issuer import AUDIENCE, ISSUER, NOW_S, TRUSTED, claims, keys, segment, token
from tests.issuer import signed as signed_bytes
from tests.published_issuers import published, signed
from tests.spire import AUDIENCE as WORKLOADS
from tests.spire import DOMAIN, WORKLOAD, bundle, svid
from tests.unit.adapters.test_oidc_directory import CLAIMS, StillClock, opened
from tests.world import TENANT, run

SAYS = {"groups": ["idp-support"], "scope": "orders.read"}
NOW_US = NOW_S * 1_000_000
RING = KeyRing.from_seed(b"k" * 32)
TWINS = {
    "keys": [
        published("ec-1", kid="a", use="sig"),
        published("rsa-1", kid="a", alg="RS256"),
        published("enc", kid="a", use="enc"),
        published("rsa-2", kid="a", key_ops=["encrypt", "wrapKey"]),
        published("weak", kid="a"),
        published("ed-1", kid="a", alg="Ed25519", key_ops=["verify"]),
        {"kty": "EC", "crv": "P-256K", "kid": "a", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "a", "e": "AQAB", "use": "sig"},
        {"kty": "LATER", "kid": "a", "use": "sig"},
        {"kty": "EC", "crv": ["P-256"], "kid": "a", "key_ops": "verify", "alg": 7},
    ]
}
"""Keys of one issuer with one id: three sign, and the others are for something else, or are no keys at all."""


def named(alg: str, key: str, **header: Any) -> str:
    head = {"alg": alg, "kid": "a", "typ": "JWT", **header}
    return signed({name: one for name, one in head.items() if one is not None}, claims(**SAYS), key, alg)


def mac(key: str) -> str:
    said = f"{segment({'alg': 'HS256', 'kid': 'a', 'typ': 'JWT'})}.{segment(claims(**SAYS))}"
    return f"{said}.{segment(hmac.digest(keys()[key].as_pem(private=False), said.encode(), 'sha256'))}"


def relabelled(alg: str) -> str:
    """A token of the EC key that says to be of another algorithm."""
    _, body, signature = named("ES256", "ec-1").split(".")
    return f"{segment({'alg': alg, 'kid': 'a', 'typ': 'JWT'})}.{body}.{signature}"


def brought(**header: Any) -> str:
    """A token by a key of somebody else, which brings it along."""
    return named("ES256", "ec-x", **header)


def nested(inner: str) -> str:
    """A token around a token, signed by the issuer (RFC 7519, 5.2)."""
    head = {"alg": "ES256", "kid": "a", "typ": "JWT", "cty": "JWT"}
    return signed_bytes(head, inner.encode(), "ec-1", "ES256")


ATTACKS: dict[str, tuple[Callable[[], str], str]] = {
    "by the key for encryption": (lambda: named("RS256", "enc"), "signature"),
    "by the key that only wraps": (lambda: named("RS256", "rsa-2"), "signature"),
    "by the key of 1024 bits": (lambda: named("RS256", "weak"), "signature"),
    "by the right key, with an algorithm of another key": (lambda: named("PS256", "rsa-1"), "signature"),
    "of the EC key, called RS256": (lambda: relabelled("RS256"), "signature"),
    "of the EC key, called EdDSA": (lambda: relabelled("EdDSA"), "signature"),
    "of the EC key, called ES384": (lambda: relabelled("ES384"), "header alg"),
    "called none": (lambda: relabelled("none"), "header alg"),
    "called HS256": (lambda: relabelled("HS256"), "header alg"),
    "HS256 with the RSA key": (lambda: mac("rsa-1"), "header alg"),
    "HS256 with the EC key": (lambda: mac("ec-1"), "header alg"),
    "with a key in `jwk`": (lambda: brought(jwk=published("ec-x", kid="a")), "signature"),
    "with a key behind `jku`": (lambda: brought(jku="https://attacker.example/keys"), "signature"),
    "with a key behind `x5u`": (lambda: brought(x5u="https://attacker.example/cert"), "signature"),
    "with a certificate in `x5c`": (lambda: brought(x5c=["MIID"], x5t="AA"), "signature"),
    "by the key of another issuer with this id": (lambda: named("ES256", "ec-x"), "signature"),
    "with the id in a list": (lambda: named("ES256", "ec-1", kid=["a"]), "header kid"),
    "without the id": (lambda: named("ES256", "ec-1", kid=None), "header kid"),
    "with the claims of a token in it": (
        lambda: f"{named('ES256', 'ec-1').split('.')[0]}.{segment(b'a.b.c')}.AAAA",
        "signature",
    ),
}


@pytest.mark.parametrize(("attack", "part"), ATTACKS.values(), ids=ATTACKS)
def test_a_key_signs_for_its_own_algorithm_and_purpose(attack: Callable[[], str], part: str) -> None:
    with pytest.raises(SignatureInvalid) as refused:
        verify_oidc_token(attack(), TRUSTED, TWINS, now_us=NOW_US)
    assert refused.value.part == part


@pytest.mark.parametrize("order", [1, -1], ids=["as listed", "the other way round"])
@pytest.mark.parametrize(
    ("alg", "key", "header"),
    [
        ("ES256", "ec-1", {}),
        ("RS256", "rsa-1", {}),
        ("EdDSA", "ed-1", {}),
        ("Ed25519", "ed-1", {}),
        ("RS256", "rsa-1", {"jwk": {"kty": "oct"}, "jku": 7, "x5u": "x", "x5c": "no list", "x5t": 1}),
        ("ES256", "ec-1", {"typ": "application/JWT", "cty": "JWT"}),
        ("ES256", "ec-1", {"typ": None, "cty": "application/json", "unknown": [1]}),
    ],
    ids=str,
)
def test_each_of_them_signs_what_is_its_own(alg: str, key: str, header: dict[str, Any], order: int) -> None:
    listed = {"keys": TWINS["keys"][::order]}
    assert verify_oidc_token(named(alg, key, **header), TRUSTED, listed, now_us=NOW_US).subject == "user_9041"


def test_the_keys_of_two_trust_domains_with_one_id_are_two(tmp_path: Path) -> None:
    """And twins of one bundle are distinguished as those of an issuer."""
    theirs = {"keys": [{**one, "kid": "svid-1"} for one in bundle("other-1")["keys"]]}
    ours = {"keys": [{**bundle("svid-rsa")["keys"][0], "kid": "svid-1"}, *bundle()["keys"]]}
    clock = StillClock()
    domains = {
        DOMAIN: TrustedDomain(TrustDomain(DOMAIN, WORKLOADS), PinnedJwks(ours), (TENANT,)),
        "other": TrustedDomain(TrustDomain("other", WORKLOADS), PinnedJwks(theirs), (TENANT,)),
    }
    tokens = BearerTokens(opened(tmp_path, clock, MemoryStores()), clock, RING, None, domains)
    assert run(tokens.caller(svid())).subject == WORKLOAD
    for stolen in (svid("other-1", header={"kid": "svid-1"}), svid(sub="spiffe://other/agents/support")):
        with pytest.raises(SignatureInvalid, match="did not sign"):
            run(tokens.caller(stolen))


def test_clients_are_read_where_issuers_write_them_and_no_other_claim_hides_a_wrong_one() -> None:
    api = replace(TRUSTED, clients=("web",))

    def subject(trusted: TrustedIssuer, **said: Any) -> str:
        return verify_oidc_token(
            token(**said), trusted, {"keys": [published("ec-1", kid="ec-1")]}, now_us=NOW_US
        ).subject

    for said in (
        {"azp": "web"},
        {"client_id": "web"},
        {"cid": "web"},
        {"appid": "web"},
        {"azp": "web", "cid": "customer"},
    ):
        assert subject(api, **said) == "user_9041"
    for said in (
        {"cid": "evil"},
        {"appid": "evil"},
        {"azp": "evil", "cid": "web"},
        {"cid": "web", "appid": "evil"},
        {},
    ):
        with pytest.raises(SignatureInvalid, match="another client"):
            subject(api, **said)
    assert subject(TRUSTED, aud=[AUDIENCE, AUDIENCE]) == "user_9041", "one audience, written twice"
    for aud in ([AUDIENCE, 7], [[AUDIENCE]], {"a": AUDIENCE}, f"{AUDIENCE} other", ""):
        with pytest.raises(SignatureInvalid, match="another audience"):
            subject(TRUSTED, aud=aud)


HIDDEN = "\x1b[2J\u202e\nWARNING forged line"


def test_the_log_says_why_and_nothing_that_a_log_must_not_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = StillClock()
    tokens = BearerTokens(opened(tmp_path, clock, MemoryStores(), RING, CLAIMS), clock, RING, ISSUER)
    assert isinstance(tokens.directory, OidcDirectory)
    inner = token(**SAYS)
    said = {
        "claim aud": token(**SAYS, aud=f"payroll{HIDDEN}"),
        "claim groups": token(groups=["ana@acme.example", inner, "x" * 9_000]),
        "header typ": token(**SAYS, header={"typ": HIDDEN}),
        "header kid": token(**SAYS, header={"kid": inner}),
        "claim iss": token(**SAYS, iss=f"https://evil.example/{HIDDEN}"),
        "claim exp": token(**SAYS, exp={"a": [HIDDEN] * 50}),
    }
    for part, sent in said.items():
        with caplog.at_level(logging.WARNING, "contextos"), pytest.raises(SignatureInvalid) as refused:
            run(tokens.caller(sent))
        [line] = [one.getMessage() for one in caplog.records]
        caplog.clear()
        assert f"{part}:" in line
        assert "found `" in line
        assert line.isprintable(), "one line, without what a terminal obeys"
        assert len(line) < 500
        for secret in (inner[:30], inner.split(".")[1][:30], sent[:30], "ana@acme.example"):
            assert secret not in line, part
        assert "payroll" not in str(refused.value), "and whoever catches it shows nothing of the token"


@pytest.mark.parametrize("where", [0, 1], ids=["header", "claims"])
def test_the_name_of_a_member_forges_no_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: int
) -> None:
    clock = StillClock()
    tokens = BearerTokens(opened(tmp_path, clock, MemoryStores(), RING, CLAIMS), clock, RING, ISSUER)
    name = json.dumps(HIDDEN, ensure_ascii=True)
    twice = base64.urlsafe_b64encode(f'{{"alg":"ES256",{name}:1,{name}:1}}'.encode()).rstrip(b"=")
    parts = token(**SAYS).split(".")
    parts[where] = twice.decode()
    with caplog.at_level(logging.WARNING, "contextos"), pytest.raises(SignatureInvalid):
        run(tokens.caller(".".join(parts)))
    [line] = [one.getMessage() for one in caplog.records]
    assert line.isprintable()
    assert "forged" not in line


@pytest.mark.parametrize(
    "sent",
    ["", "a.b", "é.é.é", "a.b.c", "x" * 20_000, "\ud800.a.b"],
    ids=["none", "two", "é", "no JSON", "long", "half"],
)
def test_what_is_no_token_has_its_line_too(sent: str) -> None:
    line = refusal_line(sent, SignatureInvalid("no", part="token", found=sent))
    assert line.startswith("a token of nothing is refused: token: found ")
    assert len(line) < 200
    assert json.loads(json.dumps(shown(sent))) == shown(sent)
