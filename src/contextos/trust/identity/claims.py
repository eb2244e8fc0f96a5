"""The identity claim of a run: a short-lived signed token that states to other services who acts.

A claim (`ctxid/1`) is a compact JWS with the algorithm `Ed25519` (RFC 9864). Its header holds exactly `alg`, `kid` and
`typ`. The verifier takes the key from its own ring and the algorithm from the key, so it refuses `none`, `HS256` over
a public key, embedded keys and `crit`.

This module writes the JWS itself, because importing `joserfc` takes 120 ms. The tests check the same tokens with both,
in both directions.
Source: docs/design/contracts.md, "Who is asking"; RFC 7515; RFC 9864.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from contextos.contracts.encoding.codec import loads, problems_of
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS, HopClaim, IdentityClaim, Principal
from contextos.contracts.ports.outside import Keys
from contextos.errors import InvalidEnvelope, InvalidInput, InvalidSettings, Problem, SignatureInvalid
from contextos.trust.seal import decode_base64, encode_base64url

ALGORITHM: Final = "Ed25519"
TOKEN_TYPE: Final = "ctxid+jwt"
SUBJECT_TYPE: Final = "ctxsub+jwt"
HOP_TYPE: Final = "ctxhop+jwt"
CLAIM_VERSION: Final = "ctxid/1"
MAX_TTL_S: Final = 3600


@dataclass(frozen=True, slots=True)
class MintedClaim:
    """The identity claim of a run, which is kept for audit, and its token, which is sent with calls and never
    recorded.
    """

    claim: IdentityClaim
    token: str


def mint_claim(
    *,
    keys: Keys,
    issuer: str,
    audience: str,
    tenant_id: str,
    run_id: str,
    session_id: str | None,
    agent_urn: str,
    chain: Sequence[Principal],
    scopes: frozenset[str],
    now_us: int,
    ttl_s: int,
    jti: str | None = None,
) -> MintedClaim:
    """Sign the claim of one run with the current `claim` key.

    The claim is valid for `ttl_s` seconds from `now_us` (Unix microseconds, rounded down to a second). The same
    arguments and key produce the same token. `claim_hash` is the digest of the token.

    Raises:
        InvalidSettings: `ttl_s` is outside 1 to 3600, or there is no key to sign claims with.
        InvalidEnvelope: the arguments do not form a valid claim.
    """
    if not 1 <= ttl_s <= MAX_TTL_S:
        detail = f"the lifetime of a claim must be 1 to {MAX_TTL_S} s, not `{ttl_s}`"
        raise InvalidSettings(Problem("/claim_ttl_s", "out_of_bounds", detail, "set a shorter time"))
    issued_s = now_us // 1_000_000
    body: dict[str, Any] = {
        "version": CLAIM_VERSION,
        "iss": issuer,
        "sub": agent_urn,
        "aud": audience,
        "run_id": run_id,
        "tenant_id": tenant_id,
        "principal_chain": [principal.to_json() for principal in chain],
        "scopes": sorted(scopes),
        "nbf": issued_s,
        "exp": issued_s + ttl_s,
    }
    if session_id is not None:
        body["session_id"] = session_id
    if jti is not None:
        body["jti"] = jti
    token = sign_token(keys, TOKEN_TYPE, body)
    return MintedClaim(_sealed_claim(body, token), token)


def mint_subject_token(
    *,
    keys: Keys,
    issuer: str,
    audience: str,
    tenant_id: str,
    run_id: str,
    user_id: str,
    agent_urn: str,
    scopes: frozenset[str],
    now_us: int,
    ttl_s: int,
    jti: str,
) -> str:
    """Sign a statement about a user for a token exchange (RFC 8693): the user is the subject, and only the agent can
    act for them (`may_act`), with these scopes. The claim of the agent (`mint_claim`) is the token of the actor.

    Its `typ` differs from the `typ` of a claim, so neither token is accepted as the other.
    """
    identity = {"sub": user_id, "may_act": {"sub": agent_urn}}
    return sign_token(
        keys, SUBJECT_TYPE, identity | _call_claims(issuer, audience, tenant_id, run_id, scopes, now_us, ttl_s, jti)
    )


def mint_hop_claim(
    *,
    keys: Keys,
    issuer: str,
    audience: str,
    tenant: str = "",
    tenant_id: str,
    run_id: str,
    user_id: str | None,
    agent_urn: str,
    hop: HopClaim | None,
    scopes: frozenset[str],
    now_us: int,
    ttl_s: int,
    jti: str,
) -> str:
    """Sign a statement of who calls a partner's agent at the URL `audience`, in the `tenant` there (empty: no tenant).
    The user is the subject, and the agent acts for them (`act`, RFC 8693, section 4.1). Without a user the agent itself
    is the subject and acts for nobody (ADR 0070). The proved content of the claim that came with the request (`hop`) is
    nested, and `prv` is the digest of that claim.
    """
    identity: dict[str, Any] = {"sub": agent_urn} if user_id is None else {"sub": user_id, "act": {"sub": agent_urn}}
    if hop is not None and user_id is not None:
        nested: dict[str, Any] = {}
        for principal in hop.chain:
            nested = {"sub": principal.id, "iss": principal.issuer, **({"act": nested} if nested else {})}
        identity |= {"act": {"sub": agent_urn, "act": nested}, "prv": hop.claim_hash}
    identity |= {"tenant": tenant} if tenant else {}
    return sign_token(
        keys, HOP_TYPE, identity | _call_claims(issuer, audience, tenant_id, run_id, scopes, now_us, ttl_s, jti)
    )


def _call_claims(
    issuer: str, audience: str, tenant_id: str, run_id: str, scopes: frozenset[str], now_us: int, ttl_s: int, jti: str
) -> dict[str, Any]:
    """Return the claims of a token for one call that another party reads: from whom, for whom, for what, how long."""
    issued_s = now_us // 1_000_000
    return {
        "iss": issuer,
        "aud": audience,
        "run_id": run_id,
        "tenant_id": tenant_id,
        "scope": " ".join(sorted(scopes)),
        "iat": issued_s,
        "nbf": issued_s,
        "exp": issued_s + ttl_s,
        "jti": jti,
    }


def sign_token(keys: Keys, token_type: str, body: dict[str, Any]) -> str:
    """Return the compact JWS of `body` under the current `claim` key, whose id is then in `body`. `token_type` is its
    `typ`, so that a token is not accepted as a token of another type.
    """
    while True:
        kid = body["kid"] = next(iter(keys.kids("claim")), "")
        message = f"{_segment({'alg': ALGORITHM, 'kid': kid, 'typ': token_type})}.{_segment(body)}"
        signed_with, signature = keys.sign("claim", message.encode())
        if signed_with == kid:  # otherwise the key was rotated in between
            return f"{message}.{encode_base64url(signature)}"


@dataclass(frozen=True, slots=True)
class OpenedToken:
    """The content of a token of this runtime, after its signature was verified. No claim is checked yet."""

    kid: str
    body: dict[str, Any]
    signed: bytes
    signature: bytes

    def refuse_retired(self, keys: Keys, at_us: int) -> None:
        """Refuse a token that was made at `at_us` (Unix microseconds) after its key was retired. Raises
        `SignatureInvalid`.
        """
        if not keys.verify("claim", self.kid, self.signed, self.signature, at_us=at_us):
            raise SignatureInvalid("the key that made this signature was retired before; mint a new token")


def open_token(token: str, keys: Keys, token_type: str) -> OpenedToken:
    """Verify a token that `sign_token` made with a key of `keys`, and return its content.

    Raises:
        SignatureInvalid: the form, header, type or algorithm is wrong, or no key that is trusted for claims signed it.
    """
    parts = token.split(".") if len(token) <= MAX_TOKEN_CHARS and token.isascii() else []
    if len(parts) != 3 or "=" in token or "+" in token or "/" in token:
        raise SignatureInvalid(
            "this is not a compact JWS; send `header.payload.signature` in Base64url without padding"
        )
    header = _json_object(parts[0])
    kid = header.get("kid")
    if header != {"alg": ALGORITHM, "kid": kid, "typ": token_type} or not isinstance(kid, str):
        raise SignatureInvalid(f"the header does not belong to a `{token_type}` token; mint it with this runtime")
    signature, message = decode_base64(parts[2]), f"{parts[0]}.{parts[1]}".encode()
    if not keys.verify("claim", kid, message, signature):
        raise SignatureInvalid("no key that is trusted for claims made this signature; check which runtime minted it")
    return OpenedToken(kid, _json_object(parts[1]), message, signature)


def verify_claim(token: str, keys: Keys, *, issuer: str, audience: str, now_us: int) -> IdentityClaim:
    """Return the claim in a token that this runtime minted.

    Refuses another header or algorithm, a key that is not trusted for `claim`, another issuer or audience, and a claim
    that is not valid at `now_us` (Unix microseconds; from `nbf`, before `exp`).

    Raises:
        SignatureInvalid: the token is refused, for any of these reasons.
    """
    opened = open_token(token, keys, TOKEN_TYPE)
    try:
        claim = _sealed_claim(opened.body, token)
    except InvalidInput as error:
        raise SignatureInvalid(f"this is not a `{CLAIM_VERSION}` claim: {error}") from None
    opened.refuse_retired(keys, (claim.nbf or 0) * 1_000_000)
    if (claim.kid, claim.iss, claim.aud) != (opened.kid, issuer, audience):
        raise SignatureInvalid("the claim has another issuer or audience; mint one for this audience")
    if not (claim.nbf or 0) * 1_000_000 <= now_us < (claim.exp or 0) * 1_000_000:
        raise SignatureInvalid("the claim is not valid now; mint a new one")
    return claim


def stated_claim_fault(
    claim: IdentityClaim, keys: Keys, *, issuer: str, audience: str, run_id: str, now_us: int
) -> str | None:
    """Return why a claim that a request states is not valid now, or was not minted by this runtime for this run; or
    None.

    A request holds the content of a claim and the hash of its token, and not the token. The same content and key make
    the same token, so the claim is signed again and the hashes are compared.
    """
    if missing := [name for name in claim.required_when_sealed if getattr(claim, name) is None]:
        names = ", ".join(f"`{name}`" for name in missing)
        return f"the claim has no {names}, so nothing proves it; send all that its token says, or leave the claim out"
    body = claim.to_json()
    body.pop("claim_hash")
    message = f"{_segment({'alg': ALGORITHM, 'kid': claim.kid, 'typ': TOKEN_TYPE})}.{_segment(body)}"
    kid, signature = keys.sign("claim", message.encode())
    token = f"{message}.{encode_base64url(signature)}"
    if kid != claim.kid or digest(token.encode()) != claim.claim_hash:
        return "this runtime did not mint the claim; leave it out"
    if (claim.iss, claim.aud) != (issuer, audience):
        return "the claim has another issuer or audience; leave it out"
    if claim.run_id != run_id:
        return "the claim was minted for another run; leave it out"
    if not (claim.nbf or 0) * 1_000_000 <= now_us < (claim.exp or 0) * 1_000_000:
        return "the claim is not valid now; leave it out"
    return None


def _sealed_claim(body: dict[str, Any], token: str) -> IdentityClaim:
    """Build the sealed claim, with the hash of its token. Raises `InvalidEnvelope`."""
    value = {**body, "claim_hash": digest(token.encode())}
    try:
        claim = IdentityClaim.validate_sealed(value)
    except ValidationError as error:
        raise InvalidEnvelope(*problems_of(error, value)) from None
    # The same check as `sealed()`, in one pass instead of three: every call that leaves the machine mints a claim.
    missing = [name for name in claim.required_when_sealed if getattr(claim, name) is None]
    if missing:
        raise InvalidEnvelope(
            *(Problem(f"/{name}", "missing", "it is required", "mint the claim again") for name in missing)
        )
    return claim


def _json_object(segment: str) -> dict[str, Any]:
    try:
        value = loads(decode_base64(segment))
    except InvalidInput as error:
        raise SignatureInvalid(f"a part of the token is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SignatureInvalid("a part of the token is not a JSON object; mint it with this runtime")
    return value


def _segment(value: dict[str, Any]) -> str:
    return encode_base64url(canonical(value))
