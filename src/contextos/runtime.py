"""START HERE: the canonical execution contract, top to bottom.

    invoke -> compile -> [plan -> verify -> execute -> score -> consolidate] -> DecisionRecord -> replay

`invoke_agent` is the one loop of all three worlds: live, tape (replay, recovery) and simulated. It awaits the journal
and the ports and nothing else, so who drives it decides what it is. Each step leaves its journal entries as named in
`shared/design/architecture.md`, "One request, in order"; the numbers below are its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from contextos.admission import Admitted, asks, ceids, identify, pin, scope_of, within_tokens
from contextos.checkpoints import checkpoint
from contextos.context.compiler import compile_context
from contextos.contracts.codec import MISSING
from contextos.contracts.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.identity import IdentityClaim, Principals
from contextos.contracts.journal import Write
from contextos.contracts.plan import Plan, TaskTemplate
from contextos.contracts.record import DecisionRecord
from contextos.contracts.run import InvokeRequest
from contextos.contracts.scope import RunScope
from contextos.contracts.verdicts import End, Failure
from contextos.decision import critic, executor, intents, planner, scoring
from contextos.decision.executor import Execution
from contextos.intelligence.memory import BoundMemory, candidate_writes, propose
from contextos.intelligence.retrieval import admit as admit_evidence
from contextos.seams import (
    World,
    as_described,
    described,
    expose,
    facts_by_name,
    gateway,
    judge_plan,
    policy_of,
    record_now,
)
from contextos.selecting import choose
from contextos.trust.identity import compare
from contextos.trust.meter import usage
from contextos.trust.policy import PolicySet
from contextos.trust.record import Outcome, build_packet


@dataclass(frozen=True, slots=True)
class Attempt:
    """One plan revision that ran: what came of it and the scorecard it got."""

    plan: Plan | None
    execution: Execution
    failures: tuple[Failure, ...]
    scorecard: Mapping[str, Any]


async def invoke_agent(request: InvokeRequest, fingerprint: str, world: World) -> DecisionRecord:
    """Take one request to its DecisionRecord. Refuses by a record, never by an exception; parks while it waits.

    Raises:
        Parked: the run waits; drive it again when it is woken.
        ReplayMismatch: on a tape, the loop derives something else than history did.
        Conflict, Unavailable: nothing was lost; drive it again.
    """
    world = await receive(request, fingerprint, world)  # 2
    admitted = await admit(request, world)  # 3, 4
    if isinstance(admitted, Failure):
        return await conclude(request, None, Outcome(scoring.end_of((admitted,)), (admitted,)), world)
    admitted = await choose(request, admitted, 0, world)  # 5
    admitted = admitted if admitted.not_chosen else await know(admitted, world)  # 6
    attempt = await loop(request, admitted, world)  # 7 to 13
    outcome = judge(admitted, attempt)
    consolidate(admitted, attempt, outcome, world)  # 14
    return await conclude(request, admitted.scope, outcome, world)  # 15


async def receive(request: InvokeRequest, fingerprint: str, world: World) -> World:
    """Step 2: the request is recorded and its id claimed; the same id with the same body is the same run.

    What the deployment is goes on record too: a replay, or a recovery after an upgrade, goes by what the run
    began with. A `long_running` run is driven by an engine; the drive that received it ends here.
    """

    async def accept() -> dict[str, Any]:
        return {"request": request.to_json(), "fingerprint": fingerprint, "deployment": described(world)}

    received = await world.journal.ask("run.received", "", {"fingerprint": fingerprint}, accept)
    claim = {"run_id": world.journal.run_id, "fingerprint": fingerprint}
    world.journal.stage(Write("requests", request.request_id, 0, orjson.dumps(claim)))
    if request.mode == "long_running":
        world.journal.hand_over()
    return as_described(world, received["deployment"])


async def admit(request: InvokeRequest, world: World) -> Admitted | Failure:
    """Steps 3 and 4: who asks, what is pinned, which intent; then the RunContext and its budget."""
    who = await world.journal.ask("identity.resolved", "", asks(request), lambda: identify(request, world))
    if who["principals"] is None:
        return Failure(code="identity_refused", detail="the directory does not know this user and agent in this tenant")
    principals = Principals.model_validate(who["principals"])
    differences = compare(request, principals)
    if differences:
        return differences[0]
    refs = list(request.context_pack_refs)
    pinned = await world.journal.ask("run.pinned", "", {"refs": refs}, lambda: pin(request, world))
    if "failure" in pinned:
        return Failure(code=pinned["failure"]["code"], detail=pinned["failure"]["detail"])
    loaded = await world.catalog.load(pinned)
    resolved = intents.resolve(request, loaded.intents, loaded.templates)
    if isinstance(resolved, Failure):
        return resolved
    scope, shown = scope_of(
        request, principals, IdentityClaim.model_validate(who["claim"]), pinned, loaded, resolved, world
    )
    world.journal.note("run.context", "", scope.run.to_json())
    world.journal.note("intent.resolved", "", {
        "intent_id": resolved.intent.intent_id, "version": resolved.intent.version,
        "risk_class": resolved.intent.risk_class,
        "templates": [f"{template.template_id}@{template.version}" for template in resolved.templates], "confidence": 1,
    })  # fmt: skip
    return Admitted(scope, loaded, policy_of(world, loaded, scope.pins), resolved.templates, shown)


async def know(admitted: Admitted, world: World) -> Admitted:
    """Step 6: evidence at the pinned snapshot within its budgets, and promoted memory only."""
    pack = admitted.loaded.pack
    retrieval = pack.intelligence_refs.retrieval
    from_pack = any(seed.binding.source == "pack" for seed in retrieval.seeds)
    seeds = ceids(retrieval.seeds, {"request": admitted.scope.asked, "pack": pack.to_json() if from_pack else {}})
    # Requirements name seeds by their number: with one missing, none of the others may take its place.
    named = retrieval.evidence if len(seeds) == len(retrieval.seeds) else ()
    query = RetrievalQuery(
        snapshot=admitted.scope.snapshot, seeds=seeds, hops=retrieval.hops, fan_out=retrieval.fan_out,
        limit=retrieval.limit, named=named,
    )  # fmt: skip

    async def retrieve() -> list[dict[str, Any]]:
        return [item.to_json() for item in await world.knowledge.retrieve(query)]

    found = await world.journal.ask("evidence.retrieved", "", query.to_json(), retrieve)
    items = admit_evidence([EvidenceItem.model_validate(item) for item in found], query.named, world.journal.now_us)
    subjects = list(dict.fromkeys([*seeds, *(item.subject for item in items if item.name)]))
    limit = pack.memory_layer.recall_limit

    async def recall() -> list[dict[str, Any]]:
        return [item.to_json() for item in await world.memory.recall(subjects, limit=limit)]

    recalled = await world.journal.ask("memory.recalled", "", {"subjects": subjects, "limit": limit}, recall)
    return replace(
        admitted, query=query, items=items, memory=tuple(EvidenceItem.model_validate(item) for item in recalled)
    )


async def loop(request: InvokeRequest, admitted: Admitted, world: World) -> Attempt:
    """Steps 7 to 13: compile, plan, verify, execute, score; again while the Critic says replan and budget is left."""
    exhausted: tuple[Failure, ...] = ()
    for revision, template in enumerate(admitted.templates[: admitted.scope.run.run_budget.max_replan_attempts + 1]):
        admitted = await choose(request, admitted, revision, world) if revision else admitted
        attempt = await _attempt(request, admitted, template, revision, world)
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
    request: InvokeRequest, admitted: Admitted, template: TaskTemplate, revision: int, world: World
) -> Attempt:
    journal, policy = world.journal, admitted.policy
    unplanned = Execution({}, {}, None)
    if admitted.not_chosen:
        return await _scored(request, admitted, None, unplanned, (admitted.not_chosen,), revision, world)
    decisions = expose(admitted.scope, policy)  # 7
    journal.note("policy.decided", f"compile/{revision}", {"decisions": [d.to_json() for d in decisions.values()]})
    specs = [
        admitted.scope.specs[p.decision_id]
        for p in template.decision_checkpoints
        if p.decision_id in admitted.scope.specs
    ]
    compiled = compile_context(  # 8
        pack=admitted.loaded.pack, pack_ref=admitted.scope.pack_ref,
        intent=admitted.loaded.intents[request.input.intent],
        template=template, request=request, run=admitted.scope.run, memory=admitted.memory,
        evidence=(*admitted.items, *admitted.chosen),
        required_evidence={name for spec in specs for name in spec.required_evidence}, surface=admitted.surface,
        decisions=decisions, estimator=world.estimator, bundles=[leveled.bundle for leveled in admitted.loaded.bundles],
    )  # fmt: skip
    if not isinstance(compiled, Failure):
        compiled = within_tokens(admitted.scope, compiled, world)
    if isinstance(compiled, Failure):
        return await _scored(request, admitted, None, unplanned, (compiled,), revision, world)
    journal.note("context.compiled", str(revision), compiled)
    scope = replace(admitted.scope, surfaced=frozenset(compiled["context_ledger"]["tools"]))
    facts = facts_by_name(admitted.items)
    sources = {"request": scope.asked, "pack": admitted.pack_json(), "evidence": executor.view(facts)}
    plan = planner.propose(journal.run_id, template, compiled, revision)  # 9
    journal.note("plan.proposed", str(revision), plan.to_json())
    verified = _verify(scope, policy, plan, sources, frozenset(facts), world)  # 10
    journal.note("plan.verified", str(revision), {
        "verdict": verified.verdict, "failures": [failure.to_json() for failure in verified.failures]
    })  # fmt: skip
    await checkpoint(admitted.scope, plan, verified.verdict, {}, world)
    if verified.verdict != "ok":
        return await _scored(request, admitted, plan, Execution({}, facts, None), verified.failures, revision, world)
    tools = gateway(world, scope, policy, admitted.query, partial(_deferred, request, scope, world))
    execution = await executor.execute(plan, scope, tools, journal, facts, sources)  # 11, 12
    failures = (execution.failure,) if execution.failure else ()
    return await _scored(request, admitted, plan, execution, failures, revision, world)  # 13


def _verify(
    scope: RunScope, policy: PolicySet, plan: Plan, sources: Mapping[str, Any],
    evidence: frozenset[str], world: World,
) -> critic.Verified:  # fmt: skip
    decisions = judge_plan(scope, policy, plan)
    world.journal.note(
        "policy.decided", f"plan/{plan.revision}", {"decisions": [d.to_json() for d in decisions.values()]}
    )
    left = scope.run.run_budget.max_tool_calls - usage(world.journal.log()).tool_calls
    return critic.verify(critic.Proposal(
        plan=plan, scope=scope, sources=sources, evidence=evidence, decisions=decisions,
        check_input=lambda capability, args: world.registry.check(capability, "input", dict(args)), calls_left=left,
    ))  # fmt: skip


async def _scored(
    request: InvokeRequest, admitted: Admitted, plan: Plan | None, execution: Execution, failures: tuple[Failure, ...],
    revision: int, world: World,
) -> Attempt:  # fmt: skip
    used = usage(world.journal.log())
    done = sum(result.status in ("ok", "completed") for result in execution.results.values())
    card = scoring.score(
        admitted.loaded.pack, request.input.intent, admitted.scope.run.run_budget, wall_clock_us=used.wall_clock_us,
        cost_cents=used.cost_cents, steps=len(plan.steps) if plan else 0, done=done, failures=failures,
        acted=_acted(execution, world),
    )  # fmt: skip
    world.journal.note("run.scored", str(revision), card)
    await checkpoint(admitted.scope, plan, card["verdict"], execution.results, world)
    return Attempt(plan, execution, failures, card)


def _deferred(request: InvokeRequest, scope: RunScope, world: World, why: str) -> dict[str, Any]:
    """The record of a run that waits: for an approval, or for a person to say what became of an effect."""
    uncertain = Failure(code="effect_uncertain", detail="it is not known whether the effect happened; settle it")
    failures = (uncertain,) if why == "effect_uncertain" else ()
    return record_now(world, request, scope, Outcome(None, failures))[1]


def _acted(execution: Execution, world: World) -> bool:
    """Whether anything of this run happened to the world, whatever an adapter lists as its mutations."""
    happened = any(entry.kind == "tool.returned" and entry.body["happened"] for entry in world.journal.log())
    return happened or any(result.status == "completed" for result in execution.results.values())


def judge(admitted: Admitted, attempt: Attempt) -> Outcome:
    """What the last score amounts to: an end, with outputs only of what was accepted."""
    failures = attempt.failures
    accepted = attempt.scorecard["verdict"] == "accept"
    end: End = "completed" if accepted else scoring.end_of(failures) if failures else "escalated"
    template = admitted.template(attempt.plan)
    sources = _sources(admitted, attempt)
    values = {name: planner.bind(binding, sources) for name, binding in template.outputs.items()}
    return Outcome(
        end, failures, {name: value for name, value in values.items() if value is not MISSING} if accepted else {},
        ceids(template.subjects, sources), strategy=f"{planner.PLANNER}:{template.template_id}@{template.version}",
        alternatives=tuple(f"{t.template_id}@{t.version}" for t in admitted.templates if t is not template),
        scorecard=attempt.scorecard,
    )  # fmt: skip


def consolidate(admitted: Admitted, attempt: Attempt, outcome: Outcome, world: World) -> None:
    """Step 14: propose what might be remembered. It stays a candidate until a person promotes it."""
    if outcome.end != "completed":
        return
    results, sources = attempt.execution.results.values(), _sources(admitted, attempt)
    refs = tuple(citation.evidence_ref for result in results for citation in result.citations)
    bound = []
    for remembered in admitted.template(attempt.plan).memory:
        entity = ceids((remembered.entity,), sources)
        binding = planner.binding_of(remembered.value)
        value = remembered.value if binding is None else planner.bind(binding, sources)
        if entity and value is not MISSING:
            bound.append(BoundMemory(remembered, entity[0], value, refs, 1))
    consent = attempt.execution.evidence.get("memory_consent")
    proposals = propose(
        bound, run_id=world.journal.run_id, layer=admitted.loaded.pack.memory_layer, recalled=admitted.memory,
        classification=admitted.loaded.pack.pack_meta.data_classification,
        consent_given=consent is not None and consent.value is True, at_us=world.journal.now_us,
    )  # fmt: skip
    world.journal.note("memory.proposed", "", {"proposals": [proposal.to_json() for proposal in proposals]})
    world.journal.stage(*candidate_writes(proposals))


async def conclude(request: InvokeRequest, scope: RunScope | None, outcome: Outcome, world: World) -> DecisionRecord:
    """Step 15: the record, the replay packet and the end become durable together."""
    journal = world.journal
    record, wire = record_now(world, request, scope, outcome)
    journal.note("record.revised", "final", wire)
    journal.note("replay.packed", "", build_packet(record, request).to_json())
    journal.note("run.ended", "", {
        "end": outcome.end, "record_id": record.record_id, "record_hash": record.record_hash,
        "entries": len(journal.log()) + 1,
    })  # fmt: skip
    await journal.commit(wake_at_us=0)
    return record


def _sources(admitted: Admitted, attempt: Attempt) -> dict[str, Any]:
    """What bindings may read once the plan ran."""
    outputs = {name: result.output for name, result in attempt.execution.results.items() if result.output is not None}
    return {"request": admitted.scope.asked, "evidence": executor.view(attempt.execution.evidence), "step": outputs}
