"""Steps 7 to 13 of a session: a run whose calls an agent chooses one after the other, and that the agent finishes.

Each call is recorded as asked, becomes a plan of one step, and takes the way of every plan: Critic, gateway, approval.
A refused call ends nothing: the agent reads the reasons and goes on. All calls share one budget and one growing set of
evidence. A replay reads the calls from the journal and needs no agent.
Source: docs/design/sessions.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from contextos.action.secret_arguments import without_secrets_of
from contextos.contracts.bindings import binding_of
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import End, Failure, FailureCode, SessionOutcome
from contextos.contracts.ids import derive
from contextos.contracts.journal import Logged, Timeout, Write
from contextos.contracts.ports.gates import REFUSED_ARGS
from contextos.contracts.scope import SESSION_LIMIT, Fact, RunScope
from contextos.decision.executor import Execution
from contextos.decision.observing import observe_failures
from contextos.errors import ReplayMismatch
from contextos.intelligence.retrieval import drop_stale_names
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.attempts.one_plan import Surface, compile_surface, go_on, has_acted, score_attempt, try_plan
from contextos.runtime.code_pins import recheck_preconditions
from contextos.runtime.conclusion import Attempt, end_contradictions
from contextos.runtime.environment import RunEnvironment, look_for_cancel
from contextos.runtime.redaction import cleanse_text
from contextos.runtime.reopening import is_asked_again, unchanged_facts
from contextos.runtime.wiring import facts_by_name

ASKED: Final = "call.asked"
FINISHED: Final = "session.finished"
EXPIRED: Final = "session.expired"

AGENT_PLANNER: Final = "agent@1"
"""The planner of a plan that an agent asked for."""

MAX_LOGGED: Final = 9_000
"""The entries of a run after which its session takes no further call, so that its end still fits into the journal.
Calls that are refused cost no budget, and an agent could repeat them for ever.
"""

ENDING: Final[frozenset[FailureCode]] = frozenset(
    {"cancelled", "must_escalate", "budget_exhausted", "approval_timeout"}
)
"""The failures after which the agent cannot go on. A write whose answer differs from what was asked is one more."""
OF_TOOL: Final[frozenset[FailureCode]] = frozenset({"tool_failed", "unsafe_output", "output_disagrees"})
"""The failures of a call that the tool answered, or could not answer."""

END_OF_OUTCOME: Final[Mapping[SessionOutcome, End]] = {
    "approved": "completed",
    "denied": "rejected",
    "escalated": "escalated",
}
"""How a session ends by the outcome that its agent states."""


@dataclass(slots=True)
class _Progress:
    """What a session has done so far: the last result of each step, and the evidence of its calls, the oldest first.
    `retrieved` is what was, and the facts that it states.
    """

    results: dict[str, ToolResultEnvelope] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    retrieved: tuple[Sequence[EvidenceItem], Sequence[Fact]] = ((), ())

    def known(self, retrieved: Sequence[EvidenceItem], scope: RunScope) -> tuple[Fact, ...]:
        """All evidence, the oldest first: what was retrieved, and what the calls gave."""
        if self.retrieved[0] != retrieved:
            self.retrieved = retrieved, [*facts_by_name(retrieved, scope).values()]
        return (*self.retrieved[1], *self.facts)


async def agent_session(
    request: InvokeRequest, admitted: AdmittedRun, before: Attempt | None, environment: RunEnvironment
) -> tuple[AdmittedRun, Attempt]:
    """Compile once, then judge and make the calls that the agent asks for until it finishes. Returns the run and what
    was done.

    `before` is the session as it ended before an operator reopened it: its results still count, and its agent reads the
    evidence again. Or it is the session up to a question that is asked again: then its call is judged anew first, with
    the evidence that did not change.
    """
    template, progress, revision = admitted.templates[0], _Progress(), 0
    again = before.again if before else None
    if before:
        progress, revision = _Progress(dict(before.execution.results)), before.revision + 1
        if again is not None:
            progress.facts += unchanged_facts(before.execution.facts, environment.journal)
            revision = before.revision
        admitted = await go_on(request, admitted, before, template, revision, environment)
    if admitted.not_chosen:
        return admitted, await _scored(admitted, progress, (admitted.not_chosen,), revision, environment)
    surface = compile_surface(request, admitted, template, revision, environment)  # 7, 8
    if isinstance(surface.compiled, Failure):
        return admitted, await _scored(admitted, progress, (surface.compiled,), revision, environment)
    if again is None:
        await _opened(admitted, surface, revision, environment)
    while True:
        said = again or await _next_message(admitted, environment)
        again = None
        failures: tuple[Failure, ...] = ()
        if isinstance(said, Failure):
            failures = (said,)
        elif said.kind == FINISHED:
            return admitted, await _finished(admitted, progress, said.body["outcome"], revision, environment)
        else:
            revision += 1
            failures = await _call(request, admitted, surface, progress, said, revision, environment)  # 9 to 12
        if any(failure.code in ENDING for failure in failures) or _differs(progress, failures):
            return admitted, await _scored(admitted, progress, failures, revision, environment)
        if is_asked_again(failures, revision, environment.journal):
            assert isinstance(said, Logged), "only a call has a question"
            stopped = await _scored(admitted, progress, failures, revision, environment)
            return admitted, replace(stopped, again=said)


async def _opened(admitted: AdmittedRun, surface: Surface, revision: int, environment: RunEnvironment) -> None:
    """Record the tools that the agent can call. A pack that observes hides none of its own accord; what the directory,
    the user or the request withholds stays out. Raises `Overloaded` where the agent has as many sessions as it may.
    """
    place: tuple[Write, ...] = ()
    if environment.places is not None and not environment.journal.on_tape:
        agent_id = admitted.scope.identity.principals.agent.agent_id
        place = (await environment.places.session(agent_id, environment.journal.run_id),)
    scope, listed = admitted.scope, {step.tool for step in admitted.templates[0].steps}
    assert scope.session is not None, "a session has a deadline"
    known = scope.tools.capabilities
    free = {one for one in listed if one in known and not scope.withheld_by_others(known[one])}
    tools = sorted(free if scope.observes else listed & surface.tools)
    opened = {"tools": tools, "deadline_us": scope.session.deadline_us}
    environment.journal.derive("session.opened", str(revision), opened | ({"observed": True} if scope.observes else {}))
    environment.journal.stage(*place)


async def _next_message(admitted: AdmittedRun, environment: RunEnvironment) -> Logged | Failure:
    """What the agent says next; the failure that ends the session if it was cancelled or the agent said nothing in
    time.
    """
    session, journal = admitted.scope.session, environment.journal
    assert session is not None, "a session has a deadline"
    if len(journal.log()) > MAX_LOGGED:
        detail = f"the session has more than {MAX_LOGGED} journal entries, and takes no further call"
        return Failure(code="budget_exhausted", detail=detail)
    while True:
        before = journal.head
        said = await journal.receive(
            (ASKED, FINISHED, EXPIRED),
            clean=partial(_as_recorded, admitted, environment),
            wake_at_us=session.deadline_us,
            on_timeout=Timeout(EXPIRED),
        )
        if said is not None and said.kind == EXPIRED:
            detail = f"the agent did not finish its session; {session.limit}"
            return Failure(code="budget_exhausted", detail=detail, facts=(SESSION_LIMIT,))
        if said is not None and said.kind == ASKED:
            return said
        # A cancel request that came while nobody looked wins over the outcome that the agent states.
        if cancelled := await look_for_cancel(environment, f"message/{len(journal.log())}"):
            return cancelled
        if said is not None:
            return said
        if journal.on_tape and journal.head == before:
            detail = "an entry is on the tape that no agent and no cancel request of a session makes"
            raise ReplayMismatch(len(journal.log()) + 1, ASKED, detail)


def _as_recorded(admitted: AdmittedRun, environment: RunEnvironment, said: Any) -> Any:
    """What an agent says without what its tool declares as secret, and without what the pack redacts."""
    if "tool" in said:
        assert environment.secret_values is not None, "an agent speaks to a live run only"
        capability = admitted.scope.tools.capabilities.get(said["tool"])
        run = (admitted.scope, environment.seen, environment.artifacts.registry)
        said = without_secrets_of(said, capability, run, environment.secret_values)
    return cleanse_text(admitted.loaded.pack, said)


async def _call(
    request: InvokeRequest,
    admitted: AdmittedRun,
    surface: Surface,
    progress: _Progress,
    asked: Logged,
    revision: int,
    environment: RunEnvironment,
) -> tuple[Failure, ...]:
    """Make one call that the agent asked for, record what it came to, and return the failures."""
    environment.barrier.forget()
    template = admitted.templates[0]
    plan = _plan(environment.journal.run_id, template, asked.body, revision)
    if isinstance(plan, Failure):
        return _answered(asked, "refused", None, (plan,), environment)
    step = plan.steps[0]
    known_tool = admitted.scope.tools.capabilities.get(step.tool)
    if known_tool is None or known_tool.definition.kind != "write":
        # The gateway does so for each write.
        now = await recheck_preconditions(environment, admitted.scope, f"{revision}/{step.id}", known_tool)
        if now.failure:
            return _answered(asked, "refused", None, (now.failure,), environment)
    known = progress.known(_fresh(admitted, environment), admitted.scope)
    execution, failures = await try_plan(request, admitted, template, plan, surface, known, environment)
    progress.facts += execution.facts[len(known) :]
    if is_asked_again(failures, revision, environment.journal):
        return failures
    result = execution.results.get(step.id)
    if result is None:
        return _answered(asked, "refused", None, failures, environment)
    key = f"{revision}/{step.id}"
    if result.status in ("ok", "completed"):
        progress.results[step.id] = result
        return _answered(asked, "done", key, failures, environment)
    of_tool = result.status in ("error", "paused") or any(failure.code in OF_TOOL for failure in failures)
    return _answered(asked, "failed" if of_tool else "refused", key, failures, environment)


def _answered(
    asked: Logged, status: str, step: str | None, failures: tuple[Failure, ...], environment: RunEnvironment
) -> tuple[Failure, ...]:
    body = {"status": status, "step": step, "failures": [failure.to_json() for failure in failures]}
    if environment.secret_values is not None and not environment.journal.on_tape:
        environment.secret_values.forget(environment.journal.run_id, asked.body["args"])
    environment.journal.derive("call.answered", asked.key, body)
    return failures


def _plan(run_id: str, template: TaskTemplate, asked: Mapping[str, Any], revision: int) -> Plan | Failure:
    """The plan of one step for the call that the agent asks for, with the approvals that the template requires."""
    tool, args = asked["tool"], asked["args"]
    step = next((one for one in template.steps if one.tool == tool), None)
    if step is None:
        names = ", ".join(f"`{one.tool}`" for one in template.steps)
        return Failure(code="tool_not_in_manifest", detail=f"`{tool}` is no tool of this session; use one of {names}")
    if REFUSED_ARGS in args:
        detail = f"the call of `{tool}` could not be taken ({str(args[REFUSED_ARGS])[:40]})"
        return Failure(code="schema_mismatch", detail=detail, step_id=step.id, capability_id=tool)
    for name, value in args.items():
        if _is_binding(value):
            detail = f"argument `{name}` of `{tool}` refers to another value; send the value itself"
            return Failure(code="schema_mismatch", detail=detail, step_id=step.id, capability_id=tool)
    # A read can be what provides the evidence that the decision requires.
    governed = step.approval_mode != "read_only"
    return Plan(
        plan_id=derive("plan_", run_id, "plan", revision),
        intent=template.intent,
        steps=(step.model_copy(update={"params": dict(args)}),),
        decision_checkpoints=template.decision_checkpoints if governed else (),
        revision=revision,
        planner=AGENT_PLANNER,
        template_id=f"{template.template_id}@{template.version}",
    )


def _is_binding(value: Any) -> bool:
    try:
        return binding_of(value) is not None
    except ValueError:
        return True


async def _finished(
    admitted: AdmittedRun, progress: _Progress, outcome: SessionOutcome, revision: int, environment: RunEnvironment
) -> Attempt:
    """The end of a session as its agent states it; a person decides where the journal says otherwise."""
    failures = _contradictions(admitted, progress, outcome, environment)
    if admitted.scope.observes:
        observe_failures(failures, str(revision), "finish", environment.journal)
        failures = ()
    # A pack that observes stops nothing, and its record is true all the same.
    failures = (*end_contradictions(END_OF_OUTCOME[outcome], admitted.scope, environment.journal), *failures)
    stated = None if failures else END_OF_OUTCOME[outcome]
    return await _scored(admitted, progress, failures, revision, environment, stated)


def _contradictions(
    admitted: AdmittedRun, progress: _Progress, outcome: SessionOutcome, environment: RunEnvironment
) -> tuple[Failure, ...]:
    """Why the session did not end as its agent states, beside the rule of every end (`end_contradictions`).

    Where the decision governs writes, what is approved was done, or the session only read and no call was refused or
    failed in the end. Where nothing was done, all evidence that the decision requires is known.
    """
    template, scope = admitted.templates[0], admitted.scope
    if outcome != "approved" or not template.decision_checkpoints:
        return ()
    tools = [scope.tools.capabilities[step.tool] for step in template.steps if step.tool in scope.tools.capabilities]
    if any(one.definition.kind == "write" for one in tools):
        if has_acted(environment):
            return ()
        if detail := _unread(environment):
            return (Failure(code="must_escalate", detail=detail),)
    known = {fact.name for fact in progress.known(_fresh(admitted, environment), scope)}
    failures = []
    for point in template.decision_checkpoints:
        if missing := sorted(set(scope.pinned.specs[point.decision_id].required_evidence) - known):
            names = ", ".join(f"`{name}`" for name in missing)
            detail = f"`{point.decision_id}` requires {names}, and the session has no such evidence"
            failures.append(Failure(code="missing_evidence", detail=detail))
    return tuple(failures)


def _unread(environment: RunEnvironment) -> str | None:
    """Why a session without an effect is no session that only read and did so well, or None if it is."""
    account = environment.journal.account
    if all(entry.body["status"] != "done" for entry in account.of("call.answered")):
        return "the agent approves, and no write of the session was made"
    undone = account.undone_call({entry.body["tool"] for entry in account.of(ASKED)})
    return f"the last call of `{undone[0]}` was not done ({undone[1]})" if undone else None


def _differs(progress: _Progress, failures: Sequence[Failure]) -> bool:
    """Whether a write was made whose answer is not what was asked: a person looks before anything else is done."""
    made = {one.capability_id for one in progress.results.values() if one.withheld}
    return any(one.code == "output_disagrees" and one.capability_id in made for one in failures)


def _fresh(admitted: AdmittedRun, environment: RunEnvironment) -> Sequence[EvidenceItem]:
    """What was retrieved, without the names of what has become too old."""
    return drop_stale_names(admitted.items, admitted.query.named, environment.journal.now_us)


async def _scored(
    admitted: AdmittedRun,
    progress: _Progress,
    failures: tuple[Failure, ...],
    revision: int,
    environment: RunEnvironment,
    stated: End | None = None,
) -> Attempt:
    controls, finished = admitted.scope.controls, stated is not None
    execution = Execution(progress.results, progress.known(admitted.items, admitted.scope), None)
    attempt = await score_attempt(
        admitted, controls, None, execution, failures, revision, environment, finished=finished
    )
    return replace(attempt, stated=stated)


__all__ = ["agent_session"]
