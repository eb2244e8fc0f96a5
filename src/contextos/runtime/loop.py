"""START HERE: the canonical execution contract, top to bottom.

    invoke -> compile -> [plan -> verify -> execute -> score -> consolidate] -> DecisionRecord -> replay

`invoke_agent` is the one loop of all three worlds: live, tape (replay, recovery) and simulated. It awaits the journal
and the ports and nothing else, so who drives it decides what it is. Each step leaves its journal entries as named in
`docs/design/architecture.md`, "One request, in order"; the numbers below are its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from contextos.context.compiler import compile_context
from contextos.context.inputs import CompileInput, KnowledgeInputs, PackInputs, SurfaceInputs, TaskInputs
from contextos.contracts.documents.runs import REQUESTS, RequestClaim
from contextos.contracts.envelopes.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.envelopes.identity import IdentityClaim, Principals
from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.scope import RunScope
from contextos.decision import critic, executor, intents, scoring
from contextos.decision.executor import Execution
from contextos.intelligence.retrieval import drop_stale_names as admit_evidence
from contextos.runtime.admission import (
    AdmittedRun,
    bound_ceids,
    build_scope,
    identify,
    identity_query,
    pin,
    within_token_budget,
)
from contextos.runtime.checkpoints import checkpoint
from contextos.runtime.conclusion import Attempt, conclude, consolidate, decide_outcome
from contextos.runtime.environment import RunEnvironment, describe_deployment, with_recorded_deployment
from contextos.runtime.planning import propose
from contextos.runtime.slot_steps import fill_slots
from contextos.runtime.wiring import (
    build_gateway,
    current_record,
    decide_exposure,
    decide_plan_steps,
    facts_by_name,
    policy_for_pins,
)
from contextos.trust.identity.principals import identity_differences
from contextos.trust.journal.record import RunOutcome
from contextos.trust.journal.usage import usage
from contextos.trust.policy.policy_set import PolicySet


async def invoke_agent(request: InvokeRequest, fingerprint: str, environment: RunEnvironment) -> DecisionRecord:
    """Take one request to its DecisionRecord. Refuses by a record, never by an exception; parks while it waits.

    Raises:
        Parked: the run waits; drive it again when it is woken.
        ReplayMismatch: on a tape, the loop derives something else than history did.
        Conflict, Unavailable: nothing was lost; drive it again.
    """
    environment = await receive(request, fingerprint, environment)  # 2
    admitted = await admit(request, environment)  # 3, 4
    if isinstance(admitted, Failure):
        return await conclude(request, None, RunOutcome(scoring.end_of((admitted,)), (admitted,)), environment)
    admitted = await fill_slots(request, admitted, 0, environment)  # 5
    admitted = admitted if admitted.not_chosen else await retrieve_evidence(admitted, environment)  # 6
    attempt = await decision_loop(request, admitted, environment)  # 7 to 13
    outcome = decide_outcome(admitted, attempt)
    consolidate(admitted, attempt, outcome, environment)  # 14
    return await conclude(request, admitted.scope, outcome, environment)  # 15


async def receive(request: InvokeRequest, fingerprint: str, environment: RunEnvironment) -> RunEnvironment:
    """Step 2: the request is recorded and its id claimed; the same id with the same body is the same run.

    What the deployment is goes on record too: a replay, or a recovery after an upgrade, goes by what the run
    began with. A `long_running` run is driven by an engine; the drive that received it ends here.
    """

    async def accept() -> dict[str, Any]:
        return {
            "request": request.to_json(),
            "fingerprint": fingerprint,
            "deployment": describe_deployment(environment),
        }

    received = await environment.journal.record("run.received", "", {"fingerprint": fingerprint}, accept)
    claim = RequestClaim(environment.journal.run_id, fingerprint)
    environment.journal.stage(REQUESTS.write(request.request_id, 0, claim))
    if request.mode == "long_running":
        environment.journal.hand_over()
    return with_recorded_deployment(environment, received["deployment"])


async def admit(request: InvokeRequest, environment: RunEnvironment) -> AdmittedRun | Failure:
    """Steps 3 and 4: who asks, what is pinned, which intent; then the RunContext and its budget."""
    who = await environment.journal.record(
        "identity.resolved", "", identity_query(request), lambda: identify(request, environment)
    )
    if who["principals"] is None:
        return Failure(code="identity_refused", detail="the directory does not know this user and agent in this tenant")
    principals = Principals.model_validate(who["principals"])
    differences = identity_differences(request, principals)
    if differences:
        return differences[0]
    refs = list(request.context_pack_refs)
    pinned = await environment.journal.record("run.pinned", "", {"refs": refs}, lambda: pin(request, environment))
    if "failure" in pinned:
        return Failure(code=pinned["failure"]["code"], detail=pinned["failure"]["detail"])
    loaded = await environment.artifacts.catalog.load(pinned)
    resolved = intents.resolve_intent(request, loaded.intents, loaded.templates)
    if isinstance(resolved, Failure):
        return resolved
    scope, shown = build_scope(
        request, principals, IdentityClaim.model_validate(who["claim"]), pinned, loaded, resolved, environment
    )
    environment.journal.derive("run.context", "", scope.run.to_json())
    environment.journal.derive(
        "intent.resolved",
        "",
        {
            "intent_id": resolved.intent.intent_id,
            "version": resolved.intent.version,
            "risk_class": resolved.intent.risk_class,
            "templates": [f"{template.template_id}@{template.version}" for template in resolved.templates],
            "confidence": 1,
        },
    )
    return AdmittedRun(
        scope,
        loaded,
        policy_for_pins(environment, loaded, scope.pins),
        resolved.templates,
        shown,
        environment.deployment.planner_name,
    )


async def retrieve_evidence(admitted: AdmittedRun, environment: RunEnvironment) -> AdmittedRun:
    """Step 6: evidence at the pinned snapshot within its budgets, and promoted memory only."""
    pack = admitted.loaded.pack
    retrieval = pack.intelligence_refs.retrieval
    from_pack = any(seed.binding.source == "pack" for seed in retrieval.seeds)
    seeds = bound_ceids(
        retrieval.seeds, {"request": admitted.scope.request_fields, "pack": pack.to_json() if from_pack else {}}
    )
    # Requirements name seeds by their number: with one missing, none of the others may take its place.
    named = retrieval.evidence if len(seeds) == len(retrieval.seeds) else ()
    query = RetrievalQuery(
        snapshot=admitted.scope.snapshot,
        seeds=seeds,
        hops=retrieval.hops,
        fan_out=retrieval.fan_out,
        limit=retrieval.limit,
        named=named,
    )

    async def retrieve() -> list[dict[str, Any]]:
        return [item.to_json() for item in await environment.sources.knowledge.retrieve(query)]

    found = await environment.journal.record("evidence.retrieved", "", query.to_json(), retrieve)
    items = admit_evidence(
        [EvidenceItem.model_validate(item) for item in found], query.named, environment.journal.now_us
    )
    subjects = list(dict.fromkeys([*seeds, *(item.subject for item in items if item.name)]))
    limit = pack.memory_layer.recall_limit

    async def recall() -> list[dict[str, Any]]:
        return [item.to_json() for item in await environment.sources.memory.recall(subjects, limit=limit)]

    recalled = await environment.journal.record("memory.recalled", "", {"subjects": subjects, "limit": limit}, recall)
    return replace(
        admitted, query=query, items=items, memory=tuple(EvidenceItem.model_validate(item) for item in recalled)
    )


async def decision_loop(request: InvokeRequest, admitted: AdmittedRun, environment: RunEnvironment) -> Attempt:
    """Steps 7 to 13: compile, plan, verify, execute, score; again while the Critic says replan and budget is left."""
    exhausted: tuple[Failure, ...] = ()
    for revision, template in enumerate(admitted.templates[: admitted.scope.run.run_budget.max_replan_attempts + 1]):
        admitted = await fill_slots(request, admitted, revision, environment) if revision else admitted
        attempt = await _attempt(request, admitted, template, revision, environment)
        if attempt.scorecard["verdict"] != "replan":
            return attempt
        exhausted = attempt.failures
    assert exhausted, "an intent has at least one template"
    most = admitted.scope.run.run_budget.max_replan_attempts
    if len(admitted.templates) > most + 1:
        spent = Failure(code="budget_exhausted", detail=f"`max_replan_attempts` is {most}, and a template is left")
        return replace(attempt, failures=(spent, *exhausted))
    return attempt


async def _attempt(
    request: InvokeRequest, admitted: AdmittedRun, template: TaskTemplate, revision: int, environment: RunEnvironment
) -> Attempt:
    journal, policy = environment.journal, admitted.policy
    unplanned = Execution({}, {}, None)
    if admitted.not_chosen:
        return await _scored(request, admitted, None, unplanned, (admitted.not_chosen,), revision, environment)
    decisions = decide_exposure(admitted.scope, policy)  # 7
    journal.derive("policy.decided", f"compile/{revision}", {"decisions": [d.to_json() for d in decisions.values()]})
    specs = [
        admitted.scope.specs[p.decision_id]
        for p in template.decision_checkpoints
        if p.decision_id in admitted.scope.specs
    ]
    compiled = compile_context(  # 8
        CompileInput(
            task=TaskInputs(request, admitted.scope.run, admitted.loaded.intents[request.input.intent], template),
            pack=PackInputs(
                admitted.loaded.pack, admitted.scope.pack_ref, [leveled.bundle for leveled in admitted.loaded.bundles]
            ),
            knowledge=KnowledgeInputs(
                evidence=(*admitted.items, *admitted.chosen),
                memory=admitted.memory,
                required_evidence={name for spec in specs for name in spec.required_evidence},
            ),
            surface=SurfaceInputs(admitted.surface, decisions),
            estimator=environment.artifacts.estimator,
        )
    )
    if not isinstance(compiled, Failure):
        compiled = within_token_budget(admitted.scope, compiled, environment)
    if isinstance(compiled, Failure):
        return await _scored(request, admitted, None, unplanned, (compiled,), revision, environment)
    journal.derive("context.compiled", str(revision), compiled)
    scope = replace(admitted.scope, surfaced=frozenset(compiled["context_ledger"]["tools"]))
    facts = facts_by_name(admitted.items)
    plan = await propose(admitted, template, compiled, facts, revision, environment)  # 9
    if isinstance(plan, Failure):
        return await _scored(request, admitted, None, unplanned, (plan,), revision, environment)
    sources = {
        "request": scope.request_fields,
        "pack": admitted.pack_json(plan),
        "evidence": executor.evidence_view(facts),
    }
    journal.derive("plan.proposed", str(revision), plan.to_json())
    verified = _verify(scope, policy, plan, sources, frozenset(facts), environment)  # 10
    journal.derive(
        "plan.verified",
        str(revision),
        {"verdict": verified.verdict, "failures": [failure.to_json() for failure in verified.failures]},
    )
    await checkpoint(admitted.scope, plan, verified.verdict, {}, environment)
    if verified.verdict != "ok":
        return await _scored(
            request, admitted, plan, Execution({}, facts, None), verified.failures, revision, environment
        )
    tools = build_gateway(environment, scope, policy, admitted.query, partial(_deferred, request, scope, environment))
    execution = await executor.execute_plan(plan, scope, tools, journal, facts, sources)  # 11, 12
    failures = (execution.failure,) if execution.failure else ()
    return await _scored(request, admitted, plan, execution, failures, revision, environment)  # 13


def _verify(
    scope: RunScope,
    policy: PolicySet,
    plan: Plan,
    sources: Mapping[str, Any],
    evidence: frozenset[str],
    environment: RunEnvironment,
) -> critic.PlanVerification:
    decisions = decide_plan_steps(scope, policy, plan)
    environment.journal.derive(
        "policy.decided", f"plan/{plan.revision}", {"decisions": [d.to_json() for d in decisions.values()]}
    )
    left = scope.run.run_budget.max_tool_calls - usage(environment.journal.log()).tool_calls
    return critic.verify_plan(
        critic.Proposal(
            plan=plan,
            scope=scope,
            sources=sources,
            evidence=evidence,
            decisions=decisions,
            check_input=lambda capability, args: environment.artifacts.registry.check(capability, "input", dict(args)),
            calls_left=left,
        )
    )


async def _scored(
    request: InvokeRequest,
    admitted: AdmittedRun,
    plan: Plan | None,
    execution: Execution,
    failures: tuple[Failure, ...],
    revision: int,
    environment: RunEnvironment,
) -> Attempt:
    used = usage(environment.journal.log())
    done = sum(result.status in ("ok", "completed") for result in execution.results.values())
    card = scoring.score(
        admitted.loaded.pack,
        request.input.intent,
        admitted.scope.run.run_budget,
        wall_clock_us=used.wall_clock_us,
        cost_cents=used.cost_cents,
        steps=len(plan.steps) if plan else 0,
        done=done,
        failures=failures,
        acted=_acted(execution, environment),
    )
    environment.journal.derive("run.scored", str(revision), card)
    await checkpoint(admitted.scope, plan, card["verdict"], execution.results, environment)
    return Attempt(plan, execution, failures, card)


def _deferred(request: InvokeRequest, scope: RunScope, environment: RunEnvironment, why: str) -> dict[str, Any]:
    """The record of a run that waits: for an approval, or for a person to say what became of an effect."""
    uncertain = Failure(code="effect_uncertain", detail="it is not known whether the effect happened; settle it")
    failures = (uncertain,) if why == "effect_uncertain" else ()
    return current_record(environment, request, scope, RunOutcome(None, failures))[1]


def _acted(execution: Execution, environment: RunEnvironment) -> bool:
    """Return whether any effect of this run happened, whatever an adapter lists as its mutations."""
    happened = any(entry.kind == "tool.returned" and entry.body["happened"] for entry in environment.journal.log())
    return happened or any(result.status == "completed" for result in execution.results.values())
