"""Step 9: the plan of one revision, from the template planner or from the one that the deployment configured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.envelopes.plan import Plan, TaskTemplate
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.planning import PlanRequest
from contextos.decision.planners.foreign import ask_planner, plan_of_answer
from contextos.decision.planners.template import PLANNER, propose_plan
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.environment import RunEnvironment


async def propose(
    admitted: AdmittedRun,
    template: TaskTemplate,
    compiled: Mapping[str, Any],
    evidence: Iterable[str],
    revision: int,
    environment: RunEnvironment,
) -> Plan | Failure:
    """The plan that the run's planner proposes, or why its answer is none.

    A template's plan is derived. The answer of any other planner is recorded, so that a replay needs no planner.
    """
    run_id, planner = environment.journal.run_id, environment.deployment.planner_name
    if planner == PLANNER:
        return propose_plan(run_id, template, compiled, revision)
    eligible = (template, *(one for one in admitted.templates if one is not template))
    names = tuple(f"{one.template_id}@{one.version}" for one in eligible)
    request = PlanRequest(run_id, revision, own_copy(dict(compiled)), names, tuple(sorted(evidence)))
    # Foreign code may write into the request; what is compared with the tape is made before it is asked.
    wire = own_copy(request.to_json())
    ask = partial(
        ask_planner, environment.planner, planner, request, environment.ports.concurrency, template.plan_timeout_ms
    )
    answer = await environment.journal.record("planner.answered", str(revision), wire, ask)
    return plan_of_answer(answer, planner, run_id, admitted.templates, revision)
