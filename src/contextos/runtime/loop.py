"""START HERE: one run, top to bottom.

    invoke -> compile -> [plan -> verify -> execute -> score -> consolidate] -> DecisionRecord -> replay

`invoke_agent` is the only loop. It serves live runs, replays and recovery from a journal, and the simulator. It awaits
only the journal and the ports, so the implementations of the journal and the ports decide which of these it serves. The
numbered steps are the rows of the table in `docs/design/architecture.md`, "One request, in order".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from contextos.contracts.documents.runs import REQUESTS, RequestClaim, request_key
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.evidence import RetrievalQuery, items_from, items_json
from contextos.contracts.envelopes.identity import IdentityClaim, Principals
from contextos.contracts.envelopes.plan import TaskTemplate
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import changed
from contextos.contracts.scope import RunScope
from contextos.decision import intents
from contextos.decision.planners.model import MODEL_PLANNER, PLAN_OPERATION
from contextos.intelligence.retrieval import drop_stale_names as admit_evidence
from contextos.runtime.admission import (
    AdmittedRun,
    bound_ceids,
    build_scope,
    identify,
    identity_query,
    other_environment,
    oversized_request,
    pin,
    refuse,
)
from contextos.runtime.attempts.agent_session import agent_session
from contextos.runtime.attempts.one_plan import NOTHING_DONE, compile_surface, go_on, score_attempt, try_plan
from contextos.runtime.attempts.planning import propose
from contextos.runtime.conclusion import Attempt, conclude, decide_outcome
from contextos.runtime.environment import RunEnvironment, describe_deployment, look_for_cancel, use_recorded_deployment
from contextos.runtime.inputs.attachments import fetch_attachments
from contextos.runtime.inputs.intent_parameters import take_known, take_stated, unmet
from contextos.runtime.inputs.slot_steps import fill_slots
from contextos.runtime.redaction import redacted_items
from contextos.runtime.reopening import as_reopened, find_reopening, is_asked_again, with_limits_of
from contextos.runtime.wiring import prepared
from contextos.trust.identity.principals import identity_differences
from contextos.trust.journal.record import RunOutcome


async def invoke_agent(
    request: InvokeRequest, fields: dict[str, Any], fingerprint: str, environment: RunEnvironment, correction: int = 1
) -> dict[str, Any]:
    """Take one request to its DecisionRecord, and return the record as JSON. A refused request also gets a record and
    raises nothing.

    `fields` is the wire form of the request. `correction` counts the requests with its id: those before it were
    refused.

    Raises:
        Parked: the run waits, for example for an approval; drive it again when it is woken.
        ReplayMismatch: in a replay, the loop computes something other than what was recorded.
        Conflict, Unavailable: nothing was lost; drive it again.
    """
    await receive(request, fields, fingerprint, environment, correction)  # 2
    admitted = await admit(request, environment)  # 3, 4
    if isinstance(admitted, RunOutcome):
        return await conclude(request, None, admitted, environment)
    if cancelled := await look_for_cancel(environment, "context", again=False):
        return await conclude(request, admitted.scope, RunOutcome("cancelled", (cancelled,)), environment)
    attached = await fetch_attachments(request, admitted, environment)
    if isinstance(attached, RunOutcome):
        return await conclude(request, admitted.scope, attached, environment)
    admitted = replace(admitted, items=attached) if attached else admitted
    admitted = await fill_slots(request, admitted, admitted.templates[0], 0, environment)  # 5
    informed = admitted if admitted.not_chosen else await retrieve_evidence(admitted, environment)  # 6
    if isinstance(informed, RunOutcome):
        return await conclude(request, admitted.scope, informed, environment)
    admitted = informed
    attempt: Attempt | None = None
    of_agent = admitted.templates[0].is_session
    while True:
        decide = agent_session if of_agent else decision_loop
        admitted, attempt = await decide(request, admitted, attempt, environment)  # 7 to 13
        if is_asked_again(attempt.failures, attempt.revision, environment.journal):
            now = await admit(request, environment, f"again/{attempt.revision}", admitted.scope)
            if not isinstance(now, RunOutcome):
                now = await retrieve_evidence(replace(now, items=attached), environment)
            if not isinstance(now, RunOutcome):
                admitted = now
                continue
            attempt = replace(attempt, failures=now.failures)
        outcome, earlier = decide_outcome(admitted, attempt, environment)  # 14
        record = await conclude(request, admitted.scope, outcome, environment, earlier)  # 15
        reopened = await find_reopening(outcome, environment.journal)
        if reopened is None:
            return record
        admitted = as_reopened(admitted, reopened, environment.journal.now_us)


async def receive(
    request: InvokeRequest, fields: dict[str, Any], fingerprint: str, environment: RunEnvironment, correction: int
) -> None:
    """Step 2: record the request and claim its `request_id`; a repeated id with the same body is the same run.

    The facts of the deployment are recorded too, and a later replay or recovery uses the recorded ones. A
    `long_running` run stops here and is driven on by an engine.
    """

    described = describe_deployment(environment)

    async def accept() -> dict[str, Any]:
        return {
            "request": fields,
            "fingerprint": fingerprint,
            "deployment": described,
            **({"correction": correction} if correction > 1 else {}),
        }

    received = await environment.journal.record("run.received", "", {}, accept)
    claim = RequestClaim(environment.journal.run_id, fingerprint)
    environment.journal.stage(REQUESTS.write(request_key(request.request_id, received.get("correction", 1)), 0, claim))
    if request.mode == "long_running":
        environment.journal.hand_over()
    use_recorded_deployment(environment, received["deployment"])


async def admit(
    request: InvokeRequest, environment: RunEnvironment, key: str = "", before: RunScope | None = None
) -> AdmittedRun | RunOutcome:
    """Steps 3 and 4: look up who acts, pin the artifacts, find the intent, and fix the run's context and budget.

    A refusal names every fault that can be found, in this order: identity, and only if the identity holds environment,
    refs, intent, values that the intent needs and the request lacks, size. `before` is the scope of a run whose
    question is asked again: its budget, deadline and controls stay, and everything else is determined anew.
    """
    who = await environment.journal.record(
        "identity.resolved", key, identity_query(request), lambda: identify(request, environment)
    )
    if who["principals"] is None:
        unknown = "the directory does not know this user and agent in this tenant"
        return refuse(Failure(code="identity_refused", detail=unknown))
    principals = Principals.model_validate(who["principals"])
    size = [one for one in (oversized_request(principals, environment),) if one]
    differing = identity_differences(request, principals)
    if who.get("claim_fault"):
        claim = Failure(code="identity_refused", detail=who["claim_fault"], facts=("agent.identity_claim",))
        differing = (*differing, claim)
    if differing:
        placed = (one.model_copy(update={"pointer": pointer(one.facts[0].split("."))}) for one in differing)
        return refuse(*placed)
    refs = list(request.context_pack_refs)
    pinned = await environment.journal.record("run.pinned", key, {"refs": refs}, lambda: pin(request, environment))
    other = other_environment(request, environment)
    faults = [other] if other else []
    if "failure" in pinned:
        faults += [Failure.model_validate(one) for one in (pinned["failure"], *pinned.get("further", ()))]
        return refuse(*faults, *size)
    loaded = await environment.artifacts.catalog.load(pinned)
    resolved, unfit = intents.resolve_intent(request, loaded.intents, loaded.templates)
    faults += unfit
    if resolved is None:
        return refuse(*faults, *size)
    made = prepared(environment, loaded, pinned)
    planner = MODEL_PLANNER if PLAN_OPERATION in loaded.models else environment.deployment.planner_name
    of_run = IdentityClaim.model_validate(who["claim"])
    scope, shown = build_scope(request, principals, of_run, pinned, loaded, made, resolved, environment)
    admitted = AdmittedRun(scope, loaded, made, resolved.templates, shown, planner)
    if faults or size:
        return refuse(*faults, *unmet(admitted), *size)
    if before is not None:
        return replace(admitted, scope=with_limits_of(scope, before))
    run = scope.run
    limits = {"safety_mode": run.safety_mode, "run_budget": run.run_budget.to_json()}
    environment.journal.derive("run.context", "", {"agent_id": run.agent.agent_id, **limits})
    environment.journal.derive("intent.resolved", "", resolved.to_json())
    return admitted


async def retrieve_evidence(admitted: AdmittedRun, environment: RunEnvironment) -> AdmittedRun | RunOutcome:
    """Step 6: read evidence at the pinned snapshot of the graph, within the limits, and accepted memory.

    The parameters of the intent are taken from the request before the evidence is read, and from the evidence
    afterwards.
    """
    stated = take_stated(admitted, environment)
    if isinstance(stated, RunOutcome):
        return stated
    admitted, pack = stated, stated.loaded.pack
    retrieval = pack.intelligence_refs.retrieval
    sources = {
        "request": admitted.scope.received.fields,
        "parameter": admitted.scope.parameter_values,
        "pack": stated.prepared.pack,
    }
    bound = {number: found for number, one in enumerate(retrieval.seeds) if (found := bound_ceids((one,), sources))}
    seeds = tuple(seed for found in bound.values() for seed in found)
    # Evidence with several paths needs the seeds of all paths: if one seed is missing, the other paths do not suffice.
    unbound = {
        path.name: retrieval.seeds[path.seed].binding.pointer for path in retrieval.evidence if path.seed not in bound
    }
    places = {number: place for place, number in enumerate(bound)}
    named = tuple(
        path if places[path.seed] == path.seed else path.model_copy(update={"seed": places[path.seed]})
        for path in retrieval.evidence
        if path.name not in unbound
    )
    query = RetrievalQuery(
        snapshot=admitted.scope.pinned.snapshot,
        seeds=seeds,
        hops=retrieval.hops,
        fan_out=retrieval.fan_out,
        limit=retrieval.limit,
        named=named,
    )

    async def retrieve() -> list[dict[str, Any]]:
        return items_json(redacted_items(await environment.sources.knowledge.retrieve(query), pack))

    found = await environment.journal.record("evidence.retrieved", "", query.to_json(), retrieve)
    items = admit_evidence(items_from(found), query.named, environment.journal.now_us)
    subjects = list(dict.fromkeys([*seeds, *(item.subject for item in items if item.name)]))
    limit = pack.memory_layer.recall_limit

    async def recall() -> list[dict[str, Any]]:
        recalled = await environment.sources.memory.recall(subjects, limit=limit)
        return items_json(redacted_items(recalled, pack))

    recalled = await environment.journal.record("memory.recalled", "", {"subjects": subjects, "limit": limit}, recall)
    scope = changed(admitted.scope, unbound=unbound) if unbound else admitted.scope
    informed = changed(admitted, scope=scope, query=query, items=(*admitted.items, *items), memory=items_from(recalled))
    return take_known(informed, environment)


async def decision_loop(
    request: InvokeRequest, admitted: AdmittedRun, before: Attempt | None, environment: RunEnvironment
) -> tuple[AdmittedRun, Attempt]:
    """Steps 7 to 13: compile, plan, verify, execute and score; repeat while the verdict is `replan` and budget is left.

    `before` is the last attempt before the run ended and was reopened: its template is tried again, or the next
    template if that attempt asked for a replan. Returns the run with the slots of the last attempt, and that attempt.
    """
    first = before.next_template if before else 0
    revision = before.revision + 1 if before else 0
    most = admitted.scope.run.run_budget.max_replan_attempts
    # A model plans anew, from the failures of its last plan, and can choose any of the templates.
    templates = admitted.templates if admitted.planner != MODEL_PLANNER else (admitted.templates[0],) * (most + 1)
    for number, template in enumerate(templates[first : most + 1], start=first):
        if before:
            admitted = await go_on(request, admitted, before, template, revision, environment)
        wrong = before.failures if before else ()
        attempt = await _attempt(request, admitted, template, revision, wrong, environment)
        attempt = replace(attempt, template=number) if number else attempt
        if attempt.scorecard["verdict"] != "replan":
            return admitted, attempt
        before, revision = attempt, revision + 1
    if len(templates) > most + 1:
        spent = Failure(
            code="budget_exhausted",
            detail=f"{admitted.scope.run.run_budget.stated('max_replan_attempts')}, and a template is left",
            facts=("max_replan_attempts",),
        )
        return admitted, replace(attempt, failures=(spent, *attempt.failures))
    return admitted, attempt


async def _attempt(
    request: InvokeRequest,
    admitted: AdmittedRun,
    template: TaskTemplate,
    revision: int,
    wrong: Sequence[Failure],
    environment: RunEnvironment,
) -> Attempt:
    """Make one attempt. `wrong` holds the failures for which the plan before was not accepted."""
    controls = admitted.scope.controls
    if admitted.not_chosen:
        lacking = (admitted.not_chosen,)
        return await score_attempt(admitted, controls, None, NOTHING_DONE, lacking, revision, environment)
    surface = compile_surface(request, admitted, template, revision, environment)  # 7, 8
    controls, compiled = surface.controls, surface.compiled
    if isinstance(compiled, Failure):
        return await score_attempt(admitted, controls, None, NOTHING_DONE, (compiled,), revision, environment)
    plan = await propose(admitted, template, compiled, surface.gates, surface.facts, revision, wrong, environment)  # 9
    if isinstance(plan, Failure):
        return await score_attempt(admitted, controls, None, NOTHING_DONE, (plan,), revision, environment)
    known = tuple(surface.facts.values())
    execution, failures = await try_plan(request, admitted, template, plan, surface, known, environment)  # 10, 11, 12
    return await score_attempt(  # 13
        admitted, controls, plan, execution, failures, revision, environment, compiled=compiled
    )
