"""Acts on the artifacts of context slots: install a type, add, revise, classify, archive and delete.

Each change is stored in one transaction with the control entry of its act. Its author is the actor of the act, who
needs the role `publisher`.
Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from contextos.contracts.acts import ProposedAct
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.artifacts import (
    Artifact,
    Assertion,
    ExtensionManifest,
    NewAssertion,
    NewRevision,
    Outranked,
    Revision,
)
from contextos.contracts.journal import Draft
from contextos.contracts.ports.storage import Curation
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_act
from contextos.deployment.deployment import Deployment

ChangedT = TypeVar("ChangedT")


@Act
async def register_extension(
    app: Deployment, tenant_id: str, manifest: ExtensionManifest, *, by: Actor
) -> ActProposal[None]:
    """Install a type of artifact, or replace the list of types that it also counts as.

    Raises:
        ApprovalRefused, Unavailable: as `prove_act`.
    """
    proposed = ProposedAct("slots.extension_registered", manifest.extension, manifest.to_json())
    return _change(app, tenant_id, proposed, by, lambda shelf: shelf.register(manifest))


@Act
async def add_artifact(
    app: Deployment, tenant_id: str, fields: Mapping[str, Any], *, by: Actor
) -> ActProposal[Artifact]:
    """Add an artifact without content. `fields` are those of `Artifact` without author and time.

    Raises:
        InvalidInput: the fields do not fit, the id is taken, or no user could see the artifact.
        ApprovalRefused, Unavailable: as `prove_act`.
    """
    artifact = parse(Artifact, {**fields, "created_by": by.id, "created_at_us": app.ports.clock.now_us()})
    proposed = ProposedAct("slots.artifact_added", artifact.artifact_id, artifact.to_json())

    async def add(shelf: Curation) -> Artifact:
        await shelf.add(artifact)
        return artifact

    return _change(app, tenant_id, proposed, by, add)


@Act
async def add_revision(
    app: Deployment, tenant_id: str, fields: Mapping[str, Any], *, by: Actor
) -> ActProposal[Revision]:
    """Append content to an artifact. `fields` are those of `NewRevision` without author and time.

    Raises:
        NotFound: there is no such live artifact.
        InvalidInput: the fields do not fit.
        ApprovalRefused, Unavailable: as `prove_act`.
    """
    new = parse(NewRevision, {**fields, "created_by": by.id, "created_at_us": app.ports.clock.now_us()})
    digest = content_address([new.mime, new.content])
    args = {"org_id": new.org_id, "artifact_id": new.artifact_id, "digest": digest, "created_at_us": new.created_at_us}
    proposed = ProposedAct("slots.artifact_revised", new.artifact_id, args)
    return _change(app, tenant_id, proposed, by, lambda shelf: shelf.revise(new))


@Act
async def classify_artifact(
    app: Deployment, tenant_id: str, fields: Mapping[str, Any], *, by: Actor
) -> ActProposal[Assertion | Outranked]:
    """State that an artifact is of a type. `fields` are those of `NewAssertion` without author and time.

    A statement that is outranked changes nothing, and its act is not recorded.

    Raises:
        NotFound: there is no such live artifact.
        InvalidInput: the fields do not fit, or the type is not installed.
        ApprovalRefused, Unavailable: as `prove_act`.
    """
    new = parse(NewAssertion, {**fields, "principal_id": by.id, "asserted_at_us": app.ports.clock.now_us()})
    proposed = ProposedAct("slots.artifact_classified", new.artifact_id, new.to_json())
    return _change(app, tenant_id, proposed, by, lambda shelf: shelf.classify(new))


@Act
async def archive_assertion(
    app: Deployment, tenant_id: str, org_id: str, artifact_id: str, extension: str, *, by: Actor
) -> ActProposal[None]:
    """Withdraw the statement that an artifact is of a type. Raises `NotFound`, and as `prove_act`."""
    args = {"org_id": org_id, "artifact_id": artifact_id, "extension": extension}
    proposed = ProposedAct("slots.assertion_archived", artifact_id, args)
    now_us = app.ports.clock.now_us()
    return _change(app, tenant_id, proposed, by, lambda shelf: shelf.archive(org_id, artifact_id, extension, now_us))


@Act
async def delete_artifact(
    app: Deployment, tenant_id: str, org_id: str, artifact_id: str, *, by: Actor
) -> ActProposal[None]:
    """Delete an artifact: no later slot can select it. Raises `NotFound`, and as `prove_act`."""
    args = {"org_id": org_id, "artifact_id": artifact_id}
    proposed, now_us = ProposedAct("slots.artifact_deleted", artifact_id, args), app.ports.clock.now_us()
    return _change(app, tenant_id, proposed, by, lambda shelf: shelf.tombstone(org_id, artifact_id, now_us))


def _change(
    app: Deployment, tenant_id: str, proposed: ProposedAct, by: Actor, change: Callable[[Curation], Awaitable[ChangedT]]
) -> ActProposal[ChangedT]:
    """Return the proposal of an act that makes one change to the artifacts of the tenant."""

    async def write(control: tuple[str, Draft]) -> ChangedT:
        return await change(app.ports.stores.artifacts(tenant_id).under(control[1]))

    return propose_act(app.ports, app.config, tenant_id, proposed, by, write)
