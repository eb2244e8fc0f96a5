"""Promote or reject a proposed memory: an act of a reviewer who has no part in the run that proposes it."""

from __future__ import annotations

from typing import Any

from contextos.contracts.envelopes.evidence import IntegrityLevel
from contextos.contracts.envelopes.memory import ReviewRefused, ReviewVerdict
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_commit
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.run_view import run_principals
from contextos.errors import ApprovalRefused
from contextos.intelligence.memory import review_proposal, stored_candidate
from contextos.trust.approvals.settlement import barred_settlers, is_barred
from contextos.trust.rows.memories import require_proposed


@Act
async def review_memory(
    app: Deployment,
    tenant_id: str,
    proposal_id: str,
    verdict: ReviewVerdict,
    *,
    by: Actor,
    reason: str = "",
    integrity: IntegrityLevel = "untrusted",
    supersede: bool = False,
    at_us: int | None = None,
) -> ActProposal[dict[str, Any] | ReviewRefused]:
    """Record a reviewer's verdict on a proposal; return the review, or why it had no effect.

    `at_us` is when the reviewer states the verdict, in Unix microseconds; now if it is None.

    Raises:
        ApprovalRefused: the reviewer is the run's user, its agent or the agent's owner (`self_review`); it is no longer
            known who these are (`not_waiting`); or as `prove_act`.
        Integrity: the proposal, or the memory that it would replace, is not what the journal shows.
        NotFound: there is no such proposal in this tenant.
        Conflict: another process changed the memory at the same moment; look at it and review again.
    """
    store = app.ports.stores.tenant(tenant_id)
    candidate = await stored_candidate(store, proposal_id)
    principals = run_principals(await require_proposed(store, tenant_id, app.ports.keys, candidate))
    if principals is None:
        raise ApprovalRefused("not_waiting", "the requester was erased, so nobody can tell who may review it")
    person = await app.ports.directory.approver(tenant_id, by.id)
    if is_barred(by.id, person, barred_settlers(principals)):
        detail = f"`{by.id}` is the requester, the agent or its owner; ask another reviewer"
        raise ApprovalRefused("self_review", detail)
    if verdict == "promote":
        refusal = await app.promotion_refusal(tenant_id, candidate.body.proposal, by.id)
        if refusal is not None:
            return ActProposal.of_nothing(by, refusal)
    proposed = await review_proposal(
        store,
        proposal_id,
        verdict,
        reviewer=by.id,
        at_us=app.ports.clock.now_us() if at_us is None else at_us,
        reason=reason,
        integrity=integrity,
        supersede=supersede,
    )
    if isinstance(proposed, ReviewRefused):
        return ActProposal.of_nothing(by, proposed)

    async def return_review(_: None) -> dict[str, Any] | ReviewRefused:
        return dict(proposed.arguments)

    return propose_commit(app.ports, app.config, tenant_id, proposed, by).then(return_review)
