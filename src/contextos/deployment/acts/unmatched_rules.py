"""Resolve the names in rules above the packs against what a tenant has. Find the rules that can never match, and those
that cannot match now.

A rule that names something which does not exist denies nobody, and nobody notices. If no change of the tenant can make
the name exist, the bundle is refused: a pattern as a name, a tool that its adapter does not declare, a fact that no
tool has. If the named thing can still come (an adapter, a pack, a role), the rule is listed with the reason until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from contextos.action.foreign_code import describe_adapter
from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.policy import LeveledBundle, PolicyBundle, Rule
from contextos.contracts.envelopes.slots import CAPABILITY_PREFIX
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.facts import Vocabulary, nearest_name
from contextos.contracts.ids import CAPABILITY
from contextos.control.artifact_repository import ActiveArtifacts
from contextos.control.artifacts import GovernedArtifact, MergedArtifacts, merge
from contextos.control.catalog import Catalog
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidArtifact, Problem
from contextos.trust.policy.conditions import analyse_condition
from contextos.trust.policy.fact_lint import compared_texts
from contextos.trust.policy.operators import JsonPath
from contextos.trust.policy.policy_set import compile_policy
from contextos.trust.policy.rule_evaluation import is_never_true

NAMES_OF_FACTS: Final = {
    "capability.capability_id": "tool",
    "request.intent": "intent",
    "agent.agent_id": "agent_id",
    "agent.agent_urn": "agent_urn",
    "agent.role": "agent_role",
    "user.role": "role",
    "user.roles": "role",
}
"""The kind of name with which a condition compares a fact, by the path of the fact."""
_AGENT_MEMBERS: Final = {"agent_id": "agent_id", "agent_urn": "agent_urn", "agent_role": "role"}
"""The member of an agent that has a name of this kind, by the kind."""


@dataclass(frozen=True, slots=True)
class TenantNames:
    """What a tenant has that a rule can name. `packs` are the packs that requests can use, each with the artifacts that
    its pin names beside it. A member that is None is not known, and names of its kind are not checked.
    """

    definitions: Mapping[str, AdapterDefinition] | None = None
    packs: Sequence[MergedArtifacts] | None = None
    held: HeldRoles | None = None

    @property
    def tools(self) -> dict[str, CapabilityDefinition]:
        """Return the tools of the adapters by id."""
        adapters = (self.definitions or {}).items()
        return {f"{name}.{tool.name}": tool for name, adapter in adapters for tool in adapter.capabilities}

    def evidence(self) -> dict[str, Mapping[str, Any] | None] | None:
        """Return the schema of each piece of evidence that a tool produces, or that a pack retrieves or requires."""
        if self.definitions is None or self.packs is None:
            return None
        schemas: dict[str, Mapping[str, Any] | None] = {}
        for merged in self.packs:
            schemas |= dict.fromkeys(path.name for path in merged.pack.intelligence_refs.retrieval.evidence)
            schemas |= dict.fromkeys(name for spec in merged.specs.values() for name in spec.required_evidence)
        return schemas | {name: tool.output_schema for tool in self.tools.values() for name in tool.produces}


@dataclass(slots=True)
class Unmatched:
    """The problems of rules that can `never` match, and of those that can match `later`."""

    never: list[Problem] = field(default_factory=list)
    later: list[Problem] = field(default_factory=list)


def unmatched_names(bundle: PolicyBundle, known: TenantNames) -> Unmatched:
    """Resolve the names of a bundle: tools, intents, gates, roles and evidence."""
    result = Unmatched()
    for index, rule in enumerate(bundle.policy_dsl.rules):
        if is_never_true(rule.condition, rule.facts):
            place = pointer(("policy_dsl", "rules", index, "if"))
            result.never.append(
                Problem(place, "never_matches", "the condition reads no fact and is false", "correct it")
            )
    for kind, name, path in _bundle_names(bundle):
        if kind == "tool":
            _resolve_tool(name, path, known, result)
        elif kind == "role":
            if known.held is not None and name not in known.held.users:
                result.later.append(_no_such(path, "no user of the tenant holds the role", name, known.held.users))
        elif kind in _AGENT_MEMBERS:
            if known.held is not None and known.held.agents is not None:
                values = sorted({str(getattr(agent, _AGENT_MEMBERS[kind])) for agent in known.held.agents})
                if name not in values:
                    result.later.append(
                        _no_such(path, f"no agent of the tenant has the `{_AGENT_MEMBERS[kind]}`", name, values)
                    )
        elif kind == "person":
            _resolve_person_fact(name, path, known, result)
        elif kind == "evidence":
            schemas = known.evidence()
            if schemas is not None and not any(name == other or name.startswith(f"{other}.") for other in schemas):
                result.later.append(_no_such(path, "no tool and no pinned pack has the evidence", name, schemas))
        elif known.packs is not None:
            names = _intents(known.packs) if kind == "intent" else {gate for pack in known.packs for gate in pack.gates}
            if name not in names:
                result.later.append(_no_such(path, f"no pinned pack has the {kind}", name, names))
    return result


def unmatched_rules(bundle: PolicyBundle, known: TenantNames) -> Unmatched:
    """Resolve the names of a bundle above the packs, and compile it against the facts that the tenant has."""
    result = unmatched_names(bundle, known)
    arguments = {name: tool.input_schema for name, tool in known.tools.items()}
    gates = {gate for rule in bundle.policy_dsl.rules if (gate := rule.then.requires_approval_gate) is not None}
    try:
        # A rule of a pack reads only declared facts: here, those that the tenant's tools and packs declare.
        compile_policy(
            [LeveledBundle("pack", bundle, "", "")],
            gates=gates,
            must_refuse=(),
            must_escalate=(),
            vocabulary=Vocabulary(None if known.definitions is None else arguments, known.evidence()),
            declared={name: tool.approval_mode for name, tool in known.tools.items()},
        )
    except InvalidArtifact as error:
        # Whether another level enforces beside this bundle is known only when a run is pinned.
        result.never += [problem for problem in error.problems if problem.code != "observe_not_covered"]
    return result


async def tenant_names(deployment: Deployment, tenant_id: str) -> TenantNames:
    """Return what a tenant has now. Raises `Unavailable` if an adapter or the directory does not answer."""
    ports = deployment.ports
    definitions = {name: describe_adapter(name, adapter) for name, adapter in ports.adapters(tenant_id).items()}
    packs = [merge(pack, artifacts) for pack, artifacts in await pinned_packs(deployment, tenant_id)]
    return TenantNames(definitions, packs, await ports.directory.held_roles(tenant_id))


async def policies_in_force(catalog: Catalog) -> dict[str, PolicyArtifact]:
    """Return the policies in force above the packs of a tenant, by ref."""
    stored = {ref: await catalog.repository.published(ref) for _, ref in (await catalog.active()).policies}
    return {ref: item.artifact for ref, item in stored.items() if item and isinstance(item.artifact, PolicyArtifact)}


async def unmatched_in_force(deployment: Deployment, tenant_id: str) -> list[tuple[str, Problem]]:
    """Return the rules in force that cannot match now, as policy ref and problem. Raises as `tenant_names`."""
    problems: list[tuple[str, Problem]] = []
    if policies := await policies_in_force(deployment.catalog(tenant_id)):
        names = await tenant_names(deployment, tenant_id)
        for ref, policy in policies.items():
            result = unmatched_rules(policy.bundle, names)
            problems += [(ref, problem) for problem in (*result.never, *result.later)]
    return problems


async def refuse_unmatched(deployment: Deployment, tenant_id: str, artifact: object) -> None:
    """Refuse a policy bundle with a rule that can never match in this tenant. Raises `InvalidArtifact`."""
    if isinstance(artifact, PolicyArtifact):
        names = replace(await tenant_names(deployment, tenant_id), held=None)
        if problems := unmatched_rules(artifact.bundle, names).never:
            raise InvalidArtifact(*problems)


async def pinned_packs(
    deployment: Deployment, tenant_id: str, environment: str | None = None
) -> list[tuple[ContextPack, list[GovernedArtifact]]]:
    """Return each pack that requests can use, with the artifacts pinned beside it; only those of `environment`, if
    given.
    """
    catalog, packs = deployment.catalog(tenant_id), list[tuple[ContextPack, list[GovernedArtifact]]]()
    for pin in (await catalog.active()).packs:
        if environment in (None, pin.environment):
            packs += await packs_of(catalog, pin)
    return packs


async def packs_of(catalog: Catalog, pin: PackPin) -> list[tuple[ContextPack, list[GovernedArtifact]]]:
    """Return the packs of a pin, each with the artifacts that the pin names beside it."""
    published = [await catalog.repository.published(ref) for ref in pin.refs]
    artifacts = [stored.artifact for stored in published if stored is not None]
    return [
        (pack, [other for other in artifacts if other is not pack])
        for pack in artifacts
        if isinstance(pack, ContextPack)
    ]


def session_intents(packs: Iterable[tuple[ContextPack, Sequence[GovernedArtifact]]]) -> set[str]:
    """Return the intents whose calls an agent chooses, of packs that come with the artifacts named beside each."""
    intents = set[str]()
    for merged in (merge(pack, artifacts) for pack, artifacts in packs):
        chosen = {name for name, template in merged.templates.items() if template.chosen_by == "agent"}
        intents |= {
            name for name, intent in merged.intents.items() if chosen.intersection(intent.eligible_task_templates)
        }
    return intents


async def intents_beside(deployment: Deployment, tenant_id: str, coming: Iterable[ContextPack]) -> list[Problem]:
    """Return a problem if an agent that names no intent would be refused once these packs are pinned; else none."""
    environment = deployment.config.environment
    pinned = {name for pin in (await deployment.catalog(tenant_id).active()).packs for name in pin.intents}
    current = pinned & session_intents(await pinned_packs(deployment, tenant_id, environment))
    added = sorted(session_intents((pack, ()) for pack in coming) - current)
    if len(current) != 1 or not added:
        return []
    [name] = current
    detail = f"a session that names no intent is one of `{name}` now; with `{added[0]}` beside it a new one is refused"
    remedy = "have each agent name its own, with `--intent` of `contextos mcp serve` or `intent` of what opens it"
    return [Problem("/intent", "intents_beside", detail, remedy)]


def version_of(ref: str) -> list[int]:
    """Return the version in a ref (`<id>@<x.y.z>`), to compare it with others."""
    return [int(part) for part in ref.rpartition("@")[2].split(".")]


def other_versions(active: ActiveArtifacts, pack: ContextPack, environment: str) -> list[PackPin]:
    """Return the pins of other versions of a pack in an environment, each reduced to the intents that the pack has."""
    prefix, intents = pack.pack_meta.pack_id + "@", {intent.intent_id for intent in pack.decision_layer.intents}
    pins = []
    for pin in active.packs:
        shared = tuple(intent for intent in pin.intents if intent in intents)
        is_other = pack.pin not in pin.refs and any(ref.startswith(prefix) for ref in pin.refs)
        if is_other and shared and pin.environment == environment:
            pins.append(pin.model_copy(update={"intents": shared}))
    return pins


def _intents(packs: Sequence[MergedArtifacts]) -> set[str]:
    return {intent for pack in packs for intent in pack.intents}


def _bundle_names(bundle: PolicyBundle) -> Iterator[tuple[str, str, JsonPath]]:
    """Yield the names in a bundle: the kind of each, the name, and its place."""
    for fact, declared in bundle.history.items():
        yield "tool", declared.capability, ("history", fact, "capability")
        yield from (("tool", tool, ("history", fact, "also", tool)) for tool in declared.also)
    for index, rule in enumerate(bundle.policy_dsl.rules):
        yield from _rule_names(rule, ("policy_dsl", "rules", index))


def _rule_names(rule: Rule, base: JsonPath) -> Iterator[tuple[str, str, JsonPath]]:
    applies, then = rule.applies_to, rule.then
    if applies.capability is not None:
        yield "tool", applies.capability, (*base, "applies_to", "capability")
    if applies.intent is not None:
        yield "intent", applies.intent, (*base, "applies_to", "intent")
    for index, name in enumerate(then.prohibits):
        yield "tool", name, (*base, "then", "prohibits", index)
    for index, name in enumerate(then.requires):
        yield "evidence", name, (*base, "then", "requires", index)
    if then.requires_approval_gate is not None:
        yield "gate", then.requires_approval_gate, (*base, "then", "requires_approval_gate")
    for path, text, place in compared_texts(rule.condition, (*base, "if")):
        if path in NAMES_OF_FACTS:
            yield NAMES_OF_FACTS[path], text, place
    for read in analyse_condition(rule.condition, rule.facts).facts:
        if read.segments[0] in ("evidence", "user", "agent") and len(read.segments) > 1:
            kind = "evidence" if read.segments[0] == "evidence" else "person"
            yield kind, read.path if kind == "person" else read.path.partition(".")[2], (*base, "if")


def _resolve_person_fact(path: str, place: JsonPath, known: TenantNames, result: Unmatched) -> None:
    """Report a fact of the user or the agent if none of the listed users or agents has it."""
    root, _, name = path.partition(".")
    people = None if known.held is None else known.held.requesters if root == "user" else known.held.agents
    if people is not None and all(getattr(person, name, "") is None for person in people):
        result.later.append(Problem(pointer(place), "not_now", f"no {root} of the tenant has `{path[:80]}`", ""))


def _resolve_tool(name: str, path: JsonPath, known: TenantNames, result: Unmatched) -> None:
    if not CAPABILITY.fits(name):
        detail = f"`{name[:80]}` is the id of no tool, and a pattern matches none"
        remedy = "write one rule for each tool by its id, or leave out `capability` for a rule about all"
        result.never.append(Problem(pointer(path), "never_matches", detail, remedy))
    elif name.startswith(CAPABILITY_PREFIX):
        slots = {
            CAPABILITY_PREFIX + step.slot.slot_id
            for pack in known.packs or ()
            for template in pack.templates.values()
            for step in template.context_slots
        }
        if known.packs is not None and name not in slots:
            result.later.append(_no_such(path, "no pinned pack has the slot", name, slots))
    elif known.definitions is not None and name not in known.tools:
        adapter = next((adapter_id for adapter_id in known.definitions if name.startswith(f"{adapter_id}.")), None)
        if adapter is None:
            result.later.append(_no_such(path, "no adapter of the tenant has the tool", name, known.tools))
        else:
            nearest = nearest_name(name, known.tools)
            remedy = f"write `{nearest}`" if nearest else f"name a tool that `{adapter}` declares"
            detail = f"`{adapter}` declares no tool `{name[:80]}`"
            result.never.append(Problem(pointer(path), "never_matches", detail, remedy))


def _no_such(path: JsonPath, what: str, name: str, names: Any) -> Problem:
    nearest = nearest_name(name, names)
    return Problem(pointer(path), "not_now", f"{what} `{name[:80]}`", f"did you mean `{nearest}`?" if nearest else "")
