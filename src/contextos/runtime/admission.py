"""Admission: find out who acts, pin the artifacts that the run uses, and build the scope (`RunScope`) that stays fixed.

The order of the steps is in `runtime.loop`. This module has the calls whose answers are recorded, and the functions
that build values from the recorded answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.action.registry import surface
from contextos.contracts.bindings import resolve_binding
from contextos.contracts.encoding.codec import MAX_BYTES, parse
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.envelopes.identity import IdentityClaim, Principals
from contextos.contracts.envelopes.plan import Intent, Plan, Subject, TaskTemplate
from contextos.contracts.envelopes.run import BudgetInForce, InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.facts import ENVIRONMENTS
from contextos.contracts.ids import CEID
from contextos.contracts.model import final_fields
from contextos.contracts.scope import (
    SESSION_LIMIT,
    PinnedInputs,
    ReceivedRequest,
    RunIdentity,
    RunScope,
    SessionWindow,
    ToolAccess,
)
from contextos.control.loading import LoadedArtifacts
from contextos.decision import intents, scoring
from contextos.runtime.code_pins import with_code
from contextos.runtime.environment import Prepared, RunEnvironment
from contextos.runtime.wiring import AUDIENCE, policy_facts
from contextos.trust.identity.claims import mint_claim, stated_claim_fault
from contextos.trust.identity.principals import UNKNOWN_AGENT_TOKEN, look_up, principal_chain, scopes_in_force
from contextos.trust.journal.record import RunOutcome
from contextos.trust.policy.policy_set import PolicySet

NOTHING_ASKED: Final = RetrievalQuery(snapshot="kg_0", seeds=(), hops=0, fan_out=1, limit=1)


@final_fields
class AdmittedRun:
    """A run that was admitted: its scope, what follows from its pins, evidence, memory and slot contents, or why a slot
    is empty.

    `needed` has the digests of the slot contents that a slot needs to reach its `minItems`.
    """

    scope: RunScope
    loaded: LoadedArtifacts
    prepared: Prepared
    templates: tuple[TaskTemplate, ...]
    surface: tuple[SurfaceCapability, ...]
    planner: str
    query: RetrievalQuery = NOTHING_ASKED
    items: tuple[EvidenceItem, ...] = ()
    memory: tuple[EvidenceItem, ...] = ()
    chosen: tuple[EvidenceItem, ...] = ()
    needed: frozenset[str] = frozenset()
    not_chosen: Failure | None = None

    def template(self, plan: Plan | None) -> TaskTemplate:
        """Return the task template (a plan with parameters) of `plan`; for None, the template that is tried first."""
        for template in self.templates:
            if plan and plan.template_id == f"{template.template_id}@{template.version}":
                return template
        return self.templates[0]

    @property
    def policy(self) -> PolicySet:
        """Return the policy rules in force."""
        return self.prepared.policy

    @property
    def intent(self) -> Intent:
        """Return the intent of the run."""
        return self.loaded.intents[self.scope.received.request.input.intent]


def refuse(*failures: Failure) -> RunOutcome:
    """Return the end of a run that is not admitted."""
    return RunOutcome(scoring.end_of(failures), failures)


def identity_query(request: InvokeRequest) -> dict[str, str]:
    """Return the question to the directory: which user and agent to look up."""
    return {"tenant_id": request.tenant_id, "user_id": request.user.user_id, "agent_id": request.agent.agent_id}


async def identify(request: InvokeRequest, environment: RunEnvironment) -> dict[str, Any]:
    """Look up the run's user and agent in the directory, and sign the run's identity token. Returns both as JSON."""
    now_us = environment.journal.time_us
    principals = await look_up(environment.ports.directory, request, now_us)
    if principals is None:
        return {"principals": None}
    keys, issuer, claim_fault = environment.ports.keys, f"contextos:{environment.deployment.profile}", None
    if request.agent.identity_claim is not None:
        claim = request.agent.identity_claim
        claim_fault = stated_claim_fault(
            claim, keys, issuer=issuer, audience=AUDIENCE, run_id=environment.journal.run_id, now_us=now_us
        )
    signed_claim = mint_claim(
        keys=keys,
        issuer=issuer,
        audience=AUDIENCE,
        tenant_id=request.tenant_id,
        run_id=environment.journal.run_id,
        session_id=request.session_id,
        agent_urn=principals.agent.agent_urn,
        chain=principal_chain(request, principals),
        scopes=scopes_in_force(request, principals) | principals.agent.platform,
        now_us=environment.ports.clock.now_us(),
        ttl_s=environment.deployment.limits.claim_ttl_s,
    )
    answer = {"principals": principals.to_json(), "claim": signed_claim.claim.to_json()}
    return {**answer, "claim_fault": claim_fault} if claim_fault else answer


async def pin(request: InvokeRequest, environment: RunEnvironment) -> dict[str, Any]:
    """Return the exact reference and content digest of everything that the run uses, or the failure, as JSON."""
    served = environment.deployment.environment
    definitions = {name: adapter.describe() for name, adapter in environment.ports.adapters.items()}
    environment.barrier.forget()
    environment.barrier.expect(active=True)
    snapshot = await environment.sources.knowledge.snapshot()
    documents = await environment.barrier.found(active=True, lines=((snapshot, 0),))
    pinned = await environment.artifacts.catalog.pin(
        request.context_pack_refs, definitions, intent=request.input.intent, environment=served, looked=documents
    )
    answer = with_code(pinned, environment)
    return {
        **answer,
        "snapshot": snapshot,
        "snapshot_line": max((entry.seq for entry in documents.lines if entry.key == snapshot), default=0),
        "semantics": environment.deployment.semantics,
        "runtime_version": environment.deployment.runtime_version,
        "profile": environment.deployment.profile,
        "estimator": environment.artifacts.estimator.name,
    }


def other_environment(request: InvokeRequest, environment: RunEnvironment) -> Failure | None:
    """Return the failure of a request that names an environment which this deployment does not serve."""
    requested, served = str(request.environment), environment.deployment.environment
    if request.environment in (None, served):
        return None
    remedy = f"name `{served}` or none here"
    if requested in ENVIRONMENTS:
        remedy += f", or send the request to the deployment of `{requested}`"
    detail = f"the request is for the environment `{requested[:80]}`, and this deployment serves `{served}`; {remedy}"
    return Failure(code="other_environment", detail=detail, pointer="/environment")


def build_scope(
    request: InvokeRequest,
    principals: Principals,
    claim: IdentityClaim,
    pinned: Mapping[str, Any],
    loaded: LoadedArtifacts,
    made: Prepared,
    resolved: intents.ResolvedIntent,
    environment: RunEnvironment,
) -> tuple[RunScope, tuple[SurfaceCapability, ...]]:
    """Build the scope of a run (`RunScope`): everything that stays fixed from now on.

    Returns the scope, and every registered tool as this user and agent see it.
    """
    run = intents.build_run_context(
        request,
        principals,
        claim,
        loaded.pack,
        resolved.intent,
        environment.journal.run_id,
        environment.deployment.limits,
    )
    scopes = scopes_in_force(request, principals)
    roles = frozenset({principals.user.role, *principals.user.roles})
    platform, acts_for_user = principals.agent.platform, request.user.delegation is not None
    rights = (roles, scopes, platform, acts_for_user, request.runtime.tools)
    visible = made.surfaces.get(rights)
    if visible is None:
        capabilities, asked_for = made.capabilities, request.runtime.tools
        computed = surface(
            loaded.pack, capabilities, roles, scopes, platform, acts_for_user=acts_for_user, asked_for=asked_for
        )
        visible = made.surfaces.keep(rights, computed)
    user, agent = principals.user.to_json(), principals.agent.to_json()
    request_fields = environment.journal.log()[0].body["request"]
    run_facts = {
        "run_id": run.run_id,
        "safety_mode": run.safety_mode,
        "environment": environment.deployment.environment,
        "mode": request.mode,
    }
    granted = frozenset(entry.capability_id for entry in visible if entry.granted)
    return RunScope(
        received=ReceivedRequest(request, request_fields),
        run=run,
        identity=RunIdentity(principals, principal_chain(request, principals), scopes, claim),
        pinned=PinnedInputs(
            pack=loaded.pack,
            pack_ref=pinned["pack_ref"],
            pins=pinned["pins"],
            publishers=tuple(pinned["publishers"]),
            snapshot=pinned["snapshot"],
            semantics=pinned["semantics"],
            egress=frozenset(pinned.get("egress", ())),
            specs=loaded.specs,
            gates=loaded.gates,
            models=loaded.models,
        ),
        tools=ToolAccess(made.capabilities, granted, surfaced=frozenset()),
        facts=policy_facts(request, request_fields, user, agent, run_facts),
        session=_session_window(request, principals, loaded, environment),
    ), visible


def _session_window(
    request: InvokeRequest, principals: Principals, loaded: LoadedArtifacts, environment: RunEnvironment
) -> SessionWindow:
    """Return the time limit of a run, in every mode: the lowest one that is set, counted from when the run was
    received.
    """
    limits = (
        request.runtime.max_session_duration_ms,
        loaded.pack.pack_meta.max_session_duration_ms,
        environment.deployment.limits.max_session_duration_ms,
    )
    lowest, _ = intents.lowest_of(SESSION_LIMIT, min(limit for limit in limits if limit is not None), principals)
    return SessionWindow(int(lowest), environment.journal.log()[0].at_us + int(lowest) * 1_000)


def oversized_request(principals: Principals, environment: RunEnvironment) -> Failure | None:
    """Return a failure if the request is larger than the directory allows its agent or its tenant."""
    limit, owner = intents.lowest_of("max_payload_bytes", environment.deployment.limits.max_payload_bytes, principals)
    if owner is None:
        return None
    size = len(canonical(environment.journal.log()[0].body["request"]))
    if size <= limit:
        return None
    detail = f"the request has {size} bytes, and `max_payload_bytes` is {limit} (the limit of the {owner})"
    return Failure(code="budget_exhausted", detail=detail, pointer="")


def within_token_budget(
    budget: BudgetInForce, compiled: dict[str, Any] | Failure, environment: RunEnvironment
) -> dict[str, Any] | Failure:
    """Return the compiled context, or a failure if it and the contexts of earlier plans together exceed `total_tokens`.

    A failure of the compile is returned as it is, with the limit if the directory set it.
    """
    if isinstance(compiled, Failure):
        if "total_tokens" not in budget.limited_by:
            return compiled
        return compiled.model_copy(update={"detail": f"{compiled.detail}; {budget.stated('total_tokens')}"})
    total, before = budget.total_tokens, environment.journal.account.tokens
    if before + compiled["budget_report"]["tokens_used_at_compile"] > total:
        detail = f"{budget.stated('total_tokens')}, and {before} are used"
        return Failure(code="budget_exhausted", detail=detail, facts=("total_tokens",))
    return compiled


def bound_ceids(subjects: Sequence[Subject], sources: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entity ids (CEIDs) that `subjects` name, with bindings read from `sources`.
    A subject that does not resolve, or not to a CEID, is left out.
    """
    ceids = []
    for subject in subjects:
        value = resolve_binding(subject.binding, sources)
        name = f"{subject.type}:{value}" if subject.type else value
        if isinstance(value, str) and CEID.fits(name, sealed=True):
            ceids.append(name)
    return tuple(ceids)


def parsed_request(raw: bytes | str | Mapping[str, Any]) -> InvokeRequest:
    """Validate a request that a program sent, and return it.

    Raises:
        InvalidInput: it is malformed.
    """
    return parse(InvokeRequest, raw if isinstance(raw, bytes | str) else canonical(dict(raw)), max_bytes=MAX_BYTES)


def request_fingerprint(fields: Mapping[str, Any]) -> str:
    """Return the digest by which two requests, in their wire form, count as the same."""
    return content_address(compared_request(fields))


def compared_request(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a request by which it counts as the same: without `trace`, token references and the identity
    claim. Only the chain of a partner's claim is kept, because each attempt brings a new claim. An agent reference that
    the directory does not list counts as a difference.
    """
    body = {name: value for name, value in fields.items() if name != "trace"}
    if "hop" in body:
        body["hop"] = {"chain": body["hop"]["chain"]}
    is_unlisted = body["agent"].get("token_ref") == UNKNOWN_AGENT_TOKEN
    omitted = ("identity_claim",) if is_unlisted else ("token_ref", "identity_claim")
    body["agent"] = {name: value for name, value in body["agent"].items() if name not in omitted}
    if body["user"].get("delegation"):
        body["user"] = {
            **body["user"],
            "delegation": {name: value for name, value in body["user"]["delegation"].items() if name != "token_ref"},
        }
    return body
