"""A run mints its own claim; a verifier accepts only the one form, algorithm and key."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OKPKey

from contextos.errors import InvalidEnvelope, InvalidSettings, SignatureInvalid
from contextos.trust.identity.claims import MAX_TTL_S, MintedClaim, mint_claim, mint_subject_token, verify_claim
from contextos.trust.identity.principals import principal_chain
from contextos.trust.seal import KeyRing
from tests.unit.trust.identity.directory_answers import KNOWN, TENANT, URN, request

NOW_US = 1_777_887_000_500_000
RING = KeyRing.from_seed(b"\x01" * 32)


def minted(**changes: Any) -> MintedClaim:
    given: dict[str, Any] = {
        "keys": RING,
        "issuer": "contextos",
        "audience": "tools",
        "tenant_id": TENANT,
        "run_id": "run_a1b2c3d4e5f60718",
        "session_id": "sess_42f1",
        "agent_urn": URN,
        "chain": principal_chain(request(), KNOWN),
        "scopes": frozenset({"payments.refund", "orders.read"}),
        "now_us": NOW_US,
        "ttl_s": 300,
    }
    return mint_claim(**{**given, **changes})


def verified(
    token: str, ring: KeyRing = RING, issuer: str = "contextos", audience: str = "tools", now_us: int = NOW_US
) -> Any:
    return verify_claim(token, ring, issuer=issuer, audience=audience, now_us=now_us)


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token_of(header: dict[str, Any], body: Any, ring: KeyRing = RING, purpose: str = "claim") -> str:
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(body).encode())}"
    return f"{signed}.{b64(ring.sign(purpose, signed.encode())[1])}"


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    header, body, signature = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
    return json.loads(header), json.loads(body), signature


KID = RING.kids("claim")[0]
HEADER = {"alg": "Ed25519", "kid": KID, "typ": "ctxid+jwt"}


def test_a_minted_claim_is_sealed_and_verifies_to_itself() -> None:
    made = minted()
    assert verified(made.token) == made.claim
    assert made.claim.sealed() == made.claim
    assert made.claim.claim_hash == "sha256:" + hashlib.sha256(made.token.encode()).hexdigest()
    assert made.claim.scopes == ("orders.read", "payments.refund")
    assert (made.claim.nbf, made.claim.exp) == (1_777_887_000, 1_777_887_300)
    assert parts(made.token)[0] == HEADER
    assert "claim_hash" not in parts(made.token)[1]


def test_the_same_run_mints_the_same_token() -> None:
    assert minted() == minted()
    assert minted().token != minted(run_id="run_a1b2c3d4e5f60719").token


def test_a_claim_without_a_session_names_none() -> None:
    made = minted(session_id=None)
    assert verified(made.token).session_id is None
    assert "session_id" not in parts(made.token)[1]


def test_an_independent_implementation_reads_our_token_and_we_read_its() -> None:
    public = RING.public_key("claim", KID)
    assert public is not None
    key = OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": b64(public)})
    read = jws.deserialize_compact(minted().token, key, algorithms=["Ed25519"])
    assert json.loads(read.payload)["run_id"] == "run_a1b2c3d4e5f60718"
    secret = hashlib.sha256(b"contextos claim\0" + b"\x01" * 32).digest()
    private = OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": b64(public), "d": b64(secret)})
    theirs = jws.serialize_compact(dict(HEADER), read.payload, private, algorithms=["Ed25519"])
    assert verified(theirs).run_id == "run_a1b2c3d4e5f60718"


@pytest.mark.parametrize(
    "header",
    [
        {**HEADER, "alg": "none"},
        {**HEADER, "alg": "None"},
        {**HEADER, "alg": "HS256"},
        {**HEADER, "alg": "EdDSA"},
        {**HEADER, "alg": "ES256"},
        {**HEADER, "alg": ["Ed25519"]},
        {"alg": "Ed25519", "typ": "ctxid+jwt"},
        {**HEADER, "typ": "JWT"},
        {"alg": "Ed25519", "kid": KID},
        {**HEADER, "crit": ["exp"]},
        {**HEADER, "b64": False},
        {**HEADER, "jwk": {"kty": "OKP"}},
        {**HEADER, "jku": "https://evil.example"},
        {**HEADER, "kid": 7},
        {**HEADER, "kid": None},
    ],
)
def test_any_header_but_our_own_is_refused_although_the_signature_holds(header: dict[str, Any]) -> None:
    body = parts(minted().token)[1]
    assert verified(token_of(HEADER, body)).kid == KID
    with pytest.raises(SignatureInvalid, match="header"):
        verified(token_of(header, body))


def test_a_token_without_a_signature_is_refused() -> None:
    header, body, _ = minted().token.split(".")
    unsigned = b64(json.dumps({"alg": "none"}).encode())
    for token in (
        f"{header}.{body}.",
        f"{unsigned}.{body}.",
        f"{header}.{body}",
        f"{header}.{body}..",
        "",
        "..",
        "a.b.c.d",
    ):
        with pytest.raises(SignatureInvalid):
            verified(token)


def test_an_hmac_keyed_with_the_public_key_is_no_signature() -> None:
    public = RING.public_key("claim", KID)
    assert public is not None
    for alg in ("HS256", "Ed25519"):
        header = b64(json.dumps({**HEADER, "alg": alg}).encode())
        signed = f"{header}.{minted().token.split('.')[1]}"
        mac = hmac.new(public, signed.encode(), hashlib.sha256).digest()
        for signature in (mac, mac * 2):
            with pytest.raises(SignatureInvalid):
                verified(f"{signed}.{b64(signature)}")


def test_an_altered_body_is_refused() -> None:
    header, _, signature = minted().token.split(".")
    body = parts(minted().token)[1]
    with pytest.raises(SignatureInvalid, match="made this signature"):
        verified(f"{header}.{b64(json.dumps({**body, 'scopes': ['admin']}).encode())}.{signature}")


def test_a_key_of_another_ring_or_purpose_mints_nothing_for_us() -> None:
    other = KeyRing.from_seed(b"\x02" * 32)
    body = parts(minted().token)[1]
    with pytest.raises(SignatureInvalid, match="made this signature"):
        verified(token_of({**HEADER, "kid": other.kids("claim")[0]}, body, other))
    with pytest.raises(SignatureInvalid, match="made this signature"):
        verified(token_of(HEADER, body, other))
    with pytest.raises(SignatureInvalid, match="made this signature"):
        verified(token_of({**HEADER, "kid": RING.kids("head")[0]}, body, RING, "head"))


def test_an_encoding_that_could_be_read_in_two_ways_is_refused() -> None:
    header, body, signature = minted().token.split(".")
    last = {"A": "B", "Q": "R", "g": "h", "w": "x"}[signature[-1]]
    for token in (
        f"{header}.{body}.{signature}==",
        f"{header}.{body}.{signature[:-1]}{last}",
        f"{header}.{body}.{signature}\n",
        f" {header}.{body}.{signature}",
        f"{header}.{body}.{signature[:-2]}++",
        minted().token + "é",
    ):
        with pytest.raises(SignatureInvalid):
            verified(token)


def test_a_token_that_is_too_long_is_refused_unread() -> None:
    with pytest.raises(SignatureInvalid, match="compact JWS"):
        verified("A" * 20_000 + ".A.A")


def test_another_issuer_audience_or_time_is_refused() -> None:
    token = minted().token
    exp_us = (NOW_US // 1_000_000 + 300) * 1_000_000
    assert verified(token, now_us=exp_us - 1) == minted().claim
    assert verified(token, now_us=NOW_US // 1_000_000 * 1_000_000) == minted().claim
    for changed in (
        {"issuer": "evil"},
        {"audience": "mail"},
        {"now_us": exp_us},
        {"now_us": NOW_US - 1_000_000},
        {"now_us": 0},
    ):
        with pytest.raises(SignatureInvalid):
            verified(token, **changed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", "ctxid/2"),
        ("version", None),
        ("exp", None),
        ("nbf", None),
        ("exp", "9999999999"),
        ("exp", 1e30),
        ("iss", None),
        ("kid", "kid_0000000000000000"),
        ("extra", 1),
        ("claim_hash", "sha256:" + "0" * 64),
        ("run_id", "run_x"),
        ("sub", "root"),
    ],
)
def test_a_well_signed_body_that_is_no_sealed_claim_is_refused(name: str, value: Any) -> None:
    body = parts(minted().token)[1]
    if name != "claim_hash":
        body[name] = value
        with pytest.raises(SignatureInvalid):
            verified(token_of(HEADER, body))
    else:
        token = token_of(HEADER, {**body, name: value})
        assert verified(token).claim_hash == "sha256:" + hashlib.sha256(token.encode()).hexdigest()


@pytest.mark.parametrize("body", [[], "x", None, 5])
def test_a_well_signed_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(SignatureInvalid, match="not a JSON object"):
        verified(token_of(HEADER, body))


def test_a_duplicate_key_in_a_signed_body_is_refused() -> None:
    header = b64(json.dumps(HEADER).encode())
    body = b64(json.dumps(parts(minted().token)[1]).replace('"sub"', '"sub": "x", "sub"', 1).encode())
    signature = b64(RING.sign("claim", f"{header}.{body}".encode())[1])
    with pytest.raises(SignatureInvalid, match="is not JSON"):
        verified(f"{header}.{body}.{signature}")


def test_a_claim_is_short_lived_and_well_formed_or_not_minted() -> None:
    for ttl_s in (0, -1, MAX_TTL_S + 1):
        with pytest.raises(InvalidSettings, match="the lifetime of a claim"):
            minted(ttl_s=ttl_s)
    with pytest.raises(InvalidSettings, match="no key to sign"):
        minted(keys=KeyRing({"head": b"\x05" * 32}))
    with pytest.raises(InvalidEnvelope):
        minted(run_id="run_short")


def test_a_token_about_the_user_says_who_may_act_and_is_no_claim() -> None:
    token = mint_subject_token(
        keys=RING,
        issuer="contextos",
        audience="tools",
        tenant_id=TENANT,
        run_id="run_a1b2c3d4e5f60718",
        user_id="ana",
        agent_urn=URN,
        scopes=frozenset({"payments.refund", "orders.read"}),
        now_us=NOW_US,
        ttl_s=60,
        jti="tool_1.1",
    )
    header, body, _ = parts(token)
    assert header == {"alg": "Ed25519", "kid": KID, "typ": "ctxsub+jwt"}
    said = (body["sub"], body["may_act"], body["scope"], body["tenant_id"], body["exp"] - body["iat"])
    assert said == ("ana", {"sub": URN}, "orders.read payments.refund", TENANT, 60)
    public = RING.public_key("claim", KID)
    assert public is not None
    key = OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": b64(public)})
    assert json.loads(jws.deserialize_compact(token, key, algorithms=["Ed25519"]).payload) == body
    with pytest.raises(SignatureInvalid, match="header"):
        verified(token)
