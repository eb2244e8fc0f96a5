"""Read packs, catalogs and policies before they are signed, and say what is wrong with them.

Alone, with those beside them, and with what a deployment knows: its tools, the roles that are held, and its egress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import (
    INTENTS_TYPE,
    PACK_TYPE,
    POLICY_TYPE,
    SPECS_TYPE,
    GovernedArtifact,
    MergedArtifacts,
    merge,
    read_artifact,
)
from contextos.control.lint.access import lint_access, lint_integrity
from contextos.control.lint.bounds import lint_bounds, permitted_limits
from contextos.control.lint.egress import lint_egress
from contextos.control.lint.pack import lint_merged, lint_pack
from contextos.control.vocabulary import pack_vocabulary
from contextos.errors import InvalidArtifact, Problem, SignatureInvalid
from contextos.operations.acts.unmatched_rules import TenantNames, unmatched_names, unmatched_rules
from contextos.packs.building import expand_content
from contextos.packs.expansion import Expansion
from contextos.trust.policy.policy_set import compile_policy
from contextos.trust.redact import SECRET_REMEDY, find_secrets
from contextos.trust.seal import decode_base64

_KINDS: Final = {"pack_meta": PACK_TYPE, "bundle": POLICY_TYPE, "intents": INTENTS_TYPE, "decision_specs": SPECS_TYPE}
"""By a field that only artifacts of this type have."""


@dataclass(frozen=True, slots=True)
class KnownHere:
    """What a deployment adds to lint: the definitions of its adapters; by tenant, held roles and egress lists."""

    definitions: Mapping[str, AdapterDefinition]
    roles: Mapping[str, HeldRoles]
    egress: Mapping[str, tuple[str, ...]]


def read_unsigned(
    raw: bytes, definitions: Callable[[], Iterable[AdapterDefinition]]
) -> tuple[GovernedArtifact, Expansion | None]:
    """Return a pack, catalog or policy: bare, or in its envelope, whose signature is not asked for here. The short form
    of a pack is expanded for the tools of `definitions`.

    Raises:
        InvalidInput: it is none of these.
    """
    value = loads(raw) if raw.lstrip()[:1] in (b"{", b"[") else None
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
    kind = next((_KINDS[field] for field in _KINDS if field in value), PACK_TYPE)
    return read_artifact(kind, canonical(value)).artifact, None


def artifact_problems(
    artifact: GovernedArtifact, beside: Sequence[GovernedArtifact] = (), known: KnownHere | None = None
) -> Iterator[Problem]:
    """Yield what is wrong with an artifact, alone or with those beside it and with what a workspace knows."""

    yield from find_secrets(artifact.to_json(), SECRET_REMEDY)
    tools = TenantNames(known.definitions).tools if known else {}
    if isinstance(artifact, PolicyArtifact):
        found = unmatched_rules(artifact.bundle, _names_beside(beside, known))
        bounds = lint_bounds(artifact.bundle, tools, {}) if tools else ()
        yield from (_below("/bundle", one) for one in (*found.never, *bounds))
        return
    if not isinstance(artifact, ContextPack):
        return
    others = [one for one in beside if not isinstance(one, ContextPack)]
    merged = merge(artifact, others)
    if known is None:
        yield from lint_pack(artifact, None)
        yield from lint_access(merged, None, None)
    else:
        yield from lint_merged(merged, known.definitions)
        yield from lint_access(merged, known.definitions, known.roles[artifact.pack_meta.tenant])
        yield from lint_integrity(merged, known.definitions)
        yield from lint_egress(merged, known.definitions, known.egress.get(artifact.pack_meta.tenant, ()))
    reported = set()
    for problem in _rules(artifact, merged, known):
        reported.add(problem.pointer)
        yield problem
    names = TenantNames(known.definitions, [merged], known.roles[artifact.pack_meta.tenant]) if known else TenantNames()
    for index, bundle in enumerate(artifact.policy_layer.policy_bundles):
        found = unmatched_names(bundle, names)
        bounds = lint_bounds(bundle, tools, permitted_limits(artifact))
        for one in (*found.never, *found.later, *bounds):
            placed = _below(f"/policy_layer/policy_bundles/{index}", one)
            if placed.pointer not in reported:
                yield placed


def _below(place: str, one: Problem) -> Problem:
    return replace(one, pointer=place + one.pointer)


def _names_beside(beside: Sequence[GovernedArtifact], known: KnownHere | None) -> TenantNames:
    """What rules above the packs can name: the tools of the workspace, and the packs that are linted together."""
    packs = [
        merge(one, [other for other in beside if other is not one]) for one in beside if isinstance(one, ContextPack)
    ]
    return TenantNames(known.definitions if known else None, packs or None)


def _rules(pack: ContextPack, merged: MergedArtifacts, known: KnownHere | None) -> Iterator[Problem]:
    """Problems of the policies: of each bundle alone, at its place in the pack, then of all together."""
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
            for one in error.problems:
                if (one.code, one.detail) not in reported:
                    reported.add((one.code, one.detail))
                    yield Problem(prefix + one.pointer, one.code, one.detail, one.remedy)
