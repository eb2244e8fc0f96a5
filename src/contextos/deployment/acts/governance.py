"""Acts on the catalog of a tenant: publish, activate policies, pin packs, withdraw.

Each act names the version of the tenant's active set that the actor saw. If the set has another version now, nothing
changes and the act is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextos.contracts.acts import PackPin
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.facts import ENVIRONMENTS, name_remedy
from contextos.control.artifact_repository import ActiveArtifacts
from contextos.control.artifacts import GovernedArtifact
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_commit
from contextos.deployment.acts.blind_limits import refuse_blind_limits
from contextos.deployment.acts.unmatched_rules import other_versions, refuse_unmatched, version_of
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidArtifact, Problem
from contextos.trust.redact import find_unsafe_texts


@Act
async def publish_artifact(
    app: Deployment, tenant_id: str, envelope: Mapping[str, Any], *, by: Actor
) -> ActProposal[tuple[str, bool]]:
    """Publish a signed artifact, and return its ref and whether it is new. The same content again changes nothing.

    The publisher is the person whose key signs this act. They cannot approve what depends on the artifact.

    Raises:
        SignatureInvalid: no key that is allowed to sign packs signed the artifact.
        InvalidArtifact: lint refuses it, a rule of it can never match in this tenant, it is for another tenant, or the
            ref already has different content.
        ApprovalRefused: as `prove_act`.
        Conflict: another process published at the same moment; publish again.
    """
    catalog = app.catalog(tenant_id)
    if problems := find_unsafe_texts(catalog.opened(dict(envelope)).to_json()):
        raise InvalidArtifact(*problems)
    ref, proposed = await catalog.publication(dict(envelope))
    if proposed is None:
        return ActProposal.of_nothing(by, (ref, False))
    await refuse_unmatched(app, tenant_id, catalog.opened(dict(envelope)))
    await app.refuse_retired(tenant_id, envelope)

    async def return_ref(_: None) -> tuple[str, bool]:
        return ref, True

    return propose_commit(app.ports, app.config, tenant_id, proposed, by).then(return_ref)


@Act
async def activate_policies(
    app: Deployment, tenant_id: str, level_refs: Sequence[tuple[Level, str]], *, expected: int, by: Actor
) -> ActProposal[None]:
    """Put exactly these policies in force above every pack. The same list again changes nothing.

    Raises:
        NotFound: a ref is not published in this tenant, or is withdrawn.
        InvalidArtifact: the active set has another version than `expected`, a ref cannot be active at its level, or one
            that is new in the list has a rule that can never match.
        ApprovalRefused: as `prove_act`.
        Conflict: another process changed the set at the same moment; look at it and activate again.
    """
    catalog = app.catalog(tenant_id)
    proposed = await catalog.activation(level_refs, expected=expected)
    if proposed is None:
        return ActProposal.of_nothing(by, None)
    # Policies that are in force already are not checked, so that each of them can be ended alone.
    before = {ref for _, ref in (await catalog.active()).policies}
    for ref in sorted({ref for _, ref in level_refs} - before):
        stored = await catalog.repository.published(ref)
        await refuse_unmatched(app, tenant_id, stored.artifact if stored else None)
    return propose_commit(app.ports, app.config, tenant_id, proposed, by)


@Act
async def pin_packs(app: Deployment, tenant_id: str, pin: PackPin, *, expected: int, by: Actor) -> ActProposal[None]:
    """Allow requests that name exactly the refs of `pin`, for its intents in its environment.

    Raises:
        InvalidArtifact: this deployment serves another environment, a limit of a pack would not see the calls of
            another pack, or as `activate_policies`.
        NotFound, ApprovalRefused, Conflict: as `activate_policies`.
    """
    environment = app.config.environment
    if pin.environment not in ENVIRONMENTS:
        detail, remedy = f"there is no environment `{pin.environment[:80]}`", name_remedy(pin.environment, ENVIRONMENTS)
        raise InvalidArtifact(Problem("/environment", "unknown_environment", detail, remedy))
    if pin.environment != environment:
        detail = f"this deployment serves `{environment}`, and nothing of it is used in `{pin.environment}`"
        remedy = f"publish the same signed files in the deployment of `{pin.environment}`, and pin them there"
        raise InvalidArtifact(Problem("/environment", "other_environment", detail, remedy))
    proposed = await app.catalog(tenant_id).pinning(pin, expected=expected)
    await refuse_blind_limits(app.catalog(tenant_id), pin)
    return propose_commit(app.ports, app.config, tenant_id, proposed, by)


@Act
async def withdraw_pin(app: Deployment, tenant_id: str, pin: PackPin, *, expected: int, by: Actor) -> ActProposal[None]:
    """End what `pin_packs` allowed, for the intents of `pin` in its environment. Raises as `pin_packs`."""
    proposed = await app.catalog(tenant_id).unpinning(pin, expected=expected)
    return propose_commit(app.ports, app.config, tenant_id, proposed, by)


@Act
async def withdraw_artifact(
    app: Deployment, tenant_id: str, ref: str, *, reason: str, expected: int, by: Actor
) -> ActProposal[None]:
    """Withdraw a ref: no new run can pin it, and approvals that depend on it become void. Raises as `pin_packs`."""
    proposed = await app.catalog(tenant_id).withdrawal(ref, reason=reason, expected=expected)
    return propose_commit(app.ports, app.config, tenant_id, proposed, by)


async def initialise_tenant(
    app: Deployment,
    tenant_id: str,
    envelopes: Sequence[dict[str, Any]],
    policies: Sequence[tuple[Level, str]],
    *,
    by: Actor,
    keep: bool = False,
) -> list[str]:
    """Publish these signed artifacts, put these policies in force if nothing is active yet, and pin the packs.

    A pack is pinned alone, for its own intents, in the environment of this deployment. Of several versions the newest
    is pinned, and the pins of the others are withdrawn, unless `keep` is set. Returns what was done, as sentences; a
    step that was done before is left out. Raises as the functions above.
    """
    catalog = app.catalog(tenant_id)
    done: list[str] = []
    packs: list[ContextPack] = []
    # An artifact that another one names is published first.
    artifacts = sorted(
        ((catalog.opened(envelope), envelope) for envelope in envelopes), key=lambda pair: _publishing_rank(pair[0])
    )
    for artifact, envelope in artifacts:
        ref, proposed = await catalog.publication(envelope)
        if proposed:
            await app.refuse_retired(tenant_id, envelope)
            await propose_commit(app.ports, app.config, tenant_id, proposed, by).signed()
            done.append(f"published {ref}")
        packs += [artifact] if isinstance(artifact, ContextPack) else []
    if not (await catalog.active()).version:
        await activate_policies(app, tenant_id, policies, expected=0, by=by)
        done.append(f"put {len(policies)} policies in force")
    for pack in packs if keep else newest_packs(packs):
        active, environment = await catalog.active(), app.config.environment
        if intents := unpinned(active, pack, environment):
            pin = PackPin(refs=(pack.pin,), intents=intents, environment=environment)
            await pin_packs(app, tenant_id, pin, expected=active.version, by=by)
            done.append(f"pinned {pack.pin} for {', '.join(intents)} in {environment}")
        if not keep:
            done += await _withdraw_other_pins(app, tenant_id, pack, by)
    return done


def _publishing_rank(artifact: GovernedArtifact) -> int:
    """Return the rank for publishing: profiles, then routing rules, which name profiles, then everything else."""
    return 0 if isinstance(artifact, ModelProfile) else 1 if isinstance(artifact, RoutingRules) else 2


def newest_packs(packs: Sequence[ContextPack]) -> list[ContextPack]:
    """Return the newest version of each pack."""
    by_version = sorted(packs, key=lambda pack: version_of(pack.pin))
    return list({pack.pack_meta.pack_id: pack for pack in by_version}.values())


def unpinned(active: ActiveArtifacts, pack: ContextPack, environment: str) -> tuple[str, ...]:
    """Return the intents of a pack for which there is no pin of this pack alone."""
    intents = [intent.intent_id for intent in pack.decision_layer.intents]
    return tuple(intent for intent in intents if not active.allows((pack.pin,), intent, environment))


async def _withdraw_other_pins(app: Deployment, tenant_id: str, pack: ContextPack, by: Actor) -> list[str]:
    """End the pins of other versions of a pack, for its intents in this environment. Return sentences about it."""
    catalog, done = app.catalog(tenant_id), list[str]()
    for pin in other_versions(await catalog.active(), pack, app.config.environment):
        await withdraw_pin(app, tenant_id, pin, expected=(await catalog.active()).version, by=by)
        done.append(f"withdrew {', '.join(pin.refs)} for {', '.join(pin.intents)} in {pin.environment}")
    return done
