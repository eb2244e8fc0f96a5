"""The values that describe one run and one call. Planes receive these values and no ports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from contextos.contracts.controls import NO_RUN_CONTROLS, KnownFacts, RunControls
from contextos.contracts.encoding.jcs import same_json
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.envelopes.identity import IdentityClaim, PlatformScope, Principal, Principals
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ApprovalGate, ContextPack, Permission
from contextos.contracts.envelopes.plan import DecisionSpec, TakenParameter
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode, CapabilityView, PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest, RunContext
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.journal import Write
from contextos.contracts.model import final_fields

ADAPTER: Final = "adapter:"
"""The pin of the definition of an adapter, by its id."""
CODE: Final = "code:"
"""The pin of an adapter's own code."""
PACKAGES: Final = "packages:"
"""The pin of the packages that an adapter's code imports; an adapter that imports nothing does not have this pin."""
PINS_OF_ADAPTERS: Final = (ADAPTER, CODE, PACKAGES)
RUNTIME: Final = "runtime"
"""The pin of the build of the runtime that admitted the run. No call is bound to it (ADR 0064)."""


@dataclass(frozen=True)
class Capability:
    """A registered tool of an adapter. `definition_digest` is the digest of the adapter's whole definition.

    `permissions` are the pack's permissions for this tool, for every role: their constraints apply to every caller.
    """

    capability_id: str
    adapter: AdapterDefinition
    definition: CapabilityDefinition
    definition_digest: str
    permissions: tuple[Permission, ...] = ()

    @cached_property
    def consents(self) -> frozenset[str]:
        """The names of the evidence that has to say `true`, as the consent to a call."""
        return frozenset(permission.consent for permission in self.permissions if permission.consent is not None)

    @cached_property
    def evidence_args(self) -> Mapping[str, Sequence[Mapping[str, str]]]:
        """The values of `Fact.about` that count for a call, by the name of the evidence, each with the argument that it
        must equal. Each permission that states `evidence_args` for this evidence gives one mapping.
        """
        mappings: dict[str, list[Mapping[str, str]]] = {}
        for permission in self.permissions:
            for name, names in permission.evidence_args.items():
                mappings.setdefault(name, []).append(names)
        return mappings

    @cached_property
    def stated(self) -> Mapping[str, Any]:
        """The `metadata` of the tool in the envelope of each call; `definition_digest` pins the schema that
        `arg_schema_ref` names.
        """
        return {
            "definition_digest": self.definition_digest,
            "arg_schema_ref": f"schema://{self.capability_id}.v{self.adapter.version}",
            "protocol": self.adapter.type,
            "version": self.adapter.version,
        }

    @cached_property
    def destinations(self) -> Sequence[str]:
        """The arguments that say where something goes."""
        return self.adapter.destinations(self.definition)

    @cached_property
    def leaves(self) -> bool:
        """Return whether a call leaves the machine, as declared."""
        return self.adapter.leaves(self.definition)

    @cached_property
    def view(self) -> CapabilityView:
        """The tool as policy rules see it."""
        definition = self.definition
        facts = {
            "capability_id": self.capability_id,
            "kind": definition.kind,
            "risk_level": definition.risk_level,
            "approval_mode": definition.approval_mode,
            "external": self.adapter.external,
        }
        return CapabilityView(self.capability_id, definition.approval_mode, facts)


@final_fields
class Fact:
    """A named piece of evidence of a run. `observed_at_us` is Unix time in microseconds.

    `about` holds the arguments of the call that produced it. Evidence from the graph is about the value that its seed
    was bound to, under the last name of the binding's pointer. `by_default` names the arguments in `about` whose values
    are defaults of the tool: a call without such an argument is about the same. `volatile` maps a JSON Pointer to the
    tolerance of the number there: such a number changes by itself, and by so much without voiding an approval.
    """

    name: str
    evidence_ref: str
    subject: str
    value: Any
    digest: str
    observed_at_us: int
    about: Mapping[str, Any]
    by_default: frozenset[str] = frozenset()
    volatile: Mapping[str, float] = field(default_factory=dict)

    def is_about(self, args: Mapping[str, Any], names: Mapping[str, str] | None = None) -> bool:
        """Return whether a call with `args` is about the same as this evidence: each value of `about` equals the
        argument of the same name. `names` says instead which names of `about` count, each with the argument to equal.
        """
        if names is None:
            for name, value in self.about.items():
                if not same_json(value, args[name]) if name in args else name not in self.by_default:
                    return False
            return True
        for name, argument in names.items():
            if not _is_same_json(self.about.get(name, MISSING), args.get(argument, MISSING)):
                return False
        return True

    def moved_to(self, now: Any) -> tuple[tuple[str, Any, Any, float], ...] | None:
        """Return each volatile number that differs in `now`, the new value of the evidence: its place, the old and the
        new number, and the tolerance. None if `now` also differs elsewhere, or by more than a tolerance.
        """
        changes, value, remaining = [], self.value, now
        for place, tolerance in self.volatile.items():
            old_number: Any = resolve_pointer(value, place)
            new_number: Any = resolve_pointer(remaining, place)
            if not (_is_number(old_number) and _is_number(new_number) and abs(new_number - old_number) <= tolerance):
                continue
            if new_number != old_number:
                changes.append((place, old_number, new_number, tolerance))
            remaining = _replace_at(remaining, place.split("/")[1:], old_number)
        return tuple(changes) if same_json(value, remaining) else None

    def agrees_with(self, args: Mapping[str, Any]) -> bool:
        """Return whether each argument that is also a name in `about` has the same value there."""
        return self.is_about(args, {name: name for name in self.about if name in args})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _replace_at(value: Any, place: Sequence[str], new_value: Any) -> Any:
    return {**value, place[0]: _replace_at(value[place[0]], place[1:], new_value)} if place else new_value


def _is_same_json(value: Any, other_value: Any) -> bool:
    return value is not MISSING and other_value is not MISSING and same_json(value, other_value)


PARAMETERS: Final = "/parameters/"
"""The prefix of a place that is a parameter and not a pointer into the request. No request has such a field."""

SESSION_LIMIT: Final = "max_session_duration_ms"
"""The name of the limit that a `SessionWindow` enforces."""


@final_fields
class SessionWindow:
    """The time limit of a run, counted from its request and including the time that people take to answer.

    `deadline_us` is Unix time in microseconds.
    """

    max_duration_ms: int
    deadline_us: int

    @property
    def limit(self) -> str:
        """Return the sentence that describes this limit in an error message."""
        return f"`{SESSION_LIMIT}` is {self.max_duration_ms}"


@final_fields
class ReceivedRequest:
    """The request as it was received, typed as `request` and in its wire form as `fields`."""

    request: InvokeRequest
    fields: Mapping[str, Any]


@final_fields
class RunIdentity:
    """Who acts in a run. `scopes` is the intersection of the scopes of user, agent and request."""

    principals: Principals
    chain: tuple[Principal, ...]
    scopes: frozenset[str]
    claim: IdentityClaim


@final_fields
class ModelRoutes:
    """How a run chooses a model for one operation: the routing rules, the profiles that these name (by reference), and
    the text of the pack's author for the model.
    """

    rules: RoutingRules
    profiles: Mapping[str, ModelProfile]
    prompt_fragment: str = ""


@final_fields
class PinnedInputs:
    """The versions that a run is pinned to, and what was loaded from them.

    `pins` maps each pinned reference to its content address. `snapshot` is the version of the tenant's graph and
    `semantics` the version of the rules by which a run derives its entries. `egress` lists the endpoints that the
    tenant allows. `models` has the routes of each operation that the pack names.
    """

    pack: ContextPack
    pack_ref: str
    pins: Mapping[str, str]
    publishers: tuple[str, ...]
    snapshot: str
    semantics: int
    egress: frozenset[str]
    specs: Mapping[str, DecisionSpec]
    gates: Mapping[str, ApprovalGate]
    models: Mapping[str, ModelRoutes] = field(default_factory=dict)
    _used: dict[tuple[str, ...], tuple[Mapping[str, str], Mapping[str, str]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def used_by(self, *capabilities: Capability) -> Mapping[str, str]:
        """Return the pins that calls of these tools use: all but those of other adapters and of the runtime."""
        adapters = tuple([capability.adapter.adapter_id for capability in capabilities])
        pins, used = self._used.get(adapters, (None, {}))
        if pins is not self.pins:
            own_prefixes = {prefix + adapter_id for adapter_id in adapters for prefix in PINS_OF_ADAPTERS}
            used = {
                name: digest
                for name, digest in self.pins.items()
                if name in own_prefixes or (name != RUNTIME and not name.startswith(PINS_OF_ADAPTERS))
            }
            self._used[adapters] = self.pins, used
        return used


@final_fields
class ToolAccess:
    """The registered tools (capabilities) by id, those `granted` to this run, and those that its planner can see."""

    capabilities: Mapping[str, Capability]
    granted: frozenset[str]
    surfaced: frozenset[str]


def platform_scopes_of(adapter: AdapterDefinition, tool: CapabilityDefinition) -> tuple[PlatformScope, ...]:
    """Return the platform scopes that an agent needs to call a tool of an adapter."""
    needed: PlatformScope = "tools:read" if tool.kind == "read" else "tools:write"
    return (needed, "a2a:send") if adapter.type == "a2a" else (needed,)


def withheld_from(
    capability: Capability,
    scopes: frozenset[str],
    platform: frozenset[str],
    *,
    acts_for_user: bool,
    asked_for: Collection[str] | None,
) -> str | None:
    """Return why a run with these scopes cannot have a tool, whatever its pack says; None if it can.

    `platform` are the platform scopes of its agent. `acts_for_user`: the user has delegated something to the agent,
    which a tool needs that acts for the user. `asked_for` are the only tools that the request asks for; None: all.
    The reason is `platform_scope_missing`, `scope_missing`, `delegation_missing` or `not_asked_for`.
    """
    if not platform.issuperset(platform_scopes_of(capability.adapter, capability.definition)):
        return "platform_scope_missing"
    if not scopes.issuperset(capability.definition.required_scopes):
        return "scope_missing"
    if capability.definition.acts_for_user and not acts_for_user:
        return "delegation_missing"
    if asked_for is not None and capability.capability_id not in asked_for:
        return "not_asked_for"
    return None


@final_fields
class RunScope:
    """What is known of a run. After its admission only `controls` grow, and `tools` are surfaced.

    `facts` are the values below each root name that policy knows from compile on. `controls` are the controls that
    policy decisions raised so far. `session` is the time limit of the run; None if the run was recorded without one.
    `unbound` maps the name of evidence of the graph to the place in the request that should name the entity at which
    the evidence begins, and does not: the run cannot have it. `parameters` are the taken parameters of the intent.
    """

    received: ReceivedRequest
    run: RunContext
    identity: RunIdentity
    pinned: PinnedInputs
    tools: ToolAccess
    facts: KnownFacts
    session: SessionWindow | None = None
    controls: RunControls = NO_RUN_CONTROLS
    unbound: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, TakenParameter] = field(default_factory=dict)

    @property
    def parameter_values(self) -> dict[str, Any]:
        """Return the values of the parameters by name, as bindings read them."""
        return {name: parameter.value for name, parameter in self.parameters.items()}

    def stated_at(self, place: str) -> Any:
        """Return what the request states at `place`, a pointer into it or `/parameters/<name>`; else `MISSING`."""
        name = place.removeprefix(PARAMETERS)
        if name != place:
            return self.parameters[name].value if name in self.parameters else MISSING
        return resolve_pointer(self.received.fields, place)

    @property
    def observes(self) -> bool:
        """Return whether the pack has the mode `observe`: its refusals and questions are recorded, and calls go on."""
        return self.pinned.pack.pack_meta.mode == "observe"

    def withheld_by_others(self, capability: Capability) -> str | None:
        """Return why the directory, the user or the request withholds a tool from this run, whatever its pack says;
        None if none of them does.
        """
        request, definition = self.received.request, capability.definition
        withheld = withheld_from(
            capability,
            self.identity.scopes,
            self.identity.principals.agent.platform,
            acts_for_user=request.user.delegation is not None,
            asked_for=request.runtime.tools,
        )
        modes = [APPROVAL_MODES.index(self.identity.principals.agent.ceiling)]
        if request.runtime.safety_mode is not None:
            modes.append(APPROVAL_MODES.index(request.runtime.safety_mode))
        is_above = APPROVAL_MODES.index(definition.approval_mode) > min(modes)
        return withheld or ("above_safety_mode" if is_above else None)

    def platform_scope_missing(self, capability_id: str) -> str | None:
        """Return which platform scope the agent lacks for a tool and where to give it, or None if it lacks none."""
        capability, agent = self.tools.capabilities.get(capability_id), self.identity.principals.agent
        if capability is None:
            return None
        needed = platform_scopes_of(capability.adapter, capability.definition)
        lacking = [scope for scope in needed if scope not in agent.platform]
        if not lacking:
            return None
        place = f"`platform_scopes` of the agent `{agent.agent_id}` in the directory"
        return f"`{capability_id}` needs the platform scope `{lacking[0]}`, which is not in {place}; add it there"

    def why_not_in_manifest(self, capability_id: str, said: str) -> str:
        """Return `said` and why the run does not have this tool, with a remedy; `said` alone for an unknown tool."""
        capability = self.tools.capabilities.get(capability_id)
        if capability is None:
            return said
        scopes = sorted(set(capability.definition.required_scopes) - self.identity.scopes)
        reasons = {
            "delegation_missing": "it acts for a user, and the user has delegated nothing to the agent; state their "
            "`delegation` (`/user/delegation`, or the `token` of a session)",
            "scope_missing": f"it needs the scope `{next(iter(scopes), '')}`, which the agent does not have here; give "
            "it to both user and agent in the directory, and let the user delegate it",
            "not_asked_for": "the request does not ask for it; add it to `/runtime/tools`",
        }
        pack_reason = "the pack does not list it, prohibits it, or permits it to no role of the user; correct the pack"
        return f"{said}: {reasons.get(self.withheld_by_others(capability) or '', pack_reason)}"

    def lacking(self, evidence: Iterable[str]) -> str:
        """Return these names of evidence, or paths below `evidence`, as text for a message. A name in `unbound` is
        followed by the place that should name its entity.
        """
        return ", ".join(f"`{name}`{self._unbound_text(name.removeprefix('evidence.'))}" for name in evidence)

    def _unbound_text(self, evidence: str) -> str:
        places = (place for name, place in self.unbound.items() if evidence == name or evidence.startswith(f"{name}."))
        place = next(places, None)
        return f" (nothing at `{place}` names where it begins)" if place else ""

    def pins_of(self, action: Action) -> Mapping[str, str]:
        """Return the pins that an approved call uses: of its tool, and of the tools that produced its evidence."""
        tools = self.tools.capabilities
        sources = [tools[fact.subject] for fact in action.evidence if fact.evidence_ref.startswith("tool:")]
        return self.pinned.used_by(action.capability, *sources)

    def session_over(self, at_us: int) -> bool:
        """Return whether the session is over at `at_us` (Unix time in microseconds); False without a session."""
        return self.session is not None and at_us >= self.session.deadline_us

    def within_session(self, at_us: int) -> int:
        """Return `at_us` or the deadline of the session, whichever is earlier."""
        return min(at_us, self.session.deadline_us) if self.session is not None else at_us


@final_fields
class Action:
    """One call that a person is asked to approve: its final arguments and the evidence for it.

    `untrusted` names the arguments whose value no trusted source has, and `secrets` the secret arguments, each with the
    places where its value was found, or `planner`. `instructions` are the sources whose text addresses an agent.
    """

    tool_call_id: str
    key: str
    capability: Capability
    args: Mapping[str, Any]
    evidence: tuple[Fact, ...]
    mode: ApprovalMode
    gate: ApprovalGate
    decision: PolicyDecision
    idempotency_key: str
    untrusted: Mapping[str, tuple[str, ...]]
    secrets: Mapping[str, tuple[str, ...]]
    instructions: tuple[str, ...]


@final_fields
class Redeemed:
    """An approval that was checked and is valid now. The commit that sends the call also marks the approval as used.

    `moved` is the evidence that changed within its tolerance, with its present value.
    """

    approval_id: str
    gate_id: str
    approver: str
    evidence_snapshot_hash: str
    consume: Write
    moved: tuple[Fact, ...] = ()
