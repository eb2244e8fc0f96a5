"""Policies: the bundles in force above every pack of a tenant, and the signed act that puts others in force."""

from __future__ import annotations

from typing import Final

from contextos.contracts.envelopes.policy import Level
from contextos.contracts.facts import FACTS
from contextos.contracts.model import Count, Model, Name, Seq
from contextos.deployment.acts.act import ActProposal
from contextos.service.operations.operation import Asked, Operation, Paged, page_of
from contextos.service.operations.packs import (
    PACK_READERS,
    ActiveVersion,
    UnmatchedInForce,
    active_version,
    unmatched_in,
)
from contextos.trust.approvals.acts import POLICY_ADMIN_ROLE


class PolicyInForce(Model):
    """A published policy bundle and its level: `platform`, or below it `tenant`."""

    level: Level
    ref: Name


class PolicyPage(Model):
    """A page of the policies in force, the strongest level first. `version` is the version of the active set.
    `unmatched` lists everything in these policies and in the pinned packs that cannot match now.
    """

    version: int
    items: list[PolicyInForce]
    unmatched: list[UnmatchedInForce]
    cursor: str | None


class PolicyList(Model):
    """The policies that are to be in force: exactly these. `expected` is the `version` that the actor saw."""

    policies: Seq[PolicyInForce]
    expected: Count


class RuleFact(Model):
    """A fact that rules can read: its `path`, its type (null: any), who supplies it, and at which points. Without
    `always`, the fact can be absent. `asserted`: the caller states it.
    """

    path: str
    type: str | None
    supplier: str
    points: Seq[str]
    always: bool
    asserted: bool


RULE_FACTS: Final = tuple(RuleFact(**{name: getattr(fact, name) for name in RuleFact.model_fields}) for fact in FACTS)


class RuleFactPage(Model):
    """A page of the facts that rules can read. `cursor` asks for the next page; null after the last."""

    items: list[RuleFact]
    cursor: str | None


async def list_policies(asked: Asked, page: Paged) -> PolicyPage:
    """List the policies in force above every pack."""
    active = await asked.app.artifacts.active(asked.tenant_id)
    list_name = (asked.tenant_id, "policies", active.version)
    items, next_cursor = page_of(active.policies, list_name, page.limit, page.cursor)
    policies = [PolicyInForce(level=level, ref=ref) for level, ref in items]
    return PolicyPage(version=active.version, items=policies, unmatched=await unmatched_in(asked), cursor=next_cursor)


async def list_rule_facts(asked: Asked, page: Paged) -> RuleFactPage:
    """List the facts that policy rules can read."""
    items, next_cursor = page_of(RULE_FACTS, (asked.tenant_id, "rule facts"), page.limit, page.cursor)
    return RuleFactPage(items=list(items), cursor=next_cursor)


async def activate(asked: Asked, draft: PolicyList) -> ActProposal[ActiveVersion]:
    """Put exactly these policies in force. They bind every later decision, also in runs that wait."""
    levels = [(policy.level, policy.ref) for policy in draft.policies]
    configuration = asked.app.configuration
    configuration.require_settings_allow(levels)
    proposal = await configuration.propose_policies(asked.tenant_id, levels, expected=draft.expected, by=asked.by)

    async def activated(_: None) -> ActiveVersion:
        return await active_version(asked, (await asked.app.artifacts.active(asked.tenant_id)).version)

    return proposal.then(activated)


POLICY_OPERATIONS: Final = (
    Operation("policies.list", ("GET", "/policies"), PACK_READERS, Paged, PolicyPage, list_policies),
    Operation("policies.facts", ("GET", "/policies/facts"), PACK_READERS, Paged, RuleFactPage, list_rule_facts),
    Operation(
        "policies.activate",
        ("POST", "/policies"),
        (POLICY_ADMIN_ROLE,),
        PolicyList,
        ActiveVersion,
        activate,
        signs="put exactly these policies in force",
    ),
)
