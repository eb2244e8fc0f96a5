"""Reads packs, catalogs and policies before they are signed, and finds the problems of each.

An artifact is checked alone, together with the artifacts beside it, and against a deployment: its tools, the roles that
its people hold, and its egress lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from contextos.action.foreign_code import describe_adapter
from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.yaml_text import lines_in, read_document
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import name_remedy, nearest_name
from contextos.control.artifact_repository import ActiveArtifacts
from contextos.control.artifacts import (
    ADAPTER_TYPE,
    INTENTS_TYPE,
    PACK_TYPE,
    POLICY_TYPE,
    PROFILE_TYPE,
    ROUTING_TYPE,
    SPECS_TYPE,
    GovernedArtifact,
    MergedArtifacts,
    merge,
    read_artifact,
    ref_of,
    tenant_of,
)
from contextos.control.catalog import Catalog
from contextos.control.lint.access import lint_access, lint_integrity
from contextos.control.lint.bounds import lint_bounds, permitted_limits
from contextos.control.lint.egress import lint_egress
from contextos.control.lint.models import lint_models
from contextos.control.lint.money import lint_money
from contextos.control.lint.pack import lint_merged, lint_pack
from contextos.control.vocabulary import pack_vocabulary
from contextos.deployment.acts.governance import newest_packs, unpinned
from contextos.deployment.acts.unmatched_rules import (
    TenantNames,
    other_versions,
    pinned_packs,
    policies_in_force,
    unmatched_in_force,
    unmatched_names,
    unmatched_rules,
    version_of,
)
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidArtifact, Problem, SignatureInvalid
from contextos.packs.building import expand_content
from contextos.packs.deployed import Deployed, lint_deployed, lint_rule_names
from contextos.packs.expansion import Expansion
from contextos.trust.policy.policy_set import compile_policy
from contextos.trust.redact import find_unsafe_texts
from contextos.trust.seal import MAX_ENVELOPE_BYTES, decode_base64

_PAYLOAD_TYPES: Final = {
    **dict.fromkeys(("pack_meta", "decision_layer", "policy_layer", "tooling_layer"), PACK_TYPE),
    "bundle": POLICY_TYPE,
    "intents": INTENTS_TYPE,
    "decision_specs": SPECS_TYPE,
    "profile_id": PROFILE_TYPE,
    "rules_id": ROUTING_TYPE,
    **dict.fromkeys(("operations", "definition", "connection", "format"), ADAPTER_TYPE),
}
"""The payload type of a document, by a field that only documents of this type have."""
_MIN_SIMILARITY: Final = 0.8
_MODEL_FILE: Final = re.compile(rb"""^["']?(?:profile_id|rules_id)["']?[ \t]*:""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KnownHere:
    """Facts of a deployment for lint: the definitions of its adapters; by tenant, the held roles, the egress lists, the
    policies in force, and the published profiles and routing rules of models. `deployed` has its limits and version.
    """

    definitions: Mapping[str, AdapterDefinition]
    roles: Mapping[str, HeldRoles]
    egress: Mapping[str, tuple[str, ...]]
    policies: Mapping[str, Sequence[PolicyArtifact]] = field(default_factory=dict)
    deployed: Deployed | None = None
    tenants: Sequence[str] = ()
    """The tenants that the directory lists; empty if they are not known."""
    models: Mapping[str, Sequence[ModelProfile | RoutingRules]] = field(default_factory=dict)


async def known_here(deployment: Deployment, *tenants: str) -> KnownHere:
    """Return all that a deployment knows of these tenants. Raises `Unavailable` if an adapter or the directory does not
    answer.
    """
    ports = deployment.ports
    adapters = {name: adapter for tenant_id in tenants for name, adapter in ports.adapters(tenant_id).items()}
    definitions = {name: describe_adapter(name, adapter) for name, adapter in adapters.items()}
    roles = {tenant_id: await ports.directory.held_roles(tenant_id) for tenant_id in tenants}
    policies = {
        tenant_id: tuple((await policies_in_force(deployment.catalog(tenant_id))).values()) for tenant_id in tenants
    }
    models = {tenant_id: await deployment.catalog(tenant_id).models() for tenant_id in tenants}
    return KnownHere(definitions, roles, deployment.config.egress, policies, Deployed.by(deployment), models=models)


async def require_lint(
    deployment: Deployment,
    tenant_id: str,
    envelopes: Iterable[dict[str, Any]],
    *,
    declared: Iterable[Expansion] = (),
    policies: Iterable[tuple[str, str]] = (),
    keep: bool = False,
) -> None:
    """Refuse artifacts that `contextos pack lint --adapters` refuses, before `initialise_tenant` changes anything: lint
    checks each artifact that is not published yet, or that comes into force, with all that this deployment knows.

    `envelopes` are the signed artifacts, and `declared` the short forms whose expansions are among them. `policies` are
    the (level, ref) that come into force if nothing is active yet. Raises `InvalidArtifact`.
    """
    catalog, environment = deployment.catalog(tenant_id), deployment.config.environment
    artifacts = {ref_of(artifact): artifact for artifact in map(catalog.opened, envelopes)}
    active = await catalog.active()
    packs = [artifact for artifact in artifacts.values() if isinstance(artifact, ContextPack)]
    new_refs = {pack.pin for pack in (packs if keep else newest_packs(packs)) if unpinned(active, pack, environment)}
    in_force = [ref for _, ref in (active.policies if active.version else policies)]
    with_policies = {**await _published_artifacts(catalog, in_force), **artifacts}
    if not active.version:
        new_refs.update(in_force)
        artifacts = with_policies
    known = await _known_with(deployment, tenant_id, (with_policies.get(ref) for ref in in_force))
    expansions = {expansion.pack.pin: expansion for expansion in declared}
    problems: list[Problem] = []
    for ref, artifact in artifacts.items():
        if ref in new_refs or await catalog.repository.digest_of(ref) is None:
            # Policies above the packs are about other packs too, and are linted by themselves.
            beside = [
                other for other in artifacts.values() if other is not artifact and not isinstance(other, PolicyArtifact)
            ]
            faults = artifact_problems(artifact, beside, known)
            problems += _with_ref(ref, expansions[ref].placed(faults) if ref in expansions else faults)
    _refuse_problems(problems)


async def require_lint_of_pin(deployment: Deployment, tenant_id: str, pin: PackPin) -> None:
    """Refuse a pin if `contextos pack lint --adapters` refuses its artifacts together. Raises `InvalidArtifact`."""
    artifacts = await _published_artifacts(deployment.catalog(tenant_id), pin.refs)
    known, problems = await known_here(deployment, tenant_id), list[Problem]()
    for ref, artifact in artifacts.items():
        beside = [other for other in artifacts.values() if other is not artifact]
        problems += _with_ref(ref, artifact_problems(artifact, beside, known))
    _refuse_problems(problems)


async def require_lint_of_policies(
    deployment: Deployment, tenant_id: str, level_refs: Sequence[tuple[str, str]]
) -> None:
    """Refuse to put exactly these policies in force if lint refuses a new one, or refuses a pinned pack with them: for
    example because no sum limits its money any more. Raises `InvalidArtifact`.
    """
    catalog = deployment.catalog(tenant_id)
    artifacts = await _published_artifacts(catalog, (ref for _, ref in level_refs))
    refs_before = {ref for _, ref in (await catalog.active()).policies}
    known, after = await known_here(deployment, tenant_id), await _known_with(deployment, tenant_id, artifacts.values())
    problems: list[Problem] = []
    for ref in (ref for ref in artifacts if ref not in refs_before):
        problems += _with_ref(ref, artifact_problems(artifacts[ref], (), after))
    for pack, beside in await pinned_packs(deployment, tenant_id, deployment.config.environment):
        old = set(artifact_problems(pack, beside, known))
        problems += _with_ref(pack.pin, (fault for fault in artifact_problems(pack, beside, after) if fault not in old))
    _refuse_problems(problems)


async def _published_artifacts(catalog: Catalog, refs: Iterable[str]) -> dict[str, GovernedArtifact]:
    """Return the published artifacts among `refs`, by ref. A ref that is not published is refused later, by the act."""
    publications = {ref: await catalog.repository.published(ref) for ref in refs}
    return {ref: publication.artifact for ref, publication in publications.items() if publication is not None}


async def _known_with(deployment: Deployment, tenant_id: str, policies: Iterable[GovernedArtifact | None]) -> KnownHere:
    """Return the facts of the deployment for lint, as they are once exactly these policies are in force."""
    in_force = tuple(policy for policy in policies if isinstance(policy, PolicyArtifact))
    return replace(await known_here(deployment, tenant_id), policies={tenant_id: in_force})


def _with_ref(ref: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    return (replace(problem, detail=f"`{ref}`: {problem.detail}") for problem in problems)


def _refuse_problems(problems: Sequence[Problem]) -> None:
    if problems:
        raise InvalidArtifact(*dict.fromkeys(problems))


async def problems_in_force(deployment: Deployment, tenant_id: str) -> list[tuple[str, Problem]]:
    """Return (ref, problem) for each part of a policy in force, or of a pack that requests can use here, that can never
    take effect, or not now. Raises as `known_here`.
    """
    problems = await unmatched_in_force(deployment, tenant_id)
    if packs := await pinned_packs(deployment, tenant_id, deployment.config.environment):
        known = await known_here(deployment, tenant_id)
        in_packs = [(pack.pin, fault) for pack, beside in packs for fault in artifact_problems(pack, beside, known)]
        problems += dict.fromkeys(in_packs)
        active = await deployment.catalog(tenant_id).active()
        problems += _looser_alternatives(active, [pack for pack, _ in packs], deployment.config.environment)
    return problems


def _looser_alternatives(
    active: ActiveArtifacts, packs: Sequence[ContextPack], environment: str
) -> Iterator[tuple[str, Problem]]:
    """Yield (ref, problem) for each pack beside which a request can choose an earlier or an observing version."""
    remedy = "end the other one with `contextos pack withdraw`"
    for pack in {pack.pin: pack for pack in packs}.values():
        for pin in other_versions(active, pack, environment):
            others = [ref for ref in pin.refs if ref.startswith(f"{pack.pack_meta.pack_id}@")]
            earlier = [ref for ref in others if version_of(ref) < version_of(pack.pin)]
            if earlier:
                detail = f"a request for `{pin.intents[0]}` can choose `{earlier[0]}` beside it"
                yield pack.pin, Problem("", "beside", detail, remedy)
        if pack.pack_meta.mode == "enforce":
            for other in packs:
                if other.pack_meta.mode == "observe" and (shared := _intent_ids(pack) & _intent_ids(other)):
                    detail = f"a request for `{min(shared)}` can choose `{other.pin}` beside it, which stops no call"
                    yield pack.pin, Problem("", "observes_beside", detail, remedy)


def _intent_ids(pack: ContextPack) -> set[str]:
    return {intent.intent_id for intent in pack.decision_layer.intents}


def read_unsigned(
    raw: bytes, definitions: Callable[[], Iterable[AdapterDefinition]]
) -> tuple[GovernedArtifact, Expansion | None]:
    """Return a pack, catalog or policy, and its expansion if `raw` is a short form, expanded for the tools of
    `definitions`. The artifact is bare or in an envelope, whose signature is not checked here.

    Raises:
        InvalidInput: `raw` is none of these.
    """
    with lines_in(raw):
        is_json = raw.lstrip()[:1] in (b"{", b"[")
        value = loads(raw, max_bytes=MAX_ENVELOPE_BYTES) if is_json else yaml_of_models(raw)
    if value is None or (isinstance(value, dict) and "name" in value):
        expansion = expand_content(raw, definitions())
        return expansion.pack, expansion
    if not isinstance(value, dict):
        raise InvalidArtifact(Problem("", "not_an_object", "an artifact is a JSON object", "pass a pack or a catalog"))
    if "payloadType" in value:
        try:
            payload = decode_base64(value.get("payload"))
        except SignatureInvalid as error:
            raise InvalidArtifact(Problem("/payload", "not_base64", str(error), "send it as it was sealed")) from None
        return read_artifact(str(value["payloadType"]), payload).artifact, None
    with lines_in(raw):
        return read_artifact(payload_type_of(value) or PACK_TYPE, canonical(value)).artifact, None


def yaml_of_models(raw: bytes) -> dict[str, Any] | None:
    """Return the document of a YAML file that is a profile or routing rules of models; None for another file.

    Raises:
        MalformedJson: the file looks like one of these, but is not valid YAML.
    """
    if _MODEL_FILE.search(raw) is None:
        return None
    value = read_document(raw)
    return value if isinstance(value, dict) and "name" not in value else None


def payload_type_of(document: Mapping[str, Any]) -> str | None:
    """Return the payload type of a bare pack, catalog, policy or adapter file, by its members, or None. If no member is
    known, a member whose name is similar to a known one counts.
    """
    similar = (nearest_name(member[:80], _PAYLOAD_TYPES, _MIN_SIMILARITY) for member in [*document][:100])
    members = [member for member in _PAYLOAD_TYPES if member in document] or [member for member in similar if member]
    return _PAYLOAD_TYPES[members[0]] if members else None


def artifact_problems(
    artifact: GovernedArtifact, beside: Sequence[GovernedArtifact] = (), known: KnownHere | None = None
) -> Iterator[Problem]:
    """Yield the problems of an artifact, alone or together with the artifacts `beside` it and with what is `known`."""

    yield from find_unsafe_texts(artifact.to_json())
    tenant_id = tenant_of(artifact)
    if known and known.tenants and tenant_id is not None and tenant_id not in known.tenants:
        # Nothing else is known about this tenant, so nothing else is checked.
        place = "/pack_meta/tenant" if isinstance(artifact, ContextPack) else "/tenant"
        remedy = name_remedy(tenant_id, known.tenants)
        yield Problem(place, "no_tenant", f"the directory has no tenant `{tenant_id}`", remedy)
        return
    tools = TenantNames(known.definitions).tools if known else {}
    if isinstance(artifact, PolicyArtifact):
        unmatched = unmatched_rules(artifact.bundle, _names_beside(beside, known))
        bounds = lint_bounds(artifact.bundle, tools, {}) if tools else ()
        name_problems = lint_rule_names(artifact.bundle)
        yield from (_with_prefix("/bundle", problem) for problem in (*unmatched.never, *name_problems, *bounds))
        return
    models = known.models.get(tenant_id or "", ()) if known else ()
    yield from lint_models(artifact, (*models, *beside), known.egress.get(tenant_id or "", ()) if known else None)
    if not isinstance(artifact, ContextPack):
        return
    others = [other for other in beside if not isinstance(other, ContextPack)]
    merged = merge(artifact, others)
    if known is None:
        yield from lint_pack(artifact, None)
        yield from lint_access(merged, None, None)
    else:
        yield from lint_merged(merged, known.definitions)
        yield from lint_access(merged, known.definitions, known.roles[artifact.pack_meta.tenant])
        yield from lint_integrity(merged, known.definitions)
        yield from lint_egress(merged, known.definitions, known.egress.get(artifact.pack_meta.tenant, ()))
        if known.deployed is not None:
            yield from lint_deployed(merged, known.definitions, known.roles[artifact.pack_meta.tenant], known.deployed)
        higher_bundles = [policy.bundle for policy in known.policies.get(artifact.pack_meta.tenant, ())]
        yield from lint_money(merged, tools, higher_bundles)
    pointers = set()
    for problem in _policy_problems(artifact, merged, known):
        pointers.add(problem.pointer)
        yield problem
    names = TenantNames(known.definitions, [merged], known.roles[artifact.pack_meta.tenant]) if known else TenantNames()
    for index, bundle in enumerate(artifact.policy_layer.policy_bundles):
        unmatched = unmatched_names(bundle, names)
        bounds = lint_bounds(bundle, tools, permitted_limits(artifact))
        for problem in (*unmatched.never, *unmatched.later, *lint_rule_names(bundle), *bounds):
            placed = _with_prefix(f"/policy_layer/policy_bundles/{index}", problem)
            if placed.pointer not in pointers:
                yield placed


def _with_prefix(place: str, problem: Problem) -> Problem:
    return replace(problem, pointer=place + problem.pointer)


def _names_beside(beside: Sequence[GovernedArtifact], known: KnownHere | None) -> TenantNames:
    """Return the names that rules above the packs can use: tools of the workspace, and packs linted together."""
    packs = [
        merge(pack, [item for item in beside if item is not pack]) for pack in beside if isinstance(pack, ContextPack)
    ]
    return TenantNames(known.definitions if known else None, packs or None)


def _policy_problems(pack: ContextPack, merged: MergedArtifacts, known: KnownHere | None) -> Iterator[Problem]:
    """Yield the problems of the policies: of each bundle alone, at its place in the pack, then of all together."""
    vocabulary = pack_vocabulary(pack, merged.specs, known.definitions.values() if known else None)
    reported: set[tuple[str, str]] = set()
    guards = pack.policy_layer.guardrails
    places = {bundle.bundle_id: index for index, bundle in enumerate(pack.policy_layer.policy_bundles)}
    rounds: list[tuple[str, list[Any], Any, Any]] = [
        (f"/policy_layer/policy_bundles/{places[name]}" if name in places else "", [leveled], (), ())
        for name, leveled in merged.bundles.items()
    ]
    rounds.append(("/policy_layer", list(merged.bundles.values()), guards.must_refuse, guards.must_escalate))
    for prefix, bundles, refuse, escalate in rounds:
        try:
            compile_policy(
                bundles, gates=merged.gates, must_refuse=refuse, must_escalate=escalate, vocabulary=vocabulary
            )
        except InvalidArtifact as error:
            for problem in error.problems:
                if (problem.code, problem.detail) not in reported:
                    reported.add((problem.code, problem.detail))
                    yield Problem(prefix + problem.pointer, problem.code, problem.detail, problem.remedy)


def require_tenants(named: Iterable[str | None], listed: Sequence[str] | None) -> None:
    """Refuse artifacts for a tenant that is not `listed`: they could never be in force. Raises `InvalidArtifact`."""
    unknown = (
        [] if listed is None else [name for name in dict.fromkeys(named) if name is not None and name not in listed]
    )
    faults = [(f"the directory has no tenant `{name[:80]}`", name_remedy(name, listed or ())) for name in unknown]
    if faults:
        raise InvalidArtifact(*(Problem("/tenant", "no_tenant", *fault) for fault in faults))
