"""Admission: both identities, what is pinned, and the scope that is then fixed for the run.

The steps are in `runtime.loop`; here are the calls that they record and what they build from the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.action.registry import surface
from contextos.contracts.bindings import resolve_binding
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.envelopes.identity import IdentityClaim, Principals
from contextos.contracts.envelopes.plan import Plan, Subject, TaskTemplate
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import CEID
from contextos.contracts.scope import RunScope, SessionWindow
from contextos.control.catalog import LoadedArtifacts
from contextos.decision import intents
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.wiring import AUDIENCE, policy_facts
from contextos.trust.identity.claims import mint_claim
from contextos.trust.identity.principals import principal_chain, scopes_in_force
from contextos.trust.journal.usage import usage
from contextos.trust.policy.policy_set import PolicySet

NOTHING_ASKED: Final = RetrievalQuery(snapshot="kg_0", seeds=(), hops=0, fan_out=1, limit=1)


@dataclass(frozen=True, slots=True)
class AdmittedRun:
    """An admitted run: its scope, policy, evidence and memory; the contents of its slots, or why one is empty."""

    scope: RunScope
    loaded: LoadedArtifacts
    policy: PolicySet
    templates: tuple[TaskTemplate, ...]
    surface: tuple[SurfaceCapability, ...]
    planner: str
    query: RetrievalQuery = NOTHING_ASKED
    items: tuple[EvidenceItem, ...] = ()
    memory: tuple[EvidenceItem, ...] = ()
    chosen: tuple[EvidenceItem, ...] = ()
    not_chosen: Failure | None = None

    def template(self, plan: Plan | None) -> TaskTemplate:
        """The template of the last plan; without a plan, the one that would have been first."""
        for template in self.templates:
            if plan and plan.template_id == f"{template.template_id}@{template.version}":
                return template
        return self.templates[0]

    def pack_json(self, plan: Plan) -> dict[str, Any]:
        """The pack as bindings read it; empty where the plan does not bind to it."""
        params = [value for step in plan.steps for value in step.params.values()]
        bound = any(isinstance(value, dict) and value.get("from") == "pack" for value in params)
        return self.loaded.pack.to_json() if bound else {}


def identity_query(request: InvokeRequest) -> dict[str, str]:
    """The question to the directory."""
    return {"tenant_id": request.tenant_id, "user_id": request.user.user_id, "agent_id": request.agent.agent_id}


async def identify(request: InvokeRequest, environment: RunEnvironment) -> dict[str, Any]:
    """Return both identities as the directory knows them, and the claim that is minted for this run."""
    known = await environment.ports.directory.resolve(request.tenant_id, request.user.user_id, request.agent.agent_id)
    if known is None:
        return {"principals": None}
    minted = mint_claim(
        keys=environment.ports.keys,
        issuer=f"contextos:{environment.deployment.profile}",
        audience=AUDIENCE,
        tenant_id=request.tenant_id,
        run_id=environment.journal.run_id,
        session_id=request.session_id,
        agent_urn=known.agent.agent_urn,
        chain=principal_chain(request, known),
        scopes=scopes_in_force(request, known),
        now_us=environment.ports.clock.now_us(),
        ttl_s=environment.deployment.limits.claim_ttl_s,
    )
    return {"principals": known.to_json(), "claim": minted.claim.to_json()}


async def pin(request: InvokeRequest, environment: RunEnvironment) -> dict[str, Any]:
    """Return everything that the run will use, by exact reference and content address."""
    definitions = {name: adapter.describe() for name, adapter in environment.ports.adapters.items()}
    answer: dict[str, Any] = await environment.artifacts.catalog.pin(request.context_pack_refs, definitions)
    snapshot = await environment.sources.knowledge.snapshot()
    return {
        **answer,
        "snapshot": snapshot,
        "semantics": environment.deployment.semantics,
        "runtime_version": environment.deployment.runtime_version,
        "profile": environment.deployment.profile,
        "estimator": environment.artifacts.estimator.name,
    }


def build_scope(
    request: InvokeRequest,
    principals: Principals,
    claim: IdentityClaim,
    pinned: Mapping[str, Any],
    loaded: LoadedArtifacts,
    resolved: intents.ResolvedIntent,
    environment: RunEnvironment,
) -> tuple[RunScope, tuple[SurfaceCapability, ...]]:
    """Everything that is fixed for the run from here on, and the capabilities that these principals see."""
    run = intents.build_run_context(
        request,
        principals,
        claim,
        loaded.pack,
        resolved.intent,
        environment.journal.run_id,
        environment.deployment.limits,
    )
    capabilities = environment.artifacts.registry.register(loaded.definitions)
    scopes = scopes_in_force(request, principals)
    shown = surface(loaded.pack, capabilities, frozenset({principals.user.role, *principals.user.roles}), scopes)
    user, agent = principals.user.to_json(), principals.agent.to_json()
    request_fields = environment.journal.log()[0].body["request"]
    about = {
        "run_id": run.run_id,
        "safety_mode": run.safety_mode,
        "environment": environment.deployment.profile,
        "mode": request.mode,
    }
    return RunScope(
        request=request,
        request_fields=request_fields,
        run=run,
        principals=principals,
        chain=principal_chain(request, principals),
        scopes=scopes,
        claim=claim,
        pack=loaded.pack,
        pack_ref=pinned["pack_ref"],
        pins=pinned["pins"],
        publishers=tuple(pinned["publishers"]),
        snapshot=pinned["snapshot"],
        capabilities=capabilities,
        granted=frozenset(entry.capability_id for entry in shown if entry.granted),
        surfaced=frozenset(),
        specs=loaded.specs,
        gates=loaded.gates,
        facts=policy_facts(request, request_fields, user, agent, about),
        unsafe=tuple(principals.unsafe),
        semantics=pinned["semantics"],
        session=_session(request, loaded, environment),
    ), shown


def _session(request: InvokeRequest, loaded: LoadedArtifacts, environment: RunEnvironment) -> SessionWindow | None:
    """The time limit of a `long_running` run: the lowest that is set, counted from when the run was received."""
    if request.mode != "long_running" or not environment.deployment.limits.max_session_duration_ms:
        return None
    stated = (
        request.runtime.max_session_duration_ms,
        loaded.pack.pack_meta.max_session_duration_ms,
        environment.deployment.limits.max_session_duration_ms,
    )
    lowest = min(limit for limit in stated if limit is not None)
    return SessionWindow(lowest, environment.journal.log()[0].at_us + lowest * 1_000)


def within_token_budget(
    scope: RunScope, compiled: dict[str, Any], environment: RunEnvironment
) -> dict[str, Any] | Failure:
    """The compiled context, or a failure where all revisions together exceed `total_tokens`."""
    total, before = scope.run.run_budget.total_tokens, usage(environment.journal.log()).tokens
    if before + compiled["budget_report"]["tokens_used_at_compile"] > total:
        return Failure(code="budget_exhausted", detail=f"`total_tokens` is {total}, and {before} are used")
    return compiled


def bound_ceids(subjects: Sequence[Subject], sources: Mapping[str, Any]) -> tuple[str, ...]:
    """The CEIDs that bound subjects name; one that does not resolve, or is no CEID then, is left out."""
    found = []
    for subject in subjects:
        value = resolve_binding(subject.binding, sources)
        name = f"{subject.type}:{value}" if subject.type else value
        if isinstance(value, str) and CEID.fits(name, sealed=True):
            found.append(name)
    return tuple(found)


def request_fingerprint(request: InvokeRequest) -> str:
    """What makes two requests the same: everything but `trace`, token references and the identity claim."""
    body = request.to_json()
    body.pop("trace")
    body["agent"] = {k: v for k, v in body["agent"].items() if k not in ("token_ref", "identity_claim")}
    if body["user"].get("delegation"):
        body["user"] = {
            **body["user"],
            "delegation": {k: v for k, v in body["user"]["delegation"].items() if k != "token_ref"},
        }
    return content_address(body)
