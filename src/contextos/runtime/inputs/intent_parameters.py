"""Step 6, before and after retrieval: take the parameters of the intent, and record them before anything uses them.

A session opens without parameters: its agent chooses the arguments, and an argument that has to agree with a parameter
without a value is refused.
"""

from __future__ import annotations

from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import changed
from contextos.decision.parameters import ParameterValues, take_parameters
from contextos.runtime.admission import AdmittedRun, refuse
from contextos.runtime.environment import RunEnvironment
from contextos.trust.journal.record import RunOutcome


def unmet(admitted: AdmittedRun) -> tuple[Failure, ...]:
    """Return what the request lacks for its intent: each parameter that nothing gives, and each tool of the steps that
    its delegation does not give the agent, where no task template does without one.
    """
    if admitted.templates[0].is_session:
        return ()
    scope = admitted.scope
    values = take_parameters(admitted.intent.parameters, scope.received.fields)
    withheld = {
        tool.capability_id for tool in admitted.surface if tool.withheld in ("delegation_missing", "scope_missing")
    }
    blocked = [[step for step in template.steps if step.tool in withheld] for template in admitted.templates]
    steps = {step.tool: step for step in blocked[0]} if all(blocked) else {}
    failures = [*values.faults.values()]
    for tool, step in steps.items():
        detail = scope.why_not_in_manifest(tool, f"`{tool}` is not in the tool manifest")
        fault = Failure(code="tool_not_in_manifest", detail=detail, step_id=step.id, capability_id=tool)
        failures.append(fault.model_copy(update={"pointer": "/user/delegation"}))
    return tuple(failures)


def take_stated(admitted: AdmittedRun, environment: RunEnvironment) -> AdmittedRun | RunOutcome:
    """Take the parameters that the request gives. An intent without parameters records nothing."""
    declared, fields = admitted.intent.parameters, admitted.scope.received.fields
    return _add_values(admitted, take_parameters(declared, fields), "request", environment) if declared else admitted


def take_known(admitted: AdmittedRun, environment: RunEnvironment) -> AdmittedRun | RunOutcome:
    """Take the parameters that a fact of the graph can still give, now that the evidence is there."""
    parameters = admitted.scope.parameters
    remaining = [
        parameter
        for parameter in admitted.intent.parameters
        if parameter.name not in parameters and any(source.evidence is not None for source in parameter.sources)
    ]
    if not remaining:
        return admitted
    facts = {item.name: item for item in admitted.items if item.name is not None}
    values = take_parameters(remaining, admitted.scope.received.fields, facts)
    return _add_values(admitted, values, "evidence", environment)


def _add_values(
    admitted: AdmittedRun, values: ParameterValues, key: str, environment: RunEnvironment
) -> AdmittedRun | RunOutcome:
    environment.journal.derive("parameters.taken", key, values.to_json())
    parameters = {**admitted.scope.parameters, **{parameter.name: parameter for parameter in values.taken}}
    if values.failure and not admitted.templates[0].is_session:
        return refuse(*(unmet(admitted) if key == "request" else values.faults.values()))
    return changed(admitted, scope=changed(admitted.scope, parameters=parameters)) if values.taken else admitted
