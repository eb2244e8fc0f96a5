"""Ask planners from outside this package for plans. A planner is asked once per plan and never trusted: its answer is
recorded, then checked strictly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from contextos.contracts.bindings import binding_of
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.plan import Plan, PlanStep, ProposedPlan, TaskTemplate
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import derive
from contextos.contracts.ports.concurrency import Concurrency
from contextos.contracts.ports.planning import Planner, PlanRequest
from contextos.decision.planners.template import PLANNER
from contextos.errors import InvalidInput, InvalidSettings, MalformedJson, Problem, Unavailable

MAX_PLAN_BYTES: Final = 262_144
_PLANNER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}@[A-Za-z0-9._-]{1,32}")


def planner_name(planner: Planner | None) -> str:
    """Return the name that a run records for its planner (`name@version`). `planner` is None for the template planner.

    Raises:
        InvalidSettings: the name is not `name@version`, or is the name of the template planner.
    """
    if planner is None:
        return PLANNER
    if not isinstance(planner.name, str) or planner.name == PLANNER or not _PLANNER_NAME.fullmatch(planner.name):
        detail = f"a planner has a name of its own such as `acme.planner@1.2.0`, not `{planner.name!s:.64}`"
        raise InvalidSettings(Problem("/planner", "planner_name", detail, "give it a name and a version"))
    return planner.name


async def ask_planner(
    planner: Planner | None,
    recorded: str,
    request: PlanRequest,
    concurrency: Concurrency,
    timeout_ms: int,
    cut_by: str | None = None,
) -> dict[str, Any]:
    """Ask the planner for a plan and return the answer to record.

    The answer has one of three members: `proposal`, the plan as the planner sent it; `refused`, the reason why the plan
    is not kept; or `late`, the limit `cut_by` of the run, if no answer came in the `timeout_ms` that the limit left.

    Raises:
        Unavailable: the planner named `recorded` is not configured here, failed, or was late without a `cut_by`.
    """
    if planner is None or planner.name != recorded:
        current = planner.name if planner else PLANNER
        raise Unavailable(recorded, f"the run began with this planner and this process has `{current}`; configure it")

    async def propose() -> Any:
        with _RaiseUnavailable(recorded):
            return await planner.propose(request)

    try:
        answer = await concurrency.within(timeout_ms, propose)
    except TimeoutError as error:
        if cut_by:
            return {"late": cut_by}
        raise Unavailable(recorded, f"it did not answer in {timeout_ms} ms") from error
    with _RaiseUnavailable(recorded):
        return _recordable_answer(answer)


def _recordable_answer(answer: Any) -> dict[str, Any]:
    try:
        if not isinstance(answer, Mapping):
            return {"refused": "the answer is no JSON object"}
        text = canonical(dict(answer))
        if len(text) > MAX_PLAN_BYTES:
            return {"refused": f"the answer is larger than {MAX_PLAN_BYTES} bytes"}
        return {"proposal": loads(text, max_bytes=MAX_PLAN_BYTES)}
    except (MalformedJson, RecursionError):
        return {"refused": "the answer is not JSON, or is nested too deep"}


def plan_of_answer(
    answer: Mapping[str, Any], planner: str, run_id: str, templates: Sequence[TaskTemplate], revision: int
) -> Plan | Failure:
    """Check a planner's recorded answer and return the plan in it, or a failure. The plan's id, revision and intent are
    set here.

    The template that the answer names sets minimum requirements, because the pack's author signed it. The approvals
    that the template's steps require stay required, and the plan can use no other decision spec than the template. A
    tool that the template does not use needs the approvals of all templates of the run.
    """
    if "late" in answer:
        detail = f"{answer['late']}, and the planner `{planner}` had not answered"
        return Failure(code="budget_exhausted", detail=detail)
    if "refused" in answer:
        return _refused_plan(planner, str(answer["refused"]))
    try:
        proposed = parse(ProposedPlan, dict(answer["proposal"]))
    except InvalidInput as error:
        return _refused_plan(planner, str(error.problems[0]))
    for step in proposed.steps:
        try:
            for value in step.params.values():
                binding_of(value)
        except ValueError:
            return _refused_plan(planner, f"a parameter of step `{step.id}` binds to what is no JSON Pointer")
    by_ref = {f"{template.template_id}@{template.version}": template for template in templates}
    if proposed.template_id not in by_ref:
        return _refused_plan(planner, "`template_id` names none of the templates that the run may use")
    template = by_ref[proposed.template_id]
    specs = {point.decision_id for point in template.decision_checkpoints}
    for point in proposed.decision_checkpoints:
        if point.decision_id not in specs:
            detail = f"`{point.decision_id}` is no decision of the template `{proposed.template_id}`"
            return Failure(code="violates_decision_spec", detail=detail)
    return Plan(
        plan_id=derive("plan_", run_id, "plan", revision),
        intent=template.intent,
        steps=tuple(_with_gates(step, template, templates) for step in proposed.steps),
        decision_checkpoints=proposed.decision_checkpoints,
        revision=revision,
        planner=planner,
        template_id=proposed.template_id,
    )


def _with_gates(step: PlanStep, template: TaskTemplate, templates: Sequence[TaskTemplate]) -> PlanStep:
    """Return the step with the gates of its tool in the template, or in all templates if this one lacks the tool."""
    matching = [candidate for candidate in template.steps if candidate.tool == step.tool] or [
        candidate for other in templates for candidate in other.steps if candidate.tool == step.tool
    ]
    gates = dict.fromkeys([*step.requires, *(gate for candidate in matching for gate in candidate.requires)])
    return step.model_copy(update={"requires": tuple(gates)})


def _refused_plan(planner: str, reason: str) -> Failure:
    return Failure(code="schema_mismatch", detail=f"the planner `{planner}` proposed no plan: {reason}"[:500])


class _RaiseUnavailable:
    """A context manager that turns any exception of a planner into `Unavailable`. A planner changes nothing, so it can
    be asked again later.

    The one place for planners where any exception is caught (ADR 0008).
    """

    def __init__(self, planner: str) -> None:
        self._planner = planner

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Checks `kind` and not the object: a foreign object can claim another class.
        if kind is not None and issubclass(kind, Exception) and not issubclass(kind, Unavailable):
            raise Unavailable(self._planner, f"it raised `{kind.__name__}`") from error
