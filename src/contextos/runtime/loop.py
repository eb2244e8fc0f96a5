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
    attachments = await fetch_attachments(request, admitted, environment)
    if isinstance(attachments, RunOutcome):
        return await conclude(request, admitted.scope, attachments, environment)
    admitted = replace(admitted, items=attachments) if attachments else admitted
    admitted = await fill_slots(request, admitted, admitted.templates[0], 0, environment)  # 5
    retrieved = admitted if admitted.not_chosen else await retrieve_evidence(admitted, environment)  # 6
    if isinstance(retrieved, RunOutcome):
        return await conclude(request, admitted.scope, retrieved, environment)
    admitted = retrieved
    attempt: Attempt | None = None
    is_session = admitted.templates[0].is_session
    while True:
        decide = agent_session if is_session else decision_loop
        admitted, attempt = await decide(request, admitted, attempt, environment)  # 7 to 13
        if is_asked_again(attempt.failures, attempt.revision, environment.journal):
            readmitted = await admit(request, environment, f"again/{attempt.revision}", admitted.scope)
            if not isinstance(readmitted, RunOutcome):
                readmitted = await retrieve_evidence(replace(readmitted, items=attachments), environment)
            if not isinstance(readmitted, RunOutcome):
                admitted = readmitted
                continue
            attempt = replace(attempt, failures=readmitted.failures)
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

    body = await environment.journal.record("run.received", "", {}, accept)
    claim = RequestClaim(environment.journal.run_id, fingerprint)
    environment.journal.stage(REQUESTS.write(request_key(request.request_id, body.get("correction", 1)), 0, claim))
    if request.mode == "long_running":
        environment.journal.hand_over()
    use_recorded_deployment(environment, body["deployment"])


async def admit(
    request: InvokeRequest, environment: RunEnvironment, key: str = "", before: RunScope | None = None
) -> AdmittedRun | RunOutcome:
    """Steps 3 and 4: look up who acts, pin the artifacts, find the intent, and fix the run's context and budget.

    A refusal names every fault that can be found, in this order: identity, and only if the identity holds environment,
    refs, intent, values that the intent needs and the request lacks, size. `before` is the scope of a run whose
    question is asked again: its budget, deadline and controls stay, and everything else is determined anew.
    """
    identity = await environment.journal.record(
        "identity.resolved", key, identity_query(request), lambda: identify(request, environment)
    )
    if identity["principals"] is None:
        detail = "the directory does not know this user and agent in this tenant"
        return refuse(Failure(code="identity_refused", detail=detail))
    principals = Principals.model_validate(identity["principals"])
    size_faults = [failure for failure in (oversized_request(principals, environment),) if failure]
    differences = identity_differences(request, principals)
    if identity.get("claim_fault"):
        claim = Failure(code="identity_refused", detail=identity["claim_fault"], facts=("agent.identity_claim",))
        differences = (*differences, claim)
    if differences:
        located = (fault.model_copy(update={"pointer": pointer(fault.facts[0].split("."))}) for fault in differences)
        return refuse(*located)
    refs = list(request.context_pack_refs)
    pinned = await environment.journal.record("run.pinned", key, {"refs": refs}, lambda: pin(request, environment))
    mismatch = other_environment(request, environment)
    faults = [mismatch] if mismatch else []
    if "failure" in pinned:
        faults += [Failure.model_validate(failure) for failure in (pinned["failure"], *pinned.get("further", ()))]
        return refuse(*faults, *size_faults)
    loaded = await environment.artifacts.catalog.load(pinned)
    resolved, mismatches = intents.resolve_intent(request, loaded.intents, loaded.templates)
    faults += mismatches
    if resolved is None:
        return refuse(*faults, *size_faults)
    compiled = prepared(environment, loaded, pinned)
    planner = MODEL_PLANNER if PLAN_OPERATION in loaded.models else environment.deployment.planner_name
    run_claim = IdentityClaim.model_validate(identity["claim"])
    scope, surface = build_scope(request, principals, run_claim, pinned, loaded, compiled, resolved, environment)
    admitted = AdmittedRun(scope, loaded, compiled, resolved.templates, surface, planner)
    if faults or size_faults:
        return refuse(*faults, *unmet(admitted), *size_faults)
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
    result = take_stated(admitted, environment)
    if isinstance(result, RunOutcome):
        return result
    admitted, pack = result, result.loaded.pack
    retrieval = pack.intelligence_refs.retrieval
    sources = {
        "request": admitted.scope.received.fields,
        "parameter": admitted.scope.parameter_values,
        "pack": result.prepared.pack,
    }
    bound = {number: ceids for number, seed in enumerate(retrieval.seeds) if (ceids := bound_ceids((seed,), sources))}
    seeds = tuple(seed for ceids in bound.values() for seed in ceids)
    # Evidence with several paths needs the seeds of all paths: if one seed is missing, the other paths do not suffice.
    unbound = {
        path.name: retrieval.seeds[path.seed].binding.pointer for path in retrieval.evidence if path.seed not in bound
    }
    places = {number: place for place, number in enumerate(bound)}
    paths = tuple(
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
        named=paths,
    )

    async def retrieve() -> list[dict[str, Any]]:
        return items_json(redacted_items(await environment.sources.knowledge.retrieve(query), pack))

    answer = await environment.journal.record("evidence.retrieved", "", query.to_json(), retrieve)
    items = admit_evidence(items_from(answer), query.named, environment.journal.now_us)
    subjects = list(dict.fromkeys([*seeds, *(item.subject for item in items if item.name)]))
    limit = pack.memory_layer.recall_limit

    async def recall() -> list[dict[str, Any]]:
        memories = await environment.sources.memory.recall(subjects, limit=limit)
        return items_json(redacted_items(memories, pack))

    memories = await environment.journal.record("memory.recalled", "", {"subjects": subjects, "limit": limit}, recall)
    scope = changed(admitted.scope, unbound=unbound) if unbound else admitted.scope
    updated = changed(admitted, scope=scope, query=query, items=(*admitted.items, *items), memory=items_from(memories))
    return take_known(updated, environment)


async def decision_loop(
    request: InvokeRequest, admitted: AdmittedRun, before: Attempt | None, environment: RunEnvironment
) -> tuple[AdmittedRun, Attempt]:
    """Steps 7 to 13: compile, plan, verify, execute and score; repeat while the verdict is `replan` and budget is left.

    `before` is the last attempt before the run ended and was reopened: its template is tried again, or the next
    template if that attempt asked for a replan. Returns the run with the slots of the last attempt, and that attempt.
    """
    first = before.next_template if before else 0
    revision = before.revision + 1 if before else 0
    limit = admitted.scope.run.run_budget.max_replan_attempts
    # A model plans anew, from the failures of its last plan, and can choose any of the templates.
    templates = admitted.templates if admitted.planner != MODEL_PLANNER else (admitted.templates[0],) * (limit + 1)
    for number, template in enumerate(templates[first : limit + 1], start=first):
        if before:
            admitted = await go_on(request, admitted, before, template, revision, environment)
        faults = before.failures if before else ()
        attempt = await _make_attempt(request, admitted, template, revision, faults, environment)
        attempt = replace(attempt, template=number) if number else attempt
        if attempt.scorecard["verdict"] != "replan":
            return admitted, attempt
        before, revision = attempt, revision + 1
    if len(templates) > limit + 1:
        exhausted = Failure(
            code="budget_exhausted",
            detail=f"{admitted.scope.run.run_budget.stated('max_replan_attempts')}, and a template is left",
            facts=("max_replan_attempts",),
        )
        return admitted, replace(attempt, failures=(exhausted, *attempt.failures))
    return admitted, attempt


async def _make_attempt(
    request: InvokeRequest,
    admitted: AdmittedRun,
    template: TaskTemplate,
    revision: int,
    faults: Sequence[Failure],
    environment: RunEnvironment,
) -> Attempt:
    """Make one attempt. `faults` holds the failures for which the plan before was not accepted."""
    controls = admitted.scope.controls
    if admitted.not_chosen:
        missing = (admitted.not_chosen,)
        return await score_attempt(admitted, controls, None, NOTHING_DONE, missing, revision, environment)
    surface = compile_surface(request, admitted, template, revision, environment)  # 7, 8
    controls, compiled = surface.controls, surface.compiled
    if isinstance(compiled, Failure):
        return await score_attempt(admitted, controls, None, NOTHING_DONE, (compiled,), revision, environment)
    plan = await propose(admitted, template, compiled, surface.gates, surface.facts, revision, faults, environment)  # 9
    if isinstance(plan, Failure):
        return await score_attempt(admitted, controls, None, NOTHING_DONE, (plan,), revision, environment)
    facts = tuple(surface.facts.values())
    execution, failures = await try_plan(request, admitted, template, plan, surface, facts, environment)  # 10, 11, 12
    return await score_attempt(  # 13
        admitted, controls, plan, execution, failures, revision, environment, compiled=compiled
    )
