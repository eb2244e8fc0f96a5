"""Policies: those in force above every pack of a tenant, and the signed act that puts others in force."""

from __future__ import annotations

from typing import Annotated, Final, Self

from fastapi import APIRouter

from contextos.contracts.envelopes.policy import Level
from contextos.contracts.facts import FACTS, DeclaredFact
from contextos.contracts.model import Count, Model, Name, Seq
from contextos.deployment.acts.act import Actor
from contextos.errors import InvalidArtifact, Problem
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.control.packs import PACK_READERS, ActiveVersion, UnmatchedInForce, active_version, unmatched_in
from contextos.server.shared.pages import Limit, LongCursor, page_of
from contextos.server.shared.signing import Signed, act_document, signing_actor
from contextos.service.views import ActDocument
from contextos.trust.approvals.acts import POLICY_ADMIN_ROLE
from contextos.workspace import App

policy_routes: Final = APIRouter(tags=["policies"])


class PolicyInForce(Model):
    """A published policy bundle and its level: `platform`, or below it `tenant`."""

    level: Level
    ref: Name


class PolicyPage(Model):
    """A page of the policies in force, the strongest level first. `version` is that of the active set. `unmatched` is
    all that cannot match now of these policies and of the pinned packs.
    """

    version: int
    items: list[PolicyInForce]
    unmatched: list[UnmatchedInForce]
    cursor: str | None


class PolicyList(Model):
    """The policies that are to be in force: exactly these. `expected` is the `version` that the actor saw."""

    policies: Seq[PolicyInForce]
    expected: Count


class SignedPolicyList(PolicyList, Signed):
    """The policies that are to be in force, with the actor's proof."""


class RuleFact(Model):
    """A fact that rules can read: its `path`, its type (null: any), who supplies it, and at which points. Not `always`:
    it can be absent. `asserted`: the caller states it.
    """

    path: str
    type: str | None
    supplier: str
    points: list[str]
    always: bool
    asserted: bool

    @classmethod
    def of_fact(cls, fact: DeclaredFact) -> Self:
        return cls(
            path=fact.path,
            type=fact.type,
            supplier=fact.supplier,
            points=list(fact.points),
            always=fact.always,
            asserted=fact.asserted,
        )


class RuleFactPage(Model):
    """A page of the facts that rules can read. `cursor` asks for the next page; null after the last."""

    items: list[RuleFact]
    cursor: str | None


PolicyListBody = Annotated[PolicyList, json_of(PolicyList)]
SignedPolicyListBody = Annotated[SignedPolicyList, json_of(SignedPolicyList)]


@policy_routes.get("/policies")
async def get_policies(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: LongCursor = ""
) -> PolicyPage:
    """List the policies in force above every pack."""
    require_role(roles, *PACK_READERS)
    active = await app.artifacts.active(caller.tenant_id)
    items, following = page_of(active.policies, (caller.tenant_id, "policies", active.version), limit, cursor)
    listed = [PolicyInForce(level=level, ref=ref) for level, ref in items]
    unmatched = await unmatched_in(app, caller.tenant_id)
    return PolicyPage(version=active.version, items=listed, unmatched=unmatched, cursor=following)


@policy_routes.get("/policies/facts")
async def get_rule_facts(
    caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: LongCursor = ""
) -> RuleFactPage:
    """List the facts that policy rules can read."""
    require_role(roles, *PACK_READERS)
    items, following = page_of(FACTS, (caller.tenant_id, "rule facts"), limit, cursor)
    return RuleFactPage(items=[RuleFact.of_fact(one) for one in items], cursor=following)


@policy_routes.post("/policies/statement", openapi_extra=body_of(PolicyList))
async def post_policies_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, sent: PolicyListBody
) -> ActDocument:
    """Return what the caller signs to put exactly these policies in force. Nothing is changed."""
    require_role(roles, POLICY_ADMIN_ROLE)
    return await act_document(app, caller, lambda by: _activate(app, caller.tenant_id, sent, by))


@policy_routes.post("/policies", openapi_extra=body_of(SignedPolicyList))
async def post_policies(
    app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedPolicyListBody
) -> ActiveVersion:
    """Put exactly these policies in force. They bind every decision from then on, also of runs that wait."""
    require_role(roles, POLICY_ADMIN_ROLE)
    await _activate(app, caller.tenant_id, sent, signing_actor(app, caller, sent))
    return await active_version(app, caller.tenant_id, (await app.artifacts.active(caller.tenant_id)).version)


async def _activate(app: App, tenant_id: str, sent: PolicyList, by: Actor) -> None:
    wanted = [(one.level, one.ref) for one in sent.policies]
    named = app.settings.policies
    if named is not None and set(named) != set(wanted):
        # Else the next start would refuse the store.
        detail = "the settings of this deployment name its policies, and these are others"
        remedy = "change the settings, and use `contextos policies`"
        raise InvalidArtifact(Problem("/policies", "policies_differ", detail, remedy))
    await app.configuration.activate(tenant_id, wanted, expected=sent.expected, by=by)
