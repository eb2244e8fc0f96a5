"""Resolve the names in rules above the packs against what a tenant has, and find rules that can never match, or not
now.

A rule that names something which does not exist denies nobody, and nobody notices. If no change of the tenant can
remedy the name, the bundle is refused: a pattern for a name, a tool that its adapter does not declare, a fact that no
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
"""By the path of a fact: what kind of name the texts are with which a condition compares the fact."""
_OF_AGENTS: Final = {"agent_id": "agent_id", "agent_urn": "agent_urn", "agent_role": "role"}
"""By the kind of a text: the member of an agent that it names."""


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
        return {f"{name}.{one.name}": one for name, adapter in adapters for one in adapter.capabilities}

    def evidence(self) -> dict[str, Mapping[str, Any] | None] | None:
        """Return the schema of each piece of evidence that a tool produces, or that a pack retrieves or requires."""
        if self.definitions is None or self.packs is None:
            return None
        found: dict[str, Mapping[str, Any] | None] = {}
        for merged in self.packs:
            found |= dict.fromkeys(path.name for path in merged.pack.intelligence_refs.retrieval.evidence)
            found |= dict.fromkeys(name for spec in merged.specs.values() for name in spec.required_evidence)
        return found | {name: tool.output_schema for tool in self.tools.values() for name in tool.produces}


@dataclass(slots=True)
class Unmatched:
    """The problems of rules that can `never` match, and of those that can match `later`."""

    never: list[Problem] = field(default_factory=list)
    later: list[Problem] = field(default_factory=list)


def unmatched_names(bundle: PolicyBundle, known: TenantNames) -> Unmatched:
    """Resolve the names of a bundle: tools, intents, gates, roles and evidence."""
    found = Unmatched()
    for index, rule in enumerate(bundle.policy_dsl.rules):
        if is_never_true(rule.condition, rule.facts):
            place = pointer(("policy_dsl", "rules", index, "if"))
            found.never.append(
                Problem(place, "never_matches", "the condition reads no fact and is false", "correct it")
            )
    for kind, name, at in _names(bundle):
        if kind == "tool":
            _tool(name, at, known, found)
        elif kind == "role":
            if known.held is not None and name not in known.held.users:
                found.later.append(_absent(at, "no user of the tenant holds the role", name, known.held.users))
        elif kind in _OF_AGENTS:
            if known.held is not None and known.held.agents is not None:
                listed = sorted({str(getattr(one, _OF_AGENTS[kind])) for one in known.held.agents})
                if name not in listed:
                    found.later.append(
                        _absent(at, f"no agent of the tenant has the `{_OF_AGENTS[kind]}`", name, listed)
                    )
        elif kind == "person":
            _of_people(name, at, known, found)
        elif kind == "evidence":
            there = known.evidence()
            if there is not None and not any(name == one or name.startswith(f"{one}.") for one in there):
                found.later.append(_absent(at, "no tool and no pinned pack has the evidence", name, there))
        elif known.packs is not None:
            one_of = _intents(known.packs) if kind == "intent" else {gate for one in known.packs for gate in one.gates}
            if name not in one_of:
                found.later.append(_absent(at, f"no pinned pack has the {kind}", name, one_of))
    return found


def unmatched_rules(bundle: PolicyBundle, known: TenantNames) -> Unmatched:
    """Resolve the names of a bundle above the packs, and compile it against the facts that the tenant has."""
    found = unmatched_names(bundle, known)
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
        found.never += [one for one in error.problems if one.code != "observe_not_covered"]
    return found


async def tenant_names(deployment: Deployment, tenant_id: str) -> TenantNames:
    """Return what a tenant has now. Raises `Unavailable` if an adapter or the directory does not answer."""
    ports = deployment.ports
    definitions = {name: describe_adapter(name, one) for name, one in ports.adapters(tenant_id).items()}
    packs = [merge(pack, beside) for pack, beside in await pinned_packs(deployment, tenant_id)]
    return TenantNames(definitions, packs, await ports.directory.held_roles(tenant_id))


async def policies_in_force(catalog: Catalog) -> dict[str, PolicyArtifact]:
    """Return the policies in force above the packs of a tenant, by ref."""
    found = {ref: await catalog.repository.published(ref) for _, ref in (await catalog.active()).policies}
    return {ref: one.artifact for ref, one in found.items() if one and isinstance(one.artifact, PolicyArtifact)}


async def unmatched_in_force(deployment: Deployment, tenant_id: str) -> list[tuple[str, Problem]]:
    """Return the rules in force that cannot match now, as policy ref and problem. Raises as `tenant_names`."""
    listed: list[tuple[str, Problem]] = []
    if policies := await policies_in_force(deployment.catalog(tenant_id)):
        known = await tenant_names(deployment, tenant_id)
        for ref, policy in policies.items():
            found = unmatched_rules(policy.bundle, known)
            listed += [(ref, one) for one in (*found.never, *found.later)]
    return listed


async def refuse_unmatched(deployment: Deployment, tenant_id: str, artifact: object) -> None:
    """Refuse a policy bundle with a rule that can never match in this tenant. Raises `InvalidArtifact`."""
    if isinstance(artifact, PolicyArtifact):
        known = replace(await tenant_names(deployment, tenant_id), held=None)
        if never := unmatched_rules(artifact.bundle, known).never:
            raise InvalidArtifact(*never)


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
    found = [await catalog.repository.published(ref) for ref in pin.refs]
    artifacts = [one.artifact for one in found if one is not None]
    return [
        (one, [other for other in artifacts if other is not one]) for one in artifacts if isinstance(one, ContextPack)
    ]


def session_intents(packs: Iterable[tuple[ContextPack, Sequence[GovernedArtifact]]]) -> set[str]:
    """Return the intents whose calls an agent chooses, of packs that come with the artifacts named beside each."""
    found = set[str]()
    for merged in (merge(pack, beside) for pack, beside in packs):
        chosen = {name for name, one in merged.templates.items() if one.chosen_by == "agent"}
        found |= {name for name, one in merged.intents.items() if chosen.intersection(one.eligible_task_templates)}
    return found


async def intents_beside(deployment: Deployment, tenant_id: str, coming: Iterable[ContextPack]) -> list[Problem]:
    """Return a problem if an agent that names no intent would be refused once these packs are pinned; else none."""
    environment = deployment.config.environment
    pinned = {name for pin in (await deployment.catalog(tenant_id).active()).packs for name in pin.intents}
    now = pinned & session_intents(await pinned_packs(deployment, tenant_id, environment))
    more = sorted(session_intents((one, ()) for one in coming) - now)
    if len(now) != 1 or not more:
        return []
    [only] = now
    detail = f"a session that names no intent is one of `{only}` now; with `{more[0]}` beside it a new one is refused"
    remedy = "have each agent name its own, with `--intent` of `contextos mcp serve` or `intent` of what opens it"
    return [Problem("/intent", "intents_beside", detail, remedy)]


def version_of(ref: str) -> list[int]:
    """Return the version in a ref (`<id>@<x.y.z>`), to compare it with others."""
    return [int(part) for part in ref.rpartition("@")[2].split(".")]


def other_versions(active: ActiveArtifacts, pack: ContextPack, environment: str) -> list[PackPin]:
    """Return the pins of other versions of a pack in an environment, each reduced to the intents that the pack has."""
    own, intents = pack.pack_meta.pack_id + "@", {one.intent_id for one in pack.decision_layer.intents}
    found = []
    for pin in active.packs:
        shared = tuple(one for one in pin.intents if one in intents)
        other = pack.pin not in pin.refs and any(ref.startswith(own) for ref in pin.refs)
        if other and shared and pin.environment == environment:
            found.append(pin.model_copy(update={"intents": shared}))
    return found


def _intents(packs: Sequence[MergedArtifacts]) -> set[str]:
    return {intent for one in packs for intent in one.intents}


def _names(bundle: PolicyBundle) -> Iterator[tuple[str, str, JsonPath]]:
    """Yield the names in a bundle: the kind of each, the name, and its place."""
    for fact, declared in bundle.history.items():
        yield "tool", declared.capability, ("history", fact, "capability")
        yield from (("tool", other, ("history", fact, "also", other)) for other in declared.also)
    for index, rule in enumerate(bundle.policy_dsl.rules):
        yield from _names_of_rule(rule, ("policy_dsl", "rules", index))


def _names_of_rule(rule: Rule, at: JsonPath) -> Iterator[tuple[str, str, JsonPath]]:
    applies, then = rule.applies_to, rule.then
    if applies.capability is not None:
        yield "tool", applies.capability, (*at, "applies_to", "capability")
    if applies.intent is not None:
        yield "intent", applies.intent, (*at, "applies_to", "intent")
    for index, name in enumerate(then.prohibits):
        yield "tool", name, (*at, "then", "prohibits", index)
    for index, name in enumerate(then.requires):
        yield "evidence", name, (*at, "then", "requires", index)
    if then.requires_approval_gate is not None:
        yield "gate", then.requires_approval_gate, (*at, "then", "requires_approval_gate")
    for path, text, place in compared_texts(rule.condition, (*at, "if")):
        if path in NAMES_OF_FACTS:
            yield NAMES_OF_FACTS[path], text, place
    for read in analyse_condition(rule.condition, rule.facts).facts:
        if read.segments[0] in ("evidence", "user", "agent") and len(read.segments) > 1:
            kind = "evidence" if read.segments[0] == "evidence" else "person"
            yield kind, read.path if kind == "person" else read.path.partition(".")[2], (*at, "if")


def _of_people(path: str, at: JsonPath, known: TenantNames, found: Unmatched) -> None:
    """Report a fact of the user or the agent if none of the listed users or agents has it."""
    root, _, name = path.partition(".")
    listed = None if known.held is None else known.held.requesters if root == "user" else known.held.agents
    if listed is not None and all(getattr(one, name, "") is None for one in listed):
        found.later.append(Problem(pointer(at), "not_now", f"no {root} of the tenant has `{path[:80]}`", ""))


def _tool(name: str, at: JsonPath, known: TenantNames, found: Unmatched) -> None:
    if not CAPABILITY.fits(name):
        detail = f"`{name[:80]}` is the id of no tool, and a pattern matches none"
        remedy = "write one rule for each tool by its id, or leave out `capability` for a rule about all"
        found.never.append(Problem(pointer(at), "never_matches", detail, remedy))
    elif name.startswith(CAPABILITY_PREFIX):
        slots = {
            CAPABILITY_PREFIX + step.slot.slot_id
            for one in known.packs or ()
            for template in one.templates.values()
            for step in template.context_slots
        }
        if known.packs is not None and name not in slots:
            found.later.append(_absent(at, "no pinned pack has the slot", name, slots))
    elif known.definitions is not None and name not in known.tools:
        adapter = next((one for one in known.definitions if name.startswith(f"{one}.")), None)
        if adapter is None:
            found.later.append(_absent(at, "no adapter of the tenant has the tool", name, known.tools))
        else:
            near = nearest_name(name, known.tools)
            remedy = f"write `{near}`" if near else f"name a tool that `{adapter}` declares"
            detail = f"`{adapter}` declares no tool `{name[:80]}`"
            found.never.append(Problem(pointer(at), "never_matches", detail, remedy))


def _absent(at: JsonPath, what: str, name: str, names: Any) -> Problem:
    near = nearest_name(name, names)
    return Problem(pointer(at), "not_now", f"{what} `{name[:80]}`", f"did you mean `{near}`?" if near else "")
