"""Step 7, for known arguments: announce the rules and gates that will apply to the steps of a template.

For an intent with parameters, some arguments are known before anything is planned. A rule that reads only these
arguments, and evidence that no step gives anew, decides later as it would now. So the compiled context and the plan
announce its decision.
Source: docs/adr/0065-an-intent-declares-its-parameters.md; How It Works, steps 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextos.action.gateway.evidence import nested_facts
from contextos.contracts.bindings import KnownStep
from contextos.contracts.encoding.redacted import without_secret_arguments
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.scope import Fact
from contextos.runtime.admission import AdmittedRun


def announce_steps(
    admitted: AdmittedRun, steps: Sequence[KnownStep], facts: Mapping[str, Fact]
) -> dict[str, PolicyDecision]:
    """Return, by step id, the decision of the rules whose facts are known, for each step of a template whose arguments
    are known. `facts` are the facts of the graph.

    Nothing is announced for an intent without parameters.
    """
    if not admitted.intent.parameters:
        return {}
    scope = admitted.scope
    produced = {name for item in steps for name in item.capability.definition.produces}
    evidence = nested_facts({name: fact.value for name, fact in facts.items() if name not in produced})
    return {
        item.step.id: admitted.policy.decide_known(
            scope.facts,
            {"evidence": evidence, "args": without_secret_arguments(item.args)},
            capability=item.capability.view,
            granted=item.step.tool in scope.tools.granted,
        )
        for item in steps
        if item.is_filled and not item.missing
    }
