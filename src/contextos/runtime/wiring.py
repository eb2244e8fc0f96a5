"""Build, for one run, what the runtime passes to each plane (policy, action, decision and so on), and nothing more.

Planes do not import each other; the functions here connect them. `RunEnvironment` holds the ports, artifacts and limits
of a run, and from it come policy facts, the tool gateway, approvals and the current record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from contextos.action.breaker_adapter import without_turn
from contextos.action.gateway.delivery import DispatchPorts
from contextos.action.gateway.guarded_call import Guard, GuardContext
from contextos.action.gateway.result_validation import validate_reply
from contextos.action.gateway.tool_gateway import Gateway, guards_of
from contextos.action.quarantine import has_drifted, has_incidents, incident
from contextos.action.registry import Registry
from contextos.contracts.bindings import KnownStep, parsed_steps, resolve_binding
from contextos.contracts.controls import KnownFacts
from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.pointer import last_name
from contextos.contracts.encoding.redacted import without_secret_arguments
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.record import UNSAFE_OBSERVED
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.tool import CallContext, StatedCall
from contextos.contracts.facts import supplied
from contextos.contracts.ids import derive
from contextos.contracts.journal import Write
from contextos.contracts.scope import Action, Fact, RunScope
from contextos.contracts.trace import child_headers
from contextos.control.loading import LoadedArtifacts
from contextos.control.vocabulary import pack_vocabulary
from contextos.errors import LostReply, Unavailable
from contextos.intelligence.retrieval import drop_stale_names
from contextos.runtime.code_pins import (
    ChangedAdapter,
    PinnedAdapters,
    pinned_quarantine_key,
    pins_now,
    recheck_preconditions,
)
from contextos.runtime.credentials import claim_token, credentials_for_evidence, exchange_or_failure, hop_token
from contextos.runtime.environment import Prepared, RunEnvironment, cancels_of
from contextos.runtime.redaction import cleanse_output, cleanse_text, redacted_items
from contextos.trust.approvals.gate_approvals import Recheck, RunApprovals
from contextos.trust.approvals.quarantines import open_incidents
from contextos.trust.approvals.settlement import SettlementCheck
from contextos.trust.journal.record import RunOutcome, build_record
from contextos.trust.policy.constraints import check_args
from contextos.trust.policy.policy_set import PolicySet, compile_policy
from contextos.trust.rows.counted_effects import SignedCounter
from contextos.trust.rows.denials import unproved_denials
from contextos.trust.rows.operations import operation_fault
from contextos.trust.rows.unvouched_writes import SignedWrites

AUDIENCE: Final = "contextos.tool_gateway"


def prepared(environment: RunEnvironment, loaded: LoadedArtifacts, pin_set: Mapping[str, Any]) -> Prepared:
    """Return what follows from the pin set alone, whose artifacts are `loaded`. It is made once for each pin set."""
    cache, address = environment.artifacts.prepared, content_address(pin_set)
    return cache.get(address) or cache.keep(address, prepare(loaded, environment.artifacts.registry))


def prepare(loaded: LoadedArtifacts, registry: Registry) -> Prepared:
    """Register the tools of a pack, and compile all its policy rules and those of the tenant and platform above it.

    Raises `InvalidArtifact` if rules contradict each other, or the schema of a tool breaks the rules for schemas.
    """
    guardrails = loaded.pack.policy_layer.guardrails
    capabilities = registry.register(loaded.definitions, loaded.pack.tooling_layer.permissions)
    policy = compile_policy(
        loaded.bundles,
        gates=loaded.gates,
        must_refuse=guardrails.must_refuse,
        must_escalate=guardrails.must_escalate,
        vocabulary=pack_vocabulary(loaded.pack, loaded.specs, loaded.definitions),
        declared={name: capability.definition.approval_mode for name, capability in capabilities.items()},
    )
    guards = {name: guards_of(capability, policy) for name, capability in capabilities.items()}
    templates = {name: parsed_steps(template.steps, capabilities) for name, template in loaded.templates.items()}
    return Prepared(capabilities, policy, guards, templates, loaded.pack.to_json())


def policy_facts(
    request: InvokeRequest,
    request_fields: Mapping[str, Any],
    scope_user: Mapping[str, Any],
    agent: Mapping[str, Any],
    run: Mapping[str, Any],
) -> KnownFacts:
    """Return the facts that policy rules can read, one object for each root (`request`, `user`, `agent`, `run`).

    `request.context` holds only what the caller stated.
    """
    values: dict[str, Mapping[str, Any]] = {
        "request": {**request_fields["input"], "mode": request.mode, "request_id": request.request_id},
        "user": scope_user,
        "agent": agent,
        "tenant": {"tenant_id": request.tenant_id},
        "run": run,
    }
    return KnownFacts({root: supplied(root, fields) for root, fields in values.items()})


def decide_exposure(
    scope: RunScope, policy: PolicySet, surface: Sequence[SurfaceCapability]
) -> dict[str, PolicyDecision]:
    """Return, for each tool that the pack lists, the policy decision on whether this run can see the tool.

    Policy is not asked about the other tools of an adapter, because this run cannot call them.
    """
    return {
        name: policy.decide(
            "compile",
            scope.facts,
            capability=scope.tools.capabilities[name].view,
            granted=name in scope.tools.granted,
            decision_id=derive("pol_", scope.run.run_id, "policy.compile", name),
        )
        for name in sorted(tool.capability_id for tool in surface if tool.withheld != "not_in_pack")
    }


def decide_plan_steps(
    scope: RunScope,
    policy: PolicySet,
    steps: Sequence[KnownStep],
    revision: int,
    exposure: Mapping[str, PolicyDecision],
) -> dict[str, PolicyDecision]:
    """Return the policy decision about each step of a plan whose tool is registered, by step id.

    A step's arguments are considered only if all of them are literals; others are not known before the step runs.
    Otherwise the decision is that of `exposure` (at `compile`, by tool), unless a rule is about only one of the points.
    """
    reusable = {} if policy.asked_at("plan") or policy.asked_at("compile") else exposure

    def decide_step(item: KnownStep) -> PolicyDecision:
        step = item.step
        if item.parsed.is_bound and step.tool in reusable:
            return reusable[step.tool]
        return policy.decide(
            "plan",
            scope.facts if item.parsed.is_bound else scope.facts.also({"args": without_secret_arguments(step.params)}),
            capability=item.capability.view,
            granted=step.tool in scope.tools.granted,
            decision_id=derive("pol_", scope.run.run_id, "policy.plan", f"{revision}/{step.id}"),
        )

    return {item.step.id: decide_step(item) for item in steps}


def facts_by_name(items: Sequence[EvidenceItem], scope: RunScope) -> dict[str, Fact]:
    """Return the retrieved evidence that has a name, by name. It is about the value that the request states as its
    seed.
    """
    retrieval = scope.pinned.pack.intelligence_refs.retrieval
    inputs: dict[str, dict[str, Any]] = {}
    sources = {"request": scope.received.fields, "parameter": scope.parameter_values}
    seeds = [(last_name(seed.binding.pointer), resolve_binding(seed.binding, sources)) for seed in retrieval.seeds]
    for path in retrieval.evidence:
        if retrieval.seeds[path.seed].binding.source in sources:
            inputs.setdefault(path.name, {}).update((seeds[path.seed],))
    return {
        item.name: Fact(
            item.name,
            item.evidence_ref,
            item.subject,
            item.value,
            _fact_digest(item),
            item.observed_at_us,
            inputs.get(item.name, {}),
        )
        for item in items
        if item.name is not None
    }


def _fact_digest(item: EvidenceItem) -> str:
    """Return the digest by which a call is bound to a fact: it covers what the fact states and its source."""
    return content_address([item.digest, item.origin, item.integrity])


def call_ports(environment: RunEnvironment, scope: RunScope) -> DispatchPorts:
    """Return the ports that calls of a run need. They use only the parts of `scope` that all plans share."""

    def headers(tool_call_id: str, external: bool) -> dict[str, str]:
        baggage = {"run_id": scope.run.run_id} | ({"session_id": scope.run.session_id} if scope.run.session_id else {})
        return child_headers(
            scope.received.request.trace, derive("", tool_call_id, "span", 0), baggage=baggage, external=external
        )

    settlements = SettlementCheck(environment.journal, scope, environment.ports.signer, _unsafe_settings(environment))
    return DispatchPorts(
        environment.ports.store,
        environment.ports.clock,
        PinnedAdapters(environment, scope.pinned.pins),
        headers,
        partial(claim_token, environment, scope),
        partial(hop_token, environment, scope),
        partial(cleanse_output, scope.pinned.pack, environment.ports.keys),
        partial(cleanse_text, scope.pinned.pack),
        environment.used,
        settlements.fault,
        partial(operation_fault, environment.ports.store, scope.run.tenant_id, environment.ports.keys),
        partial(unproved_denials, environment.ports.store, scope.run.tenant_id, environment.ports.keys),
        SignedCounter(environment.ports.store, scope.run.tenant_id, environment.ports.keys),
        SignedWrites(environment.ports.store, scope.run.tenant_id, environment.ports.keys),
        cancels_of(environment),
        partial(recheck_preconditions, environment, scope),
        partial(exchange_or_failure, environment, scope),
        partial(pinned_quarantine_key, scope.pinned.pins),
        partial(open_incidents, environment.ports.store, environment.ports.keys),
        environment.secrets,
        environment.barrier,
    )


def _unsafe_settings(environment: RunEnvironment) -> tuple[str, ...]:
    """Return the unsafe settings that count: those that were allowed when the run began, and still are."""
    return tuple(name for name in environment.deployment.unsafe if name in environment.deployment.unsafe_now)


def build_gateway(
    environment: RunEnvironment,
    scope: RunScope,
    policy: PolicySet,
    guards: Mapping[str, tuple[Guard, ...]],
    query: RetrievalQuery,
    deferred: Callable[[str, str], dict[str, Any]],
    ports: DispatchPorts,
) -> Gateway:
    """Build the tool gateway of one plan. When an approval is used, `query` is repeated at the newest graph
    snapshot.
    """
    approvals = RunApprovals(
        environment.journal,
        scope,
        environment.ports.directory,
        environment.ports.signer,
        deferred,
        partial(_build_recheck, environment, scope, query),
        _unsafe_settings(environment),
        ports.proved_cancels,
        environment.barrier.anew,
        environment.at_question,
        environment.places.question if environment.places else None,
    )
    of_run = environment.journal, scope, policy, approvals, environment.artifacts.registry, ports
    return Gateway(GuardContext(*of_run, environment.seen, guards, check_args, deferred))


def current_record(
    environment: RunEnvironment, request: InvokeRequest, scope: RunScope | None, outcome: RunOutcome
) -> dict[str, Any]:
    """Build the DecisionRecord from the journal so far, as JSON."""
    return build_record(
        environment.journal.account,
        request,
        scope,
        outcome,
        runtime_version=environment.deployment.runtime_version,
        environment=environment.deployment.environment,
        unsafe=(*environment.deployment.unsafe, *_unsafe_lineage(scope)),
        unsafe_stated_by=environment.deployment.unsafe_stated_by,
        semantics=scope.pinned.semantics if scope else environment.deployment.semantics,
    )


def _unsafe_lineage(scope: RunScope | None) -> tuple[str, ...]:
    """Return what the lineage of a run adds to the unsafe settings of its deployment."""
    if scope is None:
        return ()
    return (*scope.identity.principals.unsafe, *((UNSAFE_OBSERVED,) if scope.observes else ()))


async def _build_recheck(
    environment: RunEnvironment, scope: RunScope, query: RetrievalQuery, action: Action, outside: bool | None
) -> Recheck:
    """Return the `Recheck` of what an approval was bound to: pins, adapters, graph evidence and reads. `outside` is
    None for the run itself. A look at its question obtains no credential, and with False takes evidence of tools that
    leave the machine as unchanged.
    """
    tokens = await credentials_for_evidence(environment, scope, action) if outside is None else {}
    if tokens:
        # Obtaining the credentials takes time, and something can be withdrawn meanwhile.
        environment.barrier.anew()
    incidents, values, pins = list[Write](), dict[str, Any](), scope.pins_of(action)

    async def look() -> dict[str, Any]:
        documents = await environment.barrier.found(active=True)
        now: dict[str, Any] = dict((await pins_now(pins, environment, documents))[1])
        newest = await environment.sources.knowledge.snapshot()
        head = query if query.snapshot == newest else query.model_copy(update={"snapshot": newest})
        items = drop_stale_names(
            redacted_items(await environment.sources.knowledge.retrieve(head), scope.pinned.pack),
            head.named,
            environment.journal.time_us,
        )
        items_by_name = {item.name: item for item in items if item.name}
        for fact in action.evidence:
            is_tool_fact, name = fact.evidence_ref.startswith("tool:"), f"{fact.evidence_ref}#{fact.name}"
            now[name], values[name] = (
                await _repeat_read(environment, scope, fact, tokens, incidents, outside)
                if is_tool_fact
                else (_fact_digest(item), item.value)
                if (item := items_by_name.get(fact.name))
                else (None, None)
            )
            now[name] = {"digest": now[name], "value": values[name]} if fact.volatile and now[name] else now[name]
        return now

    return Recheck(look, incidents, values)


async def _repeat_read(
    environment: RunEnvironment,
    scope: RunScope,
    fact: Fact,
    tokens: Mapping[str, str],
    incidents: list[Write],
    outside: bool | None,
) -> tuple[str | None, Any]:
    """Repeat the read that gave the evidence, with the same arguments; return the digest and value of its result."""
    call_id = fact.evidence_ref.rsplit(":", 1)[1]
    dispatches = [
        entry.body
        for entry in environment.journal.account.of("tool.dispatching")
        if entry.body["envelope"]["tool_call_id"] == call_id
    ]
    capability = scope.tools.capabilities[fact.subject]
    # A look at a question records nothing, so it obtains no credential.
    if outside is not None and (capability.definition.auth.mode == "exchange" or (capability.leaves and not outside)):
        return fact.digest, fact.value
    adapter = PinnedAdapters(environment, scope.pinned.pins).get(capability.adapter.adapter_id)
    if not dispatches or adapter is None or isinstance(adapter, ChangedAdapter) or capability.definition.kind != "read":
        return None, None
    quarantine = pinned_quarantine_key(scope.pinned.pins, capability)
    token = tokens.get(fact.evidence_ref, "")
    lacks_token = capability.definition.auth.mode == "exchange" and not token
    find_incidents = partial(open_incidents, environment.ports.store, environment.ports.keys)
    if lacks_token or await has_incidents(capability, quarantine, find_incidents):
        return None, None
    now_us, timeout_ms = environment.ports.clock.now_us(), capability.definition.timeout_s * 1_000
    context = CallContext(
        *(scope.run.tenant_id, scope.run.run_id, call_id, None, now_us + timeout_ms * 1_000, timeout_ms),
        hop=partial(hop_token, environment, scope, capability, call_id),
        egress=capability.adapter.egress,
        access_token=token,
    )
    try:
        source = adapter if outside is None else without_turn(adapter)
        reply = await source.call(capability.definition.name, own_copy(dispatches[-1]["envelope"]["args"]), context)
    except LostReply as error:
        raise Unavailable(capability.adapter.adapter_id, str(error)) from error
    if has_drifted(capability, reply):
        envelope = StatedCall.model_validate(dispatches[-1]["envelope"])
        incidents.append(incident(f"{quarantine}recheck.{now_us}.", envelope, now_us))
    # Cleansed as after a first read: a value that would not count there cannot keep an approval.
    cleanse = partial(cleanse_output, scope.pinned.pack, environment.ports.keys)
    registry, args = environment.artifacts.registry, dispatches[-1]["envelope"]["args"]
    checked = validate_reply(registry, cleanse, capability, args, reply, "", "", "")
    return (content_address(checked.output), checked.output) if checked.status == "ok" else (None, None)
