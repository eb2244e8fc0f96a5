"""Steps 7 to 13 of a session: a run whose calls an agent chooses one after the other, and that the agent finishes.

The agent is a program at the gate, or a model that the run asks itself (`chosen_by: model`).

Each call is recorded as asked, becomes a plan of one step, and takes the way of every plan: Critic, gateway, approval.
A refused call ends nothing: the agent reads the reasons and goes on. All calls share one budget and one growing set of
evidence. A replay reads the calls from the journal and needs no agent.
Source: docs/design/sessions.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from contextos.action.secret_arguments import without_secrets_of
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.verdicts import End, Failure, FailureCode, SessionOutcome
from contextos.contracts.journal import Logged, Timeout, Write
from contextos.contracts.scope import SESSION_LIMIT
from contextos.decision.executor import Execution
from contextos.decision.observing import observe_failures
from contextos.errors import ReplayMismatch
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.attempts.one_plan import Surface, compile_surface, go_on, has_acted, score_attempt
from contextos.runtime.attempts.session_calls import SessionProgress, fresh_items, make_call, make_reads
from contextos.runtime.conclusion import Attempt, end_contradictions
from contextos.runtime.environment import RunEnvironment, look_for_cancel
from contextos.runtime.models import ModelSpeaker
from contextos.runtime.redaction import cleanse_text
from contextos.runtime.reopening import is_asked_again, unchanged_facts

ASKED: Final = "call.asked"
FINISHED: Final = "session.finished"
EXPIRED: Final = "session.expired"

MAX_LOGGED: Final = 9_000
"""The number of a run's entries after which its session takes no further call, so that its end still fits into the
journal. Refused calls cost no budget, so an agent could repeat them for ever.
"""

ENDING: Final[frozenset[FailureCode]] = frozenset(
    {"cancelled", "must_escalate", "budget_exhausted", "approval_timeout", "no_model_route", "model_failed"}
)
"""The failures after which the agent cannot go on. A write whose answer differs from the request is another one."""
END_OF_OUTCOME: Final[Mapping[SessionOutcome, End]] = {
    "approved": "completed",
    "denied": "rejected",
    "escalated": "escalated",
}
"""How a session ends by the outcome that its agent states."""


async def agent_session(
    request: InvokeRequest, admitted: AdmittedRun, before: Attempt | None, environment: RunEnvironment
) -> tuple[AdmittedRun, Attempt]:
    """Compile once, then judge and make the calls that the agent asks for until it finishes. Returns the run and what
    was done.

    `before` is the session as it ended before an operator reopened it: its results still count, and its agent reads the
    evidence again. Or it is the session up to a question that is asked again: then the call of that question is judged
    anew first, with the evidence that did not change.
    """
    template, progress, revision = admitted.templates[0], SessionProgress(), 0
    pending = before.again if before else None
    if before:
        progress, revision = SessionProgress(dict(before.execution.results)), before.revision + 1
        if pending is not None:
            progress.facts += unchanged_facts(before.execution.facts, environment.journal)
            revision = before.revision
        admitted = await go_on(request, admitted, before, template, revision, environment)
    if admitted.not_chosen:
        return admitted, await _score_session(admitted, progress, (admitted.not_chosen,), revision, environment)
    surface = compile_surface(request, admitted, template, revision, environment)  # 7, 8
    if isinstance(surface.compiled, Failure):
        return admitted, await _score_session(admitted, progress, (surface.compiled,), revision, environment)
    if pending is None:
        await _record_opening(admitted, surface, revision, environment)
    speaker = _model_speaker(admitted, surface.compiled, progress, environment)
    while True:
        message = pending or _length_failure(environment)
        message = message or await (speaker.next_message() if speaker else _next_message(admitted, environment))
        pending = None
        failures, answers = tuple[Failure, ...](), list[tuple[Logged, Any]]()
        if isinstance(message, Failure):
            failures = (message,)
        elif message.kind == FINISHED:
            parts = admitted, surface.compiled, progress
            return admitted, await _finish_attempt(*parts, message.body["outcome"], revision, environment)
        else:
            revision += 1
            if speaker and (reads := await speaker.reads_beside(message)):
                answers, failures, revision = await make_reads(
                    request, admitted, surface, progress, reads, revision, environment
                )
            else:
                failures, output = await make_call(request, admitted, surface, progress, message, revision, environment)
                answers = [(message, output)]
        if (
            isinstance(message, Failure)
            or any(failure.code in ENDING for failure in failures)
            or _has_mismatched_write(progress, failures)
        ):
            return admitted, await _score_session(admitted, progress, failures, revision, environment)
        if is_asked_again(failures, revision, environment.journal):
            assert isinstance(message, Logged), "only a call has a question"
            attempt = await _score_session(admitted, progress, failures, revision, environment)
            return admitted, replace(attempt, again=message)
        if speaker:
            speaker.heard(answers)


def _model_speaker(
    admitted: AdmittedRun, compiled: Mapping[str, Any], progress: SessionProgress, environment: RunEnvironment
) -> ModelSpeaker | None:
    """Return the model that chooses the calls of a session; None if an agent at the gate chooses them."""
    if admitted.templates[0].chosen_by != "model":
        return None
    opening = environment.journal.account.last("session.opened")
    assert opening is not None, "a session was opened"
    return ModelSpeaker(admitted, compiled, opening.body["tools"], progress.results, environment)


async def _record_opening(admitted: AdmittedRun, surface: Surface, revision: int, environment: RunEnvironment) -> None:
    """Record the tools that the agent can call. An observing pack hides no tool itself; tools that the directory, the
    user or the request withholds stay out. Raises `Overloaded` if the agent has as many sessions as it is allowed.
    """
    place: tuple[Write, ...] = ()
    if environment.places is not None and not environment.journal.on_tape:
        agent_id = admitted.scope.identity.principals.agent.agent_id
        place = (await environment.places.session(agent_id, environment.journal.run_id),)
    scope, template_tools = admitted.scope, {step.tool for step in admitted.templates[0].steps}
    assert scope.session is not None, "a session has a deadline"
    by_id = scope.tools.capabilities
    permitted = {tool for tool in template_tools if tool in by_id and not scope.withheld_by_others(by_id[tool])}
    tools = sorted(permitted if scope.observes else template_tools & surface.tools)
    body = {"tools": tools, "deadline_us": scope.session.deadline_us}
    environment.journal.derive("session.opened", str(revision), body | ({"observed": True} if scope.observes else {}))
    environment.journal.stage(*place)


def _length_failure(environment: RunEnvironment) -> Failure | None:
    if len(environment.journal.log()) <= MAX_LOGGED:
        return None
    detail = f"the session has more than {MAX_LOGGED} journal entries, and takes no further call"
    return Failure(code="budget_exhausted", detail=detail)


async def _next_message(admitted: AdmittedRun, environment: RunEnvironment) -> Logged | Failure:
    """Return what the agent says next, or the failure that ends the session: it was cancelled, or the agent said
    nothing in time.
    """
    session, journal = admitted.scope.session, environment.journal
    assert session is not None, "a session has a deadline"
    while True:
        before = journal.head
        message = await journal.receive(
            (ASKED, FINISHED, EXPIRED),
            clean=partial(_recorded_form, admitted, environment),
            wake_at_us=session.deadline_us,
            on_timeout=Timeout(EXPIRED),
        )
        if message is not None and message.kind == EXPIRED:
            detail = f"the agent did not finish its session; {session.limit}"
            return Failure(code="budget_exhausted", detail=detail, facts=(SESSION_LIMIT,))
        if message is not None and message.kind == ASKED:
            return message
        # A cancel request that came while nobody looked wins over the outcome that the agent states.
        if cancelled := await look_for_cancel(environment, f"message/{len(journal.log())}"):
            return cancelled
        if message is not None:
            return message
        if journal.on_tape and journal.head == before:
            detail = "an entry is on the tape that no agent and no cancel request of a session makes"
            raise ReplayMismatch(len(journal.log()) + 1, ASKED, detail)


def _recorded_form(admitted: AdmittedRun, environment: RunEnvironment, message: Any) -> Any:
    """Return an agent's message without the arguments that its tool declares secret, and redacted as the pack says."""
    if "tool" in message:
        assert environment.secret_values is not None, "an agent speaks to a live run only"
        capability = admitted.scope.tools.capabilities.get(message["tool"])
        run = (admitted.scope, environment.seen, environment.artifacts.registry)
        message = without_secrets_of(message, capability, run, environment.secret_values)
    return cleanse_text(admitted.loaded.pack, message)


async def _finish_attempt(
    admitted: AdmittedRun,
    compiled: Mapping[str, Any],
    progress: SessionProgress,
    outcome: SessionOutcome,
    revision: int,
    environment: RunEnvironment,
) -> Attempt:
    """Return the end of a session as its agent states it; a person decides if the journal contradicts it."""
    failures = _approval_contradictions(admitted, progress, outcome, environment)
    if admitted.scope.observes:
        observe_failures(failures, str(revision), "finish", environment.journal)
        failures = ()
    # An observing pack stops nothing, but its record has to be true.
    failures = (*end_contradictions(END_OF_OUTCOME[outcome], admitted.scope, environment.journal), *failures)
    end = None if failures else END_OF_OUTCOME[outcome]
    return await _score_session(admitted, progress, failures, revision, environment, end, compiled)


def _approval_contradictions(
    admitted: AdmittedRun, progress: SessionProgress, outcome: SessionOutcome, environment: RunEnvironment
) -> tuple[Failure, ...]:
    """Return why an approval by the agent does not hold, beside the rule of every end (`end_contradictions`).

    If the decision governs writes, a write must be done, or the session only read and its last calls were done. Where
    nothing was done, all evidence that the decision requires must be known.
    """
    template, scope = admitted.templates[0], admitted.scope
    if outcome != "approved" or not template.decision_checkpoints:
        return ()
    tools = [scope.tools.capabilities[step.tool] for step in template.steps if step.tool in scope.tools.capabilities]
    if any(capability.definition.kind == "write" for capability in tools):
        if has_acted(environment):
            return ()
        if detail := _read_contradiction(environment):
            return (Failure(code="must_escalate", detail=detail),)
    names_known = {fact.name for fact in progress.known(fresh_items(admitted, environment), scope)}
    failures = []
    for point in template.decision_checkpoints:
        if missing := sorted(set(scope.pinned.specs[point.decision_id].required_evidence) - names_known):
            names = ", ".join(f"`{name}`" for name in missing)
            detail = f"`{point.decision_id}` requires {names}, and the session has no such evidence"
            failures.append(Failure(code="missing_evidence", detail=detail))
    return tuple(failures)


def _read_contradiction(environment: RunEnvironment) -> str | None:
    """Return None if a session without an effect only read, and its reads were done; else return what
    contradicts that.
    """
    account = environment.journal.account
    if all(entry.body["status"] != "done" for entry in account.of("call.answered")):
        return "the agent approves, and no write of the session was made"
    missed_call = account.undone_call({entry.body["tool"] for entry in account.of(ASKED)})
    return f"the last call of `{missed_call[0]}` was not done ({missed_call[1]})" if missed_call else None


def _has_mismatched_write(progress: SessionProgress, failures: Sequence[Failure]) -> bool:
    """Return whether the answer of a write differs from the request: then a person looks before anything else
    is done.
    """
    withheld = {result.capability_id for result in progress.results.values() if result.withheld}
    return any(failure.code == "output_disagrees" and failure.capability_id in withheld for failure in failures)


async def _score_session(
    admitted: AdmittedRun,
    progress: SessionProgress,
    failures: tuple[Failure, ...],
    revision: int,
    environment: RunEnvironment,
    end: End | None = None,
    compiled: Mapping[str, Any] | None = None,
) -> Attempt:
    controls, finished = admitted.scope.controls, end is not None
    execution = Execution(progress.results, progress.known(admitted.items, admitted.scope), None)
    attempt = await score_attempt(
        admitted, controls, None, execution, failures, revision, environment, finished=finished, compiled=compiled
    )
    return replace(attempt, stated=end)
