"""Exchange the identity of a run's user and agent for a credential that one service accepts (RFC 8693).

Both are looked up again before each exchange, so nobody who was revoked gets a credential. The subject is the user and
the actor is the agent, each in a token of this runtime that names the tenant and is for the issuer alone. No token of
the user is ever sent: the runtime has only references to them. The scopes are those that the tool requires; the user
and the agent have all of them, or nothing is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from contextos.action.foreign_code import ForeignFaults, ignore_fault
from contextos.action.gateway.delivery import Exchanged, exchange_question
from contextos.action.quarantine import is_quarantined
from contextos.action.secret_redactor import MIN_SECRET_CHARS, SecretRedactor
from contextos.contracts.envelopes.tool import AUTH_REF, CallContext
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.ids import derive
from contextos.contracts.ports.credentials import Credential, CredentialRequest
from contextos.contracts.scope import Action, Capability, RunScope, platform_scopes_of
from contextos.contracts.trace import child_headers
from contextos.errors import InvalidInput, Unavailable
from contextos.runtime.code_pins import pinned_quarantine_key
from contextos.runtime.environment import RunEnvironment
from contextos.trust.approvals.quarantines import open_incidents
from contextos.trust.identity.claims import mint_claim, mint_hop_claim, mint_subject_token
from contextos.trust.identity.principals import look_up

EXCHANGE_TTL_S: Final = 60
"""How long the tokens for the issuer count, in seconds. The issuer checks them at once."""


async def exchange_or_failure(
    environment: RunEnvironment, scope: RunScope, capability: Capability, tool_call_id: str, timeout_ms: int
) -> Exchanged:
    """As `exchange_credential`, but an issuer that does not answer is also a failure, so the call is not sent."""
    try:
        return await exchange_credential(environment, scope, capability, tool_call_id, timeout_ms)
    except Unavailable as error:
        detail = f"no credential was issued, so nothing was sent: {error}"
        return replace(_failure("tool_failed", detail), outage=detail)


async def exchange_credential(
    environment: RunEnvironment, scope: RunScope, capability: Capability, tool_call_id: str, timeout_ms: int
) -> Exchanged:
    """Return the credential for one call, or the reason why the issuer gives none.

    Raises:
        Unavailable: the issuer did not answer within `timeout_ms` (the time limit of the call) or `EXCHANGE_TTL_S`.
    """
    port, required = environment.ports.credentials, frozenset(capability.definition.required_scopes)
    if port is None:
        return _failure("identity_refused", "this deployment has no issuer of credentials; name one in `[credentials]`")
    request, now_us = scope.received.request, environment.journal.time_us
    principals = await look_up(environment.ports.directory, request, now_us)
    if principals is None or not principals.same_as(scope.identity.principals):
        return _failure("identity_refused", "since the run was admitted the user or the agent changed")
    if principals.agent.lifecycle != "active" or principals.delegation is None or not principals.user.delegation_live:
        return _failure("identity_refused", "the user's delegation is not live; ask for it again")
    if not required or not required <= scope.identity.scopes:
        return _failure("identity_refused", "the user and the agent have not all scopes that the tool requires")
    credential_request = _credential_request(environment, scope, capability, tool_call_id)
    redact = SecretRedactor((credential_request.subject_token, credential_request.actor_token)).redact
    answer: Any = None
    # The port can be foreign code, which can raise any exception, or hang.
    timeout_ms = min(timeout_ms, EXCHANGE_TTL_S * 1_000)
    call = CallContext(scope.run.tenant_id, scope.run.run_id, tool_call_id, None, 0, timeout_ms)
    with ForeignFaults(port.issuer, "exchange", call, ignore_fault, is_read=True, passing=frozenset({Unavailable})):
        try:
            answer = await environment.ports.concurrency.within(
                call.timeout_ms, partial(port.exchange, credential_request)
            )
        except InvalidInput as refusal:
            reason = redact(str(refusal))
            return _failure("identity_refused", f"`{port.issuer}` issued no credential: {reason}"[:2_000])
        except Unavailable as error:
            raise Unavailable(port.issuer, redact(str(error))) from None
    if fault := _credential_fault(answer, credential_request, environment.ports.clock.now_us()):
        return _failure("identity_refused", f"`{port.issuer}` issued a credential that is refused: {fault}")
    credential = {
        "issuer": port.issuer,
        "subject": principals.user.user_id,
        "actor": principals.agent.agent_urn,
        "audience": credential_request.audience,
        "scopes": sorted(answer.scopes),
        "expires_at_us": answer.expires_at_us,
        "reference": answer.reference,
    }
    return Exchanged({"credential": credential}, answer.token)


def claim_token(environment: RunEnvironment, scope: RunScope, capability: Capability, tool_call_id: str) -> str:
    """Return the signed claim of one call, for its adapter alone."""
    return mint_claim(
        session_id=scope.run.session_id,
        chain=scope.identity.chain,
        ttl_s=environment.deployment.limits.claim_ttl_s,
        jti=tool_call_id,
        **_call_claims(environment, scope, capability, capability.adapter.adapter_id),
    ).token


def hop_token(
    environment: RunEnvironment, scope: RunScope, capability: Capability, tool_call_id: str, audience: str, tenant: str
) -> str:
    """Return the signed claim of one call for a partner's agent at the URL `audience`, in its `tenant` there ("": it
    has none). Without a delegation the claim names no user. Each attempt has its own `jti`, because a partner may
    accept each one only once.
    """
    common = _call_claims(environment, scope, capability, audience)
    acts_for_user = scope.received.request.user.delegation is not None
    return mint_hop_claim(
        tenant=tenant,
        user_id=scope.identity.principals.user.user_id if acts_for_user else None,
        ttl_s=min(EXCHANGE_TTL_S, environment.deployment.limits.claim_ttl_s),
        hop=scope.received.request.hop,
        jti=f"{tool_call_id}.{common['now_us']}",
        **common | ({"issuer": address} if (address := environment.deployment.address) else {}),
    )


def _call_claims(environment: RunEnvironment, scope: RunScope, capability: Capability, audience: str) -> dict[str, Any]:
    """Return what the claims of a call to `audience` have in common. The scopes are those that the call needs."""
    required = frozenset(capability.definition.required_scopes)
    return {
        "keys": environment.ports.keys,
        "issuer": scope.identity.claim.iss or "",
        "audience": audience,
        "tenant_id": scope.run.tenant_id,
        "run_id": scope.run.run_id,
        "agent_urn": scope.identity.principals.agent.agent_urn,
        "scopes": (scope.identity.scopes & required)
        | frozenset(platform_scopes_of(capability.adapter, capability.definition)),
        "now_us": environment.ports.clock.now_us(),
    }


async def credentials_for_evidence(environment: RunEnvironment, scope: RunScope, action: Action) -> dict[str, str]:
    """Obtain a credential for each read that is repeated before an approval is used, and record it like the credential
    of a call. Returns the secret tokens by evidence reference, without those that the issuer refused.

    Raises:
        Unavailable: the issuer did not answer.
    """
    tokens: dict[str, str] = {}
    for fact in action.evidence:
        capability = scope.tools.capabilities.get(fact.subject)
        if capability is None or capability.definition.auth.mode != "exchange":
            continue
        key = f"recheck/{action.key}/{fact.name}"
        quarantine_key = pinned_quarantine_key(scope.pinned.pins, capability)
        find_incidents = partial(open_incidents, environment.ports.store, environment.ports.keys)
        if await is_quarantined(environment.journal, capability, quarantine_key, find_incidents, key):
            continue

        async def obtain(capability: Capability = capability, ref: str = fact.evidence_ref) -> dict[str, Any]:
            timeout_ms = capability.definition.timeout_s * 1_000
            exchanged = await exchange_credential(environment, scope, capability, ref.rsplit(":", 1)[1], timeout_ms)
            tokens[ref] = exchanged.token
            return dict(exchanged.answer)

        question = exchange_question(capability)
        await environment.journal.record("credential.exchanged", key, question, obtain)
    return tokens


def _credential_request(
    environment: RunEnvironment, scope: RunScope, capability: Capability, tool_call_id: str
) -> CredentialRequest:
    port, identity, limits = environment.ports.credentials, scope.identity, environment.deployment.limits
    assert port is not None and capability.definition.auth.audience is not None, "both were checked"
    now_us, scopes = environment.ports.clock.now_us(), frozenset(capability.definition.required_scopes)
    # An issuer that accepts each token once must accept the next attempt.
    common: dict[str, Any] = {
        "keys": environment.ports.keys,
        "issuer": identity.claim.iss or "",
        "audience": port.issuer,
        "tenant_id": scope.run.tenant_id,
        "run_id": scope.run.run_id,
        "agent_urn": identity.principals.agent.agent_urn,
        "scopes": scopes,
        "now_us": now_us,
        "ttl_s": min(EXCHANGE_TTL_S, limits.claim_ttl_s),
        "jti": f"{tool_call_id}.{now_us}",
    }
    return CredentialRequest(
        tenant_id=scope.run.tenant_id,
        run_id=scope.run.run_id,
        subject_token=mint_subject_token(user_id=identity.principals.user.user_id, **common),
        actor_token=mint_claim(session_id=scope.run.session_id, chain=identity.chain, **common).token,
        audience=capability.definition.auth.audience,
        scopes=tuple(sorted(scopes)),
        ttl_s=limits.credential_ttl_s,
        trace=child_headers(scope.received.request.trace, derive("", tool_call_id, "exchange", 0), external=True),
    )


def _credential_fault(answer: Any, request: CredentialRequest, now_us: int) -> str | None:
    """Return how a credential differs from the request for it, or None. The port can be foreign code."""
    if not isinstance(answer, Credential):
        return f"it is a `{type(answer).__name__[:80]}`"
    if not isinstance(answer.token, str) or len(answer.token) < MIN_SECRET_CHARS:
        return "its token is too short to be kept out of answers"
    if not isinstance(answer.scopes, tuple) or not all(isinstance(scope, str) for scope in answer.scopes):
        return "its scopes are not texts"
    if set(answer.scopes) != set(request.scopes):
        return "its scopes are not those that the tool requires"
    if type(answer.expires_at_us) is not int:
        return "its end is not a number"
    if not now_us < answer.expires_at_us <= now_us + request.ttl_s * 1_000_000:
        return f"it counts for no time, or for longer than {request.ttl_s} s"
    if not isinstance(answer.reference, str) or not AUTH_REF.fits(answer.reference, sealed=True):
        return f"its reference is not of the form `{AUTH_REF.example}`"
    return None


def _failure(code: FailureCode, detail: str) -> Exchanged:
    return Exchanged({"failure": Failure(code=code, detail=detail).to_json()})
