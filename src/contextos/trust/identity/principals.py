"""Who acts in a run: the identity that a request states, compared with the directory's answer.

A request proves nothing about identity. Every statement in it that differs from the directory's answer is returned as
a failure, and the run is refused. What the request leaves out is taken from the directory.
Source: docs/design/contracts.md, "Who is asking".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from contextos.contracts.envelopes.identity import IdentityClaim, Principal, Principals, UserDelegation
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.outside import Directory

REDACTED_TOKEN: Final = "[redacted:token]"
"""What is recorded for a `token_ref` of a user that the directory does not know. Versions that did not verify
the tokens of agents recorded it for these, too, and accepted it. No request can state it.
"""
UNKNOWN_AGENT_TOKEN: Final = "[redacted:agent_token]"
"""What is recorded for an agent's `token_ref` that differs from the directory's. The directory cannot state it."""


async def look_up(directory: Directory, request: InvokeRequest, now_us: int) -> Principals | None:
    """Return the user, the agent and the delegation of a request as they are at `now_us`; None for unknown people.

    A token reference that names no delegation, or an expired one, leaves `delegation` None. For a delegation
    without a reference, `delegation` is the only one in force of this user to this agent in the directory, else None.
    """
    known = await directory.resolve(request.tenant_id, request.user.user_id, request.agent.agent_id)
    requested = request.user.delegation
    if known is None or requested is None:
        return known
    if requested.token_ref is None:
        delegations = (await directory.held_roles(request.tenant_id)).delegations or ()
        parties = (known.user.user_id, known.agent.agent_id)
        candidates = [delegation for delegation in delegations if (delegation.subject, delegation.agent_id) == parties]
    else:
        referenced = await directory.delegation(request.tenant_id, requested.token_ref)
        candidates = [referenced] if referenced is not None else []
    in_force = [delegation for delegation in candidates if now_us < delegation.expires_at * 1_000_000]
    return known.model_copy(update={"delegation": in_force[0] if len(in_force) == 1 else None})


def identity_differences(request: InvokeRequest, known: Principals) -> tuple[Failure, ...]:
    """Return one `identity_refused` failure for each difference between `request` and `known`; empty if there is none.

    An agent that is not `active`, a scope that the user has not delegated, a delegation by another user, for another
    agent or without a token that is in force, and a claim about another subject, tenant or session are differences.
    A field that the request leaves out is not. A detail never contains the known value.
    """
    return tuple(
        Failure(code="identity_refused", detail=detail, facts=(field,))
        for field, detail in _differences(request, known)
    )


def principal_chain(request: InvokeRequest, known: Principals) -> tuple[Principal, ...]:
    """Return the user, the agents of partners through which the request came, and then the agent (by its URN). User and
    agent are in the request's tenant, as the directory knows them.
    """
    return (
        Principal(kind="user", id=known.user.user_id, tenant_id=request.tenant_id),
        *(request.hop.chain if request.hop is not None else ()),
        Principal(kind="agent", id=known.agent.agent_urn, tenant_id=request.tenant_id),
    )


def scopes_in_force(request: InvokeRequest, known: Principals) -> frozenset[str]:
    """Return the scopes that the user delegates, the agent holds and the request asks for, all at once.

    Without a delegation the agent does not act for the user and has its own scopes. A delegation that is not live
    delegates nothing.
    """
    agent_scopes, delegation = frozenset(known.agent.scopes), request.user.delegation
    if delegation is None:
        return agent_scopes
    return agent_scopes & _delegated_scopes(known) & frozenset(delegation.scopes)


def _delegated_scopes(known: Principals) -> frozenset[str]:
    """Return the scopes that the user delegated with a token that is in force; empty without such a token."""
    if known.delegation is None or not known.user.delegation_live:
        return frozenset()
    return frozenset(known.user.scopes) & frozenset(known.delegation.scopes)


def _differences(request: InvokeRequest, known: Principals) -> Iterator[tuple[str, str]]:
    agent, user = request.agent, request.user
    if known.agent.lifecycle != "active":
        yield "agent.lifecycle", f"the agent is `{known.agent.lifecycle}`; activate it in the directory"
    comparisons = (
        ("user.user_id", user.user_id, known.user.user_id),
        ("user.role", user.role, known.user.role),
        ("agent.agent_id", agent.agent_id, known.agent.agent_id),
        ("agent.agent_urn", agent.agent_urn, known.agent.agent_urn),
        ("agent.workload_identity", agent.workload_identity, known.agent.workload_identity),
        ("agent.role", agent.role, known.agent.role),
        ("agent.lifecycle", agent.lifecycle, known.agent.lifecycle),
    )
    for field, stated_value, known_value in comparisons:
        if stated_value is not None and stated_value != known_value:
            yield field, f"`{field}` is not what the directory knows; send what is registered, or leave it out"
    if user.delegation is not None:
        yield from _delegation_differences(user.delegation, known)
    if agent.token_ref not in (None, known.agent.token_ref, REDACTED_TOKEN):
        yield "agent.token_ref", other_agent_token(known.agent.token_ref)
    if agent.principal_chain is not None and not _same_chain(agent.principal_chain, request, known):
        yield (
            "agent.principal_chain",
            "the chain must be the user and then the agent, both in this tenant; correct it or leave it out",
        )
    if agent.identity_claim is not None:
        yield from _claim_differences(agent.identity_claim, request, known)


def other_agent_token(listed: str | None) -> str:
    """Return why an agent's token reference other than `listed` is refused. None: the directory lists no reference."""
    if listed is None:
        return "the directory lists no token of the agent; leave it out, or add `token_ref` to the agent's entry"
    return "`agent.token_ref` is not what the directory knows; send what is registered, or leave it out"


def _delegation_differences(requested: UserDelegation, known: Principals) -> Iterator[tuple[str, str]]:
    field, issued = "user.delegation", known.delegation
    if requested.subject not in (None, known.user.user_id, known.user.subject):
        yield f"{field}.subject", "the delegation is by another user; a run acts for its own user only"
    if requested.token_ref is None and issued is None:
        yield f"{field}.token_ref", "a delegation rests on a token of the user; send its reference"
    elif issued is None:
        yield f"{field}.token_ref", "no delegation with this reference is in force; ask the user for a new one"
    if issued is not None and (issued.subject, issued.agent_id) != (known.user.user_id, known.agent.agent_id):
        yield f"{field}.token_ref", "the token is by another user or for another agent; use one of this user and agent"
    if issued is not None and set(requested.scopes) - _delegated_scopes(known):
        yield f"{field}.scopes", "the request asks for a scope that the user has not delegated; ask for fewer"


def _claim_differences(claim: IdentityClaim, request: InvokeRequest, known: Principals) -> Iterator[tuple[str, str]]:
    field = "agent.identity_claim"
    if claim.sub != known.agent.agent_urn:
        yield f"{field}.sub", "the claim belongs to another agent; leave it out"
    if claim.tenant_id != request.tenant_id:
        yield f"{field}.tenant_id", "the claim belongs to another tenant; leave it out"
    if claim.session_id is not None and claim.session_id != request.session_id:
        yield f"{field}.session_id", "the claim belongs to another session; leave it out"
    if claim.principal_chain is not None and not _same_chain(claim.principal_chain, request, known):
        yield f"{field}.principal_chain", "the claim has another principal chain than this request; leave it out"


def _same_chain(stated_chain: Sequence[Principal], request: InvokeRequest, known: Principals) -> bool:
    """Compare kind, id, partner and tenant of every link. A stated link can omit its tenant; display names are not
    compared.
    """
    chain = principal_chain(request, known)
    return len(stated_chain) == len(chain) and all(
        (stated_link.kind, stated_link.id, stated_link.issuer) == (link.kind, link.id, link.issuer)
        and stated_link.tenant_id in (None, link.tenant_id)
        for stated_link, link in zip(stated_chain, chain, strict=True)
    )
