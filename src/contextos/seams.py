"""What the runtime hands to the planes for one run, and nothing more. Planes do not import planes; here they meet.

`World` is the outside of a run: ports, loaded artifacts, limits. The functions below make the seams from it:
policy facts, the Tool Gateway, approvals, the recheck at redemption, the record as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from contextos.action.delivery import Outside
from contextos.action.guards import Standing, Station, capability_facts
from contextos.action.registry import Registry
from contextos.action.spending import Spending
from contextos.action.tool_gateway import Gateway
from contextos.contracts.codec import content_address, own_copy
from contextos.contracts.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.identity import Principals
from contextos.contracts.ids import derive
from contextos.contracts.plan import Plan, PlanStep
from contextos.contracts.policy import CapabilityView, PolicyDecision
from contextos.contracts.ports import (
    Adapter,
    Clock,
    Directory,
    Estimator,
    Journal,
    Keys,
    Knowledge,
    Memory,
    SlotSteps,
    Store,
)
from contextos.contracts.record import DecisionRecord
from contextos.contracts.run import InvokeRequest
from contextos.contracts.scope import Action, Fact, RunScope
from contextos.contracts.tool import CallContext
from contextos.contracts.trace import child
from contextos.contracts.verdicts import Failure
from contextos.control.catalog import Catalog, Loaded
from contextos.decision.planner import binding_of
from contextos.errors import LostReply, Unavailable
from contextos.intelligence.retrieval import admit
from contextos.trust.approvals import Approvals, Recheck
from contextos.trust.identity import mint_claim
from contextos.trust.meter import usage
from contextos.trust.policy import PolicySet, check_args, compile_policy
from contextos.trust.record import Outcome, build_record
from contextos.trust.redact import redact, scan_unsafe
from contextos.trust.settlement import Settlements

AUDIENCE: Final = "contextos.tool_gateway"
MAX_POLICIES: Final = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """What a deployment allows every run at most. Who may ask for something may only ask for less."""

    total_tokens: int = 12_000
    max_tool_calls: int = 50
    max_replan_attempts: int = 2
    wall_clock_ms: int = 30_000
    max_cost_cents: float = 100
    max_payload_bytes: int = 1_048_576
    claim_ttl_s: int = 3_600
    max_session_duration_ms: int = 14_400_000


@dataclass(frozen=True, slots=True)
class World:
    """The outside of one run. In a replay `adapters` is empty and the journal is a tape.

    Without `slots` a template that declares a slot step is refused.
    """

    journal: Journal
    store: Store
    clock: Clock
    keys: Keys
    directory: Directory
    catalog: Catalog
    knowledge: Knowledge
    memory: Memory
    slots: SlotSteps | None
    adapters: Mapping[str, Adapter]
    registry: Registry
    policies: dict[str, PolicySet]
    estimator: Estimator
    limits: Limits
    runtime_version: str
    profile: str
    unsafe: tuple[str, ...]
    unsafe_now: tuple[str, ...]


def described(world: World) -> dict[str, Any]:
    """What of the deployment shows in a run's record: it is recorded with the request."""
    return {"runtime_version": world.runtime_version, "profile": world.profile, "unsafe": list(world.unsafe),
            "limits": {limit.name: getattr(world.limits, limit.name) for limit in fields(world.limits)}}  # fmt: skip


def as_described(world: World, said: Mapping[str, Any]) -> World:
    """The world of a run, with the deployment as it was when the run began: before there were sessions, with none."""
    return replace(
        world, runtime_version=said["runtime_version"], profile=said["profile"], unsafe=tuple(said["unsafe"]),
        limits=Limits(**{"max_session_duration_ms": 0, **said["limits"]}),
    )  # fmt: skip


def policy_of(world: World, loaded: Loaded, pins: Mapping[str, str]) -> PolicySet:
    """The compiled rules of the pinned bundles; compiled once per set of pins."""
    address = content_address(dict(pins))
    if address not in world.policies:
        if len(world.policies) >= MAX_POLICIES:
            world.policies.clear()
        world.policies[address] = compiled_rules(loaded, world.registry)
    return world.policies[address]


def compiled_rules(loaded: Loaded, registry: Registry) -> PolicySet:
    """All rules of a pack and of what stands above it. Raises `InvalidArtifact` where they do not fit together."""
    guardrails = loaded.pack.policy_layer.guardrails
    capabilities = registry.register(loaded.definitions)
    return compile_policy(
        loaded.bundles, gates=loaded.gates, must_refuse=guardrails.must_refuse, must_escalate=guardrails.must_escalate,
        declared={name: one.definition.approval_mode for name, one in capabilities.items()},
    )  # fmt: skip


def facts_of(
    request: InvokeRequest, asked: Mapping[str, Any], scope_user: Mapping[str, Any], agent: Mapping[str, Any],
    run: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The roots that rules may read from compile on. Only what the caller stated stands under `request.context`."""
    return {
        "request": {**asked["input"], "mode": request.mode, "request_id": request.request_id},
        "user": dict(scope_user),
        "agent": dict(agent),
        "tenant": {"tenant_id": request.tenant_id},
        "run": dict(run),
    }


def expose(scope: RunScope, policy: PolicySet) -> dict[str, PolicyDecision]:
    """What policy exposes to this run: a decision for each registered capability, made at compile."""
    names = sorted(scope.capabilities)
    decisions = policy.decide_all(
        "compile", scope.facts, [_view(scope, name) for name in names],
        [derive("pol_", scope.run.run_id, "policy.compile", name) for name in names], granted=scope.granted,
    )  # fmt: skip
    return dict(zip(names, decisions, strict=True))


def judge_plan(scope: RunScope, policy: PolicySet, plan: Plan) -> dict[str, PolicyDecision]:
    """Policy's answers at the plan point, by step id; arguments count only where all of a step's are literal."""
    known = [step for step in plan.steps if step.tool in scope.capabilities]
    bound = [step for step in known if any(binding_of(value) is not None for value in step.params.values())]
    ids = [_plan_id(scope, plan, step) for step in bound]
    views = [_view(scope, step.tool) for step in bound]
    answers = policy.decide_all("plan", scope.facts, views, ids, granted=scope.granted)
    decisions = {step.id: answer for step, answer in zip(bound, answers, strict=True)}
    for step in known:
        if step.id not in decisions:
            facts = {**scope.facts, "args": dict(step.params)}
            decisions[step.id] = policy.decide(
                "plan", facts, capability=_view(scope, step.tool), granted=step.tool in scope.granted,
                decision_id=_plan_id(scope, plan, step),
            )  # fmt: skip
    return {step.id: decisions[step.id] for step in known}


def _plan_id(scope: RunScope, plan: Plan, step: PlanStep) -> str:
    return derive("pol_", scope.run.run_id, "policy.plan", f"{plan.revision}/{step.id}")


def facts_by_name(items: Sequence[EvidenceItem]) -> dict[str, Fact]:
    """The named evidence of a retrieval, as the run may use it."""
    return {
        item.name: Fact(item.name, item.evidence_ref, item.subject, item.value, item.digest, item.observed_at_us)
        for item in items
        if item.name is not None
    }


def gateway(
    world: World, scope: RunScope, policy: PolicySet, query: RetrievalQuery, deferred: Callable[[str], dict[str, Any]]
) -> Gateway:
    """The Tool Gateway of this run. `query` is what retrieval was asked; an approval asks it again at the head."""
    rules = tuple(scope.pack.policy_layer.guardrails.redaction_rules)

    def spent() -> Spending:
        used = usage(world.journal.log())
        return Spending(used.tool_calls, used.cost_units, used.wall_clock_us)

    def cleanse(output: Any) -> tuple[Any, tuple[str, ...], tuple[Any, ...]]:
        cleaned, applied = redact(output, rules)
        return cleaned, applied, scan_unsafe(cleaned, declared_text=True)

    def headers(tool_call_id: str, external: bool) -> dict[str, str]:
        baggage = {"run_id": scope.run.run_id} | ({"session_id": scope.run.session_id} if scope.run.session_id else {})
        return child(scope.request.trace, derive("", tool_call_id, "span", 0), baggage=baggage, external=external)

    def claim_token() -> str:
        return mint_claim(
            keys=world.keys, issuer=scope.claim.iss or "", audience=AUDIENCE, tenant_id=scope.run.tenant_id,
            run_id=scope.run.run_id, session_id=scope.run.session_id, agent_urn=scope.principals.agent.agent_urn,
            chain=scope.chain, scopes=scope.scopes, now_us=world.clock.now_us(), ttl_s=world.limits.claim_ttl_s,
        ).token  # fmt: skip

    # A stand-in counts only where it was allowed when the run began, and still is.
    unsafe = tuple(name for name in world.unsafe if name in world.unsafe_now)
    settlements = Settlements(world.journal, scope, world.directory, unsafe)
    outside = Outside(
        world.store, world.clock, world.adapters, headers, claim_token, cleanse, deferred, spent, settlements.refused
    )
    approvals = Approvals(
        world.journal, scope, world.clock, world.directory, deferred,
        lambda action: _recheck(world, scope, query, action), unsafe,
    )
    return Gateway(Station(
        journal=world.journal, scope=scope, policy=policy, approvals=approvals, registry=world.registry,
        outside=outside,
        check_args=lambda bounds, args, approved: check_args(bounds, args, approved=approved),
        standing=lambda key: _standing(world, scope, key),
    ))  # fmt: skip


async def _standing(world: World, scope: RunScope, key: str) -> Standing:
    """Both identities and every pin, as they are right before a write is sent."""
    user_id, agent_id = scope.principals.user.user_id, scope.principals.agent.agent_id

    async def look() -> dict[str, Any]:
        known = await world.directory.resolve(scope.run.tenant_id, user_id, agent_id)
        definitions = {name: adapter.describe() for name, adapter in world.adapters.items()}
        # A later version of the policies fails the commit that sends.
        version, now = await world.catalog.pins_now(tuple(scope.pins), definitions)
        return {"principals": known.to_json() if known else None,
                "policies_version": version,
                "changed": sorted(name for name, pin in scope.pins.items() if now.get(name) != pin)}  # fmt: skip

    asked = {"user_id": user_id, "agent_id": agent_id, "pins": dict(scope.pins)}
    found = await world.journal.ask("identity.resolved", f"dispatch/{key}", asked, look)
    failure = None
    if found["principals"] is None or Principals.model_validate(found["principals"]) != scope.principals:
        failure = Failure(code="identity_refused", detail="since the run was admitted the user or the agent changed")
    elif found["changed"]:
        detail = f"since the run was admitted `{found['changed'][0]}` changed or was withdrawn"
        failure = Failure(code="unknown_ref", detail=detail)
    return Standing(failure, found["policies_version"])


def record_now(
    world: World, request: InvokeRequest, scope: RunScope | None, outcome: Outcome
) -> tuple[DecisionRecord, dict[str, Any]]:
    """The DecisionRecord as the journal stands now, and its wire form."""
    return build_record(
        world.journal.run_id, request, scope, world.journal.log(), outcome, runtime_version=world.runtime_version,
        unsafe=(*world.unsafe, *(scope.unsafe if scope else ())),
    )  # fmt: skip


def _view(scope: RunScope, name: str) -> CapabilityView:
    capability = scope.capabilities[name]
    return CapabilityView(name, capability.definition.approval_mode, capability_facts(capability))


def _recheck(world: World, scope: RunScope, query: RetrievalQuery, action: Action) -> Recheck:
    """Everything an approval was bound to, as it is now: pins, adapters, graph evidence; tool evidence asked again."""

    async def look() -> dict[str, str | None]:
        definitions = {name: adapter.describe() for name, adapter in world.adapters.items()}
        _, now = await world.catalog.pins_now(tuple(scope.pins), definitions)
        head = query.model_copy(update={"snapshot": await world.knowledge.snapshot()})
        items = admit(await world.knowledge.retrieve(head), head.named, world.clock.now_us())
        known = {item.name: item.digest for item in items if item.name}
        for fact in action.evidence:
            of_tool = fact.evidence_ref.startswith("tool:")
            now[f"{fact.evidence_ref}#{fact.name}"] = (
                await _ask_again(world, scope, fact) if of_tool else known.get(fact.name)
            )
        return now

    return look


async def _ask_again(world: World, scope: RunScope, fact: Fact) -> str | None:
    """The digest of what a read says now, asked with the arguments of the call that the evidence came from."""
    call_id = fact.evidence_ref.rsplit(":", 1)[1]
    sent = [entry.body for entry in world.journal.log()
            if entry.kind == "tool.dispatching" and entry.body["envelope"]["tool_call_id"] == call_id]  # fmt: skip
    capability = scope.capabilities[fact.subject]
    adapter = world.adapters.get(capability.adapter.adapter_id)
    if not sent or adapter is None or capability.definition.kind != "read":
        return None
    now_us, timeout_ms = world.clock.now_us(), capability.definition.timeout_s * 1_000
    context = CallContext(scope.run.tenant_id, scope.run.run_id, call_id, None, now_us + timeout_ms * 1_000, timeout_ms)
    try:
        reply = await adapter.call(capability.definition.name, own_copy(sent[-1]["envelope"]["args"]), context)
    except LostReply as error:
        raise Unavailable(capability.adapter.adapter_id, str(error)) from error
    if reply.output is None:
        return None
    cleaned, _ = redact(reply.output, tuple(scope.pack.policy_layer.guardrails.redaction_rules))
    return content_address(cleaned)
