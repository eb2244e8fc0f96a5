"""The claim with which the agent of a partner calls (`ctxhop+jwt`): verified, used once, and part of the principal
chain.

The partner that signed a claim vouches for its own agent. Only that partner says which agents called before; `prv`, the
digest of the claim that the partner received, ties this statement to the partner's record. A claim names the user of
the request, is for the address of this deployment alone, and authorises nothing.
Source: RFC 8693, section 4.1; docs/adr/0070-a-message-to-a-partner-says-who-calls.md.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.runs import HOP_CLAIMS, HopUse, hop_key
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.envelopes.identity import HopClaim, Principal
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.ids import AGENT_URN, DIGEST
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.storage import Store
from contextos.errors import Conflict, InvalidInput, Problem, SignatureInvalid
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.identity.jwt import token_key_id, wrong_claim
from contextos.trust.identity.oidc import TrustedIssuer, verify_oidc_token
from contextos.trust.identity.refusals import logged_refusal

MAX_HOPS: Final = 8
MAX_HOP_LIFETIME_S: Final = 300
_SHORT_TEXT: Final = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True)
class Partner:
    """A deployment whose hop claims count, and the tenants in which they count. `jwks` returns its keys, fresh enough
    to hold a key id; `is_silent` says whether the keys cannot be had now.
    """

    issuer: TrustedIssuer
    tenants: tuple[str, ...]
    jwks: Callable[[str], Awaitable[Mapping[str, Any]]]
    is_silent: Callable[[], bool]


def verify_hop_claim(
    token: str,
    issuer: TrustedIssuer,
    jwks: Mapping[str, Any],
    *,
    tenant_id: str,
    names_tenant: bool,
    user_id: str,
    now_us: int,
) -> HopClaim:
    """Return the content of `token` if `issuer` made it for our address, for no other tenant there than `tenant_id` and
    for this user, and it counts at `now_us` (Unix µs). With `names_tenant` it has to name the tenant.

    Raises:
        SignatureInvalid: the claim is refused, for any reason; the message names it and quotes nothing of the claim.
    """
    verified = verify_oidc_token(token, issuer, jwks, now_us=now_us)
    claims, lifetime_s = verified.claims, verified.expires_at_s - verified.issued_at_s
    if claims["aud"] not in (issuer.audience, [issuer.audience]):
        raise wrong_claim("the claim is for several audiences", claims, "aud", issuer.audience)
    if claims.get("tenant") not in ((tenant_id,) if names_tenant else (None, tenant_id)):
        raise wrong_claim("the claim is for another tenant of this address, or names none", claims, "tenant", tenant_id)
    if lifetime_s > MAX_HOP_LIFETIME_S:
        raise wrong_claim("the claim is valid for too long", claims, "exp", f"{MAX_HOP_LIFETIME_S} s after `iat`")
    if claims["sub"] != user_id:
        raise wrong_claim("the claim is about another user than the request, or about none", claims, "sub", user_id)
    jti = claims.get("jti")
    if not isinstance(jti, str) or not _SHORT_TEXT.fullmatch(jti):
        raise wrong_claim("the claim has no id, so it could count twice", claims, "jti", _SHORT_TEXT.pattern)
    return HopClaim(issuer=issuer.issuer, jti=jti, claim_hash=digest(token.encode()), chain=_agents(claims, issuer))


def _agents(claims: Mapping[str, Any], issuer: TrustedIssuer) -> tuple[Principal, ...]:
    """Return the agents of a claim, the first caller first, each with the party that states it. A deployment adds one
    agent, so it is never under itself. `prv` is there if the deployment was called with a claim itself, else not.
    """
    agents: list[Principal] = []
    holder, fault = claims, None
    while fault is None and "act" in holder:
        holder = holder["act"] if isinstance(holder["act"], Mapping) else {}
        agent_urn, party = holder.get("sub"), holder.get("iss", None if agents else issuer.issuer)
        if not isinstance(agent_urn, str) or not AGENT_URN.fits(agent_urn, sealed=True):
            fault = "an agent of the claim has no name and version"
        elif not isinstance(party, str) or not _SHORT_TEXT.fullmatch(party) or (not agents and party != issuer.issuer):
            fault = "an agent of the claim is of nobody, or of somebody else"
        elif agents and agents[-1].issuer == party:
            fault = "a deployment added two agents to the chain"
        else:
            agents.append(Principal(kind="agent", id=agent_urn, issuer=party))
    if fault or not 1 <= len(agents) <= MAX_HOPS:
        expected = f"1 to {MAX_HOPS} agents as `{AGENT_URN.example}`, each inner one with `iss`"
        raise wrong_claim(fault or "the claim names no agent, or too many", claims, "act", expected)
    previous = claims.get("prv", "")
    if not (isinstance(previous, str) and DIGEST.fits(previous, sealed=True) if len(agents) > 1 else previous == ""):
        raise wrong_claim(
            "the chain of the claim and the claim before it (`prv`) do not fit", claims, "prv", "sha256:…"
        )
    return tuple(reversed(agents))


async def with_hop(
    request: InvokeRequest, fields: dict[str, Any], partners: Mapping[str, Partner], clock: Clock
) -> tuple[InvokeRequest, dict[str, Any]]:
    """Return the request and its wire form with what its hop claim proves, and without the claim.

    Raises:
        InvalidInput: the claim does not count; the log says why. Or the request states what only the runtime finds.
        Unavailable: the keys of the partner cannot be had now.
    """
    if request.hop is not None:
        raise _refusal("/hop", "only the runtime says what a claim proves", "send the token itself as `hop_claim`")
    if (token := request.hop_claim) is None:
        return request, fields
    if not partners:
        remedy = "list the partner in `[[hops.issuers]]`, or leave `hop_claim` out"
        raise _refusal("/hop_claim", "this deployment takes claims of no partner", remedy)
    if request.user.delegation is None:
        detail = "an agent that is called for a user acts for them"
        raise _refusal("/user/delegation", detail, "state `user.delegation`, or leave `hop_claim` out")
    try:
        with logged_refusal(token):
            payload = unverified_payload(token) or {}
            partner = partners.get(str(payload.get("iss")))
            if partner is None or request.tenant_id not in partner.tenants:
                raise wrong_claim("no partner with this `iss` is listed for the tenant", payload, "iss")
            jwks = await partner.jwks(token_key_id(token))
            hop = verify_hop_claim(
                token,
                partner.issuer,
                jwks,
                tenant_id=request.tenant_id,
                names_tenant=len(partner.tenants) > 1,  # a use is noted in one tenant alone
                user_id=request.user.user_id,
                now_us=clock.now_us(),
            )
    except SignatureInvalid:
        raise _claim_refusal() from None
    other_fields = {name: value for name, value in fields.items() if name != "hop_claim"}
    verified_request = parse(InvokeRequest, {**other_fields, "hop": hop.to_json()})
    return verified_request, verified_request.to_json()


async def use_once(store: Store, request: InvokeRequest) -> None:
    """Note in the tenant's `store` for which request its hop claim was used. Only the same request can be sent
    again with it.

    Raises:
        InvalidInput: another request used it.
    """
    if request.hop is None:
        return
    key, use = hop_key(request.hop.issuer, request.hop.jti), HopUse(request.request_id, request.hop.claim_hash)
    stored = await HOP_CLAIMS.one(store, key)
    if stored is None:
        try:
            await store.commit(Batch(run=CONTROL, writes=(HOP_CLAIMS.write(key, 0, use),)))
            return
        except Conflict:
            stored = await HOP_CLAIMS.one(store, key)
    if stored is None or stored.body != use:
        raise _claim_refusal()


def _claim_refusal() -> InvalidInput:
    return _refusal("/hop_claim", "the claim of the caller does not count", "have the caller make a new one")


def _refusal(pointer: str, detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem(pointer, "identity_refused", detail, remedy))
