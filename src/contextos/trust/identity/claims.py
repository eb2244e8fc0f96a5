"""Who acts: the run's own claim, and the comparison of what a request says of identity with what is known.

What a request says grants nothing. It is compared with the directory's answer, and a difference refuses the request.
A run mints its own short-lived claim, `ctxid/1`: a compact JWS with the algorithm name `Ed25519` (RFC 9864), whose
header holds exactly `alg`, `kid` and `typ`. A verifier takes the key from its ring and the algorithm from the key, so
`none`, `HS256` over a public key, embedded keys and `crit` all fail alike.

The JWS is the few lines below and not `joserfc`: that library signs within the budget (47 against 33 µs) but costs
120 ms to import. The tests hold both to the same tokens, in both directions.
Source: shared/design/contracts.md, "Who is asking"; RFC 7515; RFC 9864; contextos-facts.md, section 4.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from contextos.contracts.encoding.codec import loads, problems_of
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.envelopes.identity import IdentityClaim, Principal, Principals
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.outside import Keys
from contextos.errors import InvalidEnvelope, InvalidInput, InvalidSettings, Problem, SignatureInvalid
from contextos.trust.seal import unbase64

ALGORITHM: Final = "Ed25519"
TOKEN_TYPE: Final = "ctxid+jwt"
CLAIM_VERSION: Final = "ctxid/1"
MAX_TOKEN_CHARS: Final = 16_384
MAX_TTL_S: Final = 3600


@dataclass(frozen=True, slots=True)
class MintedClaim:
    """A run's claim as audit keeps it, and the token that travels with calls and is never recorded."""

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
) -> MintedClaim:
    """The claim of one run, signed with the current `claim` key; valid from `now_us`, rounded down, for `ttl_s`.

    The same arguments and key give the same token. `claim_hash` is the digest of the token.

    Raises:
        InvalidSettings: `ttl_s` is not within 1 and 3600, or there is no key to sign claims with.
        InvalidEnvelope: the parts make no claim.
    """
    if not 1 <= ttl_s <= MAX_TTL_S:
        detail = f"a claim lives for 1 to {MAX_TTL_S} s, not `{ttl_s}`"
        raise InvalidSettings(Problem("/claim_ttl_s", "out_of_bounds", detail, "set a shorter time"))
    kid = next(iter(keys.kids("claim")), "")
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
        "kid": kid,
    }
    if session_id is not None:
        body["session_id"] = session_id
    signed = f"{_segment({'alg': ALGORITHM, 'kid': kid, 'typ': TOKEN_TYPE})}.{_segment(body)}"
    by, signature = keys.sign("claim", signed.encode())
    assert by == kid, "the first key of a purpose is the one that signs"
    token = f"{signed}.{_base64url(signature)}"
    return MintedClaim(_claim(body, token), token)


def verify_claim(token: str, keys: Keys, *, issuer: str, audience: str, now_us: int) -> IdentityClaim:
    """The claim in a token that one of our runs minted.

    Refuses every header but our own, another algorithm, a key that is not trusted for `claim`, another issuer or
    audience, and a claim that is not valid at `now_us` (from `nbf`, before `exp`).

    Raises:
        SignatureInvalid: any of these.
    """
    parts = token.split(".") if len(token) <= MAX_TOKEN_CHARS and token.isascii() else []
    if len(parts) != 3 or "=" in token or "+" in token or "/" in token:
        raise SignatureInvalid("this is no compact JWS; send `header.payload.signature` in Base64url without padding")
    header = _object(parts[0])
    kid = header.get("kid")
    if header != {"alg": ALGORITHM, "kid": kid, "typ": TOKEN_TYPE} or not isinstance(kid, str):
        raise SignatureInvalid(f"the header is not that of a `{CLAIM_VERSION}` claim; mint it with this runtime")
    if not keys.verify("claim", kid, f"{parts[0]}.{parts[1]}".encode(), unbase64(parts[2])):
        raise SignatureInvalid("no key that is trusted for claims made this signature; check who minted the claim")
    try:
        claim = _claim(_object(parts[1]), token)
    except InvalidInput as error:
        raise SignatureInvalid(f"this is no `{CLAIM_VERSION}` claim: {error}") from None
    if (claim.kid, claim.iss, claim.aud) != (kid, issuer, audience):
        raise SignatureInvalid("the claim is by another issuer or for another audience; mint one for this audience")
    if not (claim.nbf or 0) * 1_000_000 <= now_us < (claim.exp or 0) * 1_000_000:
        raise SignatureInvalid("the claim is not valid now; mint another")
    return claim


def identity_differences(request: InvokeRequest, known: Principals) -> tuple[Failure, ...]:
    """Every difference between what the request says of identity and what the directory knows; empty admits it.

    Refuses an agent that is not `active`, scopes that are not delegated now, and a claim of another subject, tenant
    or session. What the request leaves out is no difference. Details name the field and never what is known.
    """
    return tuple(
        Failure(code="identity_refused", detail=detail, facts=(where,))
        for where, detail in _differences(request, known)
    )


def principal_chain(request: InvokeRequest, known: Principals) -> tuple[Principal, ...]:
    """The user, then the agent by its URN, both in the request's tenant; from what is known."""
    return (
        Principal(kind="user", id=known.user.user_id, tenant_id=request.tenant_id),
        Principal(kind="agent", id=known.agent.agent_urn, tenant_id=request.tenant_id),
    )


def scopes_in_force(request: InvokeRequest, known: Principals) -> frozenset[str]:
    """User ∩ agent ∩ requested: the user's live delegation, the agent's own, and what the request names."""
    delegation = request.user.delegation
    granted = _delegated(known) & frozenset(known.agent.scopes)
    return granted & frozenset(delegation.scopes) if delegation is not None else granted


def _delegated(known: Principals) -> frozenset[str]:
    return frozenset(known.user.scopes) if known.user.delegation_live else frozenset()


def _differences(request: InvokeRequest, known: Principals) -> Iterator[tuple[str, str]]:
    agent, user = request.agent, request.user
    if known.agent.lifecycle != "active":
        yield "agent.lifecycle", f"the agent is `{known.agent.lifecycle}`; activate it in the directory"
    stated = (
        ("user.user_id", user.user_id, known.user.user_id),
        ("user.role", user.role, known.user.role),
        ("agent.agent_id", agent.agent_id, known.agent.agent_id),
        ("agent.agent_urn", agent.agent_urn, known.agent.agent_urn),
        ("agent.workload_identity", agent.workload_identity, known.agent.workload_identity),
        ("agent.role", agent.role, known.agent.role),
        ("agent.lifecycle", agent.lifecycle, known.agent.lifecycle),
    )
    for where, said, is_known in stated:
        if said is not None and said != is_known:
            yield where, f"`{where}` is not what the directory knows; send what is registered, or leave it out"
    if user.delegation is not None and set(user.delegation.scopes) - _delegated(known):
        yield "user.delegation.scopes", "a scope is asked for that the user has not delegated; ask for fewer"
    if agent.principal_chain is not None and not _same_chain(agent.principal_chain, request, known):
        yield "agent.principal_chain", "the chain is not the user and then the agent, in this tenant; leave it out"
    if agent.identity_claim is not None:
        yield from _claim_differences(agent.identity_claim, request, known)


def _claim_differences(claim: IdentityClaim, request: InvokeRequest, known: Principals) -> Iterator[tuple[str, str]]:
    where = "agent.identity_claim"
    if claim.sub != known.agent.agent_urn:
        yield f"{where}.sub", "the claim is another agent's; leave it out"
    if claim.tenant_id != request.tenant_id:
        yield f"{where}.tenant_id", "the claim is of another tenant; leave it out"
    if claim.session_id is not None and claim.session_id != request.session_id:
        yield f"{where}.session_id", "the claim is of another session; leave it out"
    if claim.principal_chain is not None and not _same_chain(claim.principal_chain, request, known):
        yield f"{where}.principal_chain", "the chain of the claim is not this request's; leave it out"


def _same_chain(stated: Sequence[Principal], request: InvokeRequest, known: Principals) -> bool:
    """Kind, id and tenant of every link; a link may leave the tenant out, and names for people do not count."""
    chain = principal_chain(request, known)
    return len(stated) == len(chain) and all(
        (said.kind, said.id) == (link.kind, link.id) and said.tenant_id in (None, link.tenant_id)
        for said, link in zip(stated, chain, strict=True)
    )


def _claim(body: dict[str, Any], token: str) -> IdentityClaim:
    """The sealed claim with the hash of its token. Raises `InvalidEnvelope`."""
    value = {**body, "claim_hash": digest(token.encode())}
    try:
        claim = IdentityClaim.validate_sealed(value)
    except ValidationError as error:
        raise InvalidEnvelope(*problems_of(error, value)) from None
    # What `sealed()` asks, in one pass instead of three: a claim is minted for every call that leaves the machine.
    absent = [name for name in claim.required_when_sealed if getattr(claim, name) is None]
    if absent:
        raise InvalidEnvelope(
            *(Problem(f"/{name}", "missing", "it is required", "mint the claim again") for name in absent)
        )
    return claim


def _object(segment: str) -> dict[str, Any]:
    try:
        value = loads(unbase64(segment))
    except InvalidInput as error:
        raise SignatureInvalid(f"a part of the token is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SignatureInvalid("a part of the token is no JSON object; mint it with this runtime")
    return value


def _segment(value: dict[str, Any]) -> str:
    return _base64url(canonical(value))


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
