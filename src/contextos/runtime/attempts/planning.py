"""Step 9: get a plan, from the template planner or from the planner that the deployment configured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.planning import PlanRequest
from contextos.decision.planners.foreign import ask_planner, plan_of_answer
from contextos.decision.planners.model import MODEL_PLANNER
from contextos.decision.planners.template import PLANNER, propose_plan
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.environment import RunEnvironment, look_for_cancel
from contextos.runtime.models import propose_by_model
from contextos.runtime.redaction import cleanse_text


async def propose(
    admitted: AdmittedRun,
    template: TaskTemplate,
    compiled: Mapping[str, Any],
    gates: Mapping[str, Sequence[str]],
    evidence: Iterable[str],
    revision: int,
    wrong: Sequence[Failure],
    environment: RunEnvironment,
) -> Plan | Failure:
    """Return the plan that the run's planner proposes, or the failure if its answer is not a valid plan. `gates` are
    the gates announced for steps of the template, by step id. `wrong` has the failures of the plan before, which a
    model is shown.

    The template planner's plan is computed again in a replay. The answer of any other planner is recorded, so that a
    replay needs no planner.
    """
    run_id, planner = environment.journal.run_id, admitted.planner
    if planner == PLANNER:
        return propose_plan(run_id, template, compiled, gates, revision)
    if planner == MODEL_PLANNER:
        timeout_ms, _ = _time_left(admitted, template, environment)
        return await propose_by_model(
            admitted, template, compiled, sorted(evidence), revision, timeout_ms, wrong, environment
        )
    eligible = (template, *(candidate for candidate in admitted.templates if candidate is not template))
    names = tuple(f"{candidate.template_id}@{candidate.version}" for candidate in eligible)
    request = PlanRequest(run_id, revision, own_copy(dict(compiled)), names, tuple(sorted(evidence)))
    # Foreign code may write into the request, so the copy that is compared with the journal is made first.
    wire = own_copy(request.to_json())
    if cancelled := await look_for_cancel(environment, f"plan/{revision}"):
        return cancelled
    timeout_ms, cut_by = _time_left(admitted, template, environment)
    if timeout_ms <= 0:
        detail = f"{cut_by}, and the planner was not asked"
        return Failure(code="budget_exhausted", detail=detail, facts=("wall_clock_ms",))
    ask = partial(ask_planner, environment.planner, planner, request, environment.ports.concurrency, timeout_ms, cut_by)

    async def redacted() -> Any:
        return cleanse_text(admitted.loaded.pack, await ask())

    answer = await environment.journal.record("planner.answered", str(revision), wire, redacted)
    plan = plan_of_answer(answer, planner, run_id, admitted.templates, revision)
    if isinstance(plan, Failure) and answer.get("late") == admitted.scope.run.run_budget.stated("wall_clock_ms"):
        return plan.model_copy(update={"facts": ("wall_clock_ms",)})
    return plan


def _time_left(admitted: AdmittedRun, template: TaskTemplate, environment: RunEnvironment) -> tuple[int, str | None]:
    """Return the time for a plan in milliseconds, and the limit that leaves less time than the template's, or None."""
    budget, hint = admitted.scope.run.run_budget, admitted.scope.received.request.runtime.plan_timeout_ms
    left_ms = budget.wall_clock_ms - environment.used().wall_clock_us // 1_000
    limits: list[tuple[int, str | None]] = [(template.plan_timeout_ms, None), (left_ms, budget.stated("wall_clock_ms"))]
    if hint is not None:
        limits.append((hint, f"`plan_timeout_ms` is {hint}"))
    return min(limits, key=lambda limit: limit[0])
