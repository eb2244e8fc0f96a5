"""Step 7, about what is known already: the rules and gates that will apply to the steps of a template.

An intent with parameters knows arguments before anything is planned. A rule that reads such arguments, and evidence
that no step gives anew, decides later as it would now. So the compiled context and the plan announce it.
Source: docs/adr/0065-an-intent-declares-its-parameters.md; How It Works, steps 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextos.action.gateway.evidence import nested_facts
from contextos.contracts.bindings import resolve_params
from contextos.contracts.encoding.redacted import without_secret_arguments
from contextos.contracts.envelopes.plan import TaskTemplate
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.ids import derive
from contextos.contracts.scope import Fact
from contextos.decision.executor import evidence_view
from contextos.errors import InvalidInput
from contextos.runtime.admission import AdmittedRun


def announce_steps(
    admitted: AdmittedRun, template: TaskTemplate, facts: Mapping[str, Fact]
) -> dict[str, PolicyDecision]:
    """Return what the rules whose facts are known say about each step whose arguments are known, by step id. `facts`
    are those of the graph.

    Nothing is announced for an intent without parameters, nor for a session, whose agent chooses the arguments.
    """
    scope, tools = admitted.scope, admitted.scope.tools
    if not admitted.intent.parameters or template.chosen_by == "agent":
        return {}
    sources = {
        "request": scope.received.fields,
        "parameter": scope.parameter_values,
        "pack": admitted.pack_json(template.steps),
        "evidence": evidence_view(facts),
    }
    steps = [step for step in template.steps if step.tool in tools.capabilities]
    given_anew = {name for step in steps for name in tools.capabilities[step.tool].definition.produces}
    known = scope.facts.also(
        {"evidence": nested_facts({name: fact.value for name, fact in facts.items() if name not in given_anew})}
    )
    announced = {}
    for step in steps:
        tool = tools.capabilities[step.tool]
        try:
            args, _, missing = resolve_params(step.params, sources, tool.definition.input_schema)
        except InvalidInput:
            continue  # The executor refuses the step.
        if not missing:
            announced[step.id] = admitted.policy.decide_known(
                known.also({"args": without_secret_arguments(args)}),
                capability=tool.view,
                granted=step.tool in tools.granted,
                decision_id=derive("pol_", scope.run.run_id, "policy.announced", f"{template.template_id}/{step.id}"),
            )
    return announced
