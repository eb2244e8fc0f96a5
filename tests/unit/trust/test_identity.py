"""The run's claim, and what a request says of identity held against what is known."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OKPKey

from contextos.contracts.envelopes.identity import KnownAgent, KnownUser, Principals
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.errors import InvalidEnvelope, InvalidSettings, SignatureInvalid
from contextos.trust.identity.claims import (
    MAX_TTL_S,
    MintedClaim,
    identity_differences,
    mint_claim,
    principal_chain,
    scopes_in_force,
    verify_claim,
)
from contextos.trust.seal import KeyRing

URN = "agent:contextos/support-refund@1.2.0"
TENANT = "tenant_acme_prod"
NOW_US = 1_777_887_000_500_000
RING = KeyRing.from_seed(b"\x01" * 32)
KNOWN = Principals(
    user=KnownUser(user_id="usr_771", role="customer", scopes=("orders.read", "payments.refund"), delegation_live=True),
    agent=KnownAgent(
        agent_id="agt_support",
        agent_urn=URN,
        workload_identity="spiffe://contextos/agents/support",
        role="support_ops",
        owner="usr_owner",
        lifecycle="active",
        ceiling="destructive",
        scopes=("orders.read", "payments.refund", "mail.send"),
    ),
)


def request(user: dict[str, Any] | None = None, agent: dict[str, Any] | None = None, **rest: Any) -> InvokeRequest:
    return InvokeRequest.model_validate(
        {
            "request_id": "req_1",
            "session_id": "sess_42f1",
            "tenant_id": TENANT,
            "user": {"user_id": "usr_771", **(user or {})},
            "agent": {
                "agent_id": "agt_support",
                "workload_identity": "spiffe://contextos/agents/support",
                **(agent or {}),
            },
            "context_pack_refs": ["ctxpack.support@5.2.0"],
            "input": {"intent": "support.refund", "message": "refund"},
            "mode": "batch",
            "runtime": {},
            "trace": {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"},
            **rest,
        }
    )


def known(user: dict[str, Any] | None = None, agent: dict[str, Any] | None = None) -> Principals:
    return Principals(user=KNOWN.user.model_copy(update=user or {}), agent=KNOWN.agent.model_copy(update=agent or {}))


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
    with pytest.raises(SignatureInvalid, match="no JSON object"):
        verified(token_of(HEADER, body))


def test_a_duplicate_key_in_a_signed_body_is_refused() -> None:
    header = b64(json.dumps(HEADER).encode())
    body = b64(json.dumps(parts(minted().token)[1]).replace('"sub"', '"sub": "x", "sub"', 1).encode())
    signature = b64(RING.sign("claim", f"{header}.{body}".encode())[1])
    with pytest.raises(SignatureInvalid, match="is not JSON"):
        verified(f"{header}.{body}.{signature}")


def test_a_claim_is_short_lived_and_well_formed_or_not_minted() -> None:
    for ttl_s in (0, -1, MAX_TTL_S + 1):
        with pytest.raises(InvalidSettings, match="lives for"):
            minted(ttl_s=ttl_s)
    with pytest.raises(InvalidSettings, match="no key to sign"):
        minted(keys=KeyRing({"head": b"\x05" * 32}))
    with pytest.raises(InvalidEnvelope):
        minted(run_id="run_short")


def test_a_minimal_request_says_nothing_that_differs() -> None:
    assert identity_differences(request(), KNOWN) == ()


def test_a_request_that_says_what_is_known_is_admitted() -> None:
    chain = [link.to_json() for link in principal_chain(request(), KNOWN)]
    claim = {"sub": URN, "run_id": "run_other", "tenant_id": TENANT, "claim_hash": "sha256:...", "scopes": ["root"]}
    said = request(
        {"role": "customer", "delegation": {"auth_type": "oauth2", "scopes": ["orders.read"]}},
        {
            "agent_urn": URN,
            "role": "support_ops",
            "lifecycle": "active",
            "principal_chain": chain,
            "identity_claim": claim,
        },
    )
    assert identity_differences(said, KNOWN) == ()


@pytest.mark.parametrize(
    ("where", "user", "agent"),
    [
        ("user.role", {"role": "finance_lead"}, {}),
        ("agent.role", {}, {"role": "admin"}),
        ("agent.agent_urn", {}, {"agent_urn": "agent:contextos/support-refund@1.2.1"}),
        ("agent.workload_identity", {}, {"workload_identity": "spiffe://evil/agents/support"}),
        ("agent.lifecycle", {}, {"lifecycle": "suspended"}),
        ("user.user_id", {"user_id": "usr_1"}, {}),
        ("agent.agent_id", {}, {"agent_id": "agt_other"}),
        ("user.delegation.scopes", {"delegation": {"auth_type": "oauth2", "scopes": ["orders.read", "admin"]}}, {}),
        ("agent.principal_chain", {}, {"principal_chain": []}),
        (
            "agent.principal_chain",
            {},
            {"principal_chain": [{"kind": "agent", "id": URN}, {"kind": "user", "id": "usr_771"}]},
        ),
        (
            "agent.principal_chain",
            {},
            {
                "principal_chain": [
                    {"kind": "user", "id": "usr_771", "tenant_id": "tenant_other"},
                    {"kind": "agent", "id": URN},
                ]
            },
        ),
        (
            "agent.principal_chain",
            {},
            {
                "principal_chain": [
                    {"kind": "user", "id": "usr_771"},
                    {"kind": "agent", "id": URN},
                    {"kind": "service", "id": "root"},
                ]
            },
        ),
        (
            "agent.principal_chain",
            {},
            {"principal_chain": [{"kind": "service", "id": "usr_771"}, {"kind": "agent", "id": URN}]},
        ),
    ],
)
def test_a_difference_refuses_and_names_its_place(where: str, user: dict[str, Any], agent: dict[str, Any]) -> None:
    failures = identity_differences(request(user, agent), KNOWN)
    assert [(failure.code, failure.facts) for failure in failures] == [("identity_refused", (where,))]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sub", "agent:contextos/admin@1.0.0"),
        ("tenant_id", "tenant_other"),
        ("session_id", "sess_other"),
        ("principal_chain", [{"kind": "user", "id": "usr_admin"}, {"kind": "agent", "id": URN}]),
    ],
)
def test_a_claim_of_somebody_else_refuses(name: str, value: Any) -> None:
    claim = {"sub": URN, "run_id": "run_x", "tenant_id": TENANT, "claim_hash": "sha256:...", name: value}
    failures = identity_differences(request(agent={"identity_claim": claim}), KNOWN)
    assert [failure.facts for failure in failures] == [(f"agent.identity_claim.{name}",)]


@pytest.mark.parametrize("lifecycle", ["suspended", "retired"])
def test_an_agent_that_is_not_active_is_refused_whatever_the_request_says(lifecycle: str) -> None:
    dormant = known(agent={"lifecycle": lifecycle})
    assert [failure.facts for failure in identity_differences(request(), dormant)] == [("agent.lifecycle",)]
    assert len(identity_differences(request(agent={"lifecycle": "active"}), dormant)) == 2


def test_a_delegation_that_is_not_live_delegates_nothing() -> None:
    lapsed = known(user={"delegation_live": False})
    asks = request({"delegation": {"auth_type": "oauth2", "scopes": ["orders.read"]}})
    assert [failure.facts for failure in identity_differences(asks, lapsed)] == [("user.delegation.scopes",)]
    assert scopes_in_force(request(), lapsed) == frozenset()
    assert identity_differences(request(), lapsed) == ()


def test_scopes_in_force_are_what_user_agent_and_request_share() -> None:
    asks = request({"delegation": {"auth_type": "oauth2", "scopes": ["orders.read"]}})
    assert scopes_in_force(asks, KNOWN) == {"orders.read"}
    assert scopes_in_force(request(), KNOWN) == {"orders.read", "payments.refund"}
    assert scopes_in_force(request(), known(agent={"scopes": ("mail.send",)})) == frozenset()
    assert scopes_in_force(request({"delegation": {"auth_type": "oauth2"}}), KNOWN) == frozenset()
    claim = {"sub": URN, "run_id": "run_x", "tenant_id": TENANT, "claim_hash": "sha256:...", "scopes": ["mail.send"]}
    assert "mail.send" not in scopes_in_force(request(agent={"identity_claim": claim}), KNOWN)


def test_the_chain_is_the_user_then_the_agent_by_urn_in_the_tenant() -> None:
    assert [link.to_json() for link in principal_chain(request(), KNOWN)] == [
        {"kind": "user", "id": "usr_771", "tenant_id": TENANT},
        {"kind": "agent", "id": URN, "tenant_id": TENANT},
    ]
