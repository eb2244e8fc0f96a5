"""Packs, policies and catalogs: list the published ones, and withdraw one.

`server.control.packs` publishes one, and reads one with its tag.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from contextos.contracts.model import Count, Model
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.checks import refuse_reason
from contextos.deployment.acts.governance import withdraw_artifact
from contextos.service.artifacts import CatalogArtifact
from contextos.service.operations.operation import ActReason, Asked, Named, Operation, Paged
from contextos.service.views import ProblemPart
from contextos.trust.approvals.acts import AUDITOR_ROLE, POLICY_ADMIN_ROLE, PUBLISHER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE

PACK_READERS: Final = (PUBLISHER_ROLE, POLICY_ADMIN_ROLE, AUDITOR_ROLE, OPERATOR_ROLE)
"""The roles that can read the published and the active artifacts."""
REF: Final = Named("ref", "The exact reference of a published artifact: `<id>@<x.y.z>`.", None)


class ArtifactPage(Model):
    """A page of published artifacts, by reference. `cursor` asks for the next page; null after the last."""

    items: list[CatalogArtifact]
    cursor: str | None


class Withdrawal(Model):
    """The end of a published artifact, for ever and with all its pins. `expected` is the `version` of the active set
    that the actor saw.
    """

    reason: ActReason = ""
    expected: Count


class UnmatchedInForce(ProblemPart):
    """A part of the policy or pack `ref` that is in force but cannot match now or can be bypassed, with its place and
    the reason.
    """

    ref: str


class ActiveVersion(Model):
    """The version of the active set after an act on it. `unmatched` lists everything in force that cannot match now,
    and each pack for which a request can choose an earlier version or one that only observes.
    """

    version: int
    unmatched: list[UnmatchedInForce]


async def list_artifacts(asked: Asked, page: Paged) -> ArtifactPage:
    """List the artifacts that are published, by reference."""
    published = await asked.app.artifacts.list(asked.tenant_id, limit=page.limit, cursor=page.cursor)
    return ArtifactPage(items=list(published.items), cursor=published.cursor)


async def withdraw(asked: Asked, draft: Withdrawal) -> ActProposal[ActiveVersion]:
    """Withdraw a published artifact: no new run uses it, and what waits for an approval under it is void."""
    refuse_reason(draft.reason)
    proposal = await withdraw_artifact.propose(
        asked.app.deployment, asked.tenant_id, asked.name, reason=draft.reason, expected=draft.expected, by=asked.by
    )
    return proposal.then(lambda _: active_version(asked, draft.expected + 1))


async def active_version(asked: Asked, version: int) -> ActiveVersion:
    """Return the answer to an act after which the active set has this version."""
    return ActiveVersion(version=version, unmatched=await unmatched_in(asked))


async def unmatched_in(asked: Asked) -> list[UnmatchedInForce]:
    """Return the same findings about the policies and packs in force that the command line shows."""
    problems = await asked.app.configuration.of_tenant(asked.tenant_id)
    return [UnmatchedInForce(ref=ref, **asdict(problem)) for ref, problem in problems]


PACK_OPERATIONS: Final = (
    Operation("packs.list", ("GET", "/packs"), PACK_READERS, Paged, ArtifactPage, list_artifacts),
    Operation(
        "packs.withdraw",
        ("POST", "/packs/{ref}/withdraw"),
        (POLICY_ADMIN_ROLE,),
        Withdrawal,
        ActiveVersion,
        withdraw,
        signs="withdraw a published artifact",
        about=REF,
    ),
)
