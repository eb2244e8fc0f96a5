"""Step 6, before and after retrieval: take the parameters of the intent, and record them before anything uses them.

A session needs none of them to open: its agent chooses the arguments, and one that has to agree with a parameter that
nothing gave is refused.
"""

from __future__ import annotations

from dataclasses import replace

from contextos.contracts.envelopes.verdicts import Failure
from contextos.decision.parameters import ParameterValues, take_parameters
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.environment import RunEnvironment


def take_stated(admitted: AdmittedRun, environment: RunEnvironment) -> AdmittedRun | Failure:
    """Take the parameters that the request gives. An intent without parameters records nothing."""
    declared, fields = admitted.intent.parameters, admitted.scope.received.fields
    return _with_values(admitted, take_parameters(declared, fields), "request", environment) if declared else admitted


def take_known(admitted: AdmittedRun, environment: RunEnvironment) -> AdmittedRun | Failure:
    """Take the parameters that a fact of the graph can still give, now that the evidence is there."""
    taken = admitted.scope.parameters
    left = [
        one
        for one in admitted.intent.parameters
        if one.name not in taken and any(source.evidence is not None for source in one.sources)
    ]
    if not left:
        return admitted
    facts = {item.name: item for item in admitted.items if item.name is not None}
    values = take_parameters(left, admitted.scope.received.fields, facts)
    return _with_values(admitted, values, "evidence", environment)


def _with_values(
    admitted: AdmittedRun, values: ParameterValues, key: str, environment: RunEnvironment
) -> AdmittedRun | Failure:
    environment.journal.derive("parameters.taken", key, values.to_json())
    taken = {**admitted.scope.parameters, **{one.name: one for one in values.taken}}
    if values.failure and admitted.templates[0].chosen_by != "agent":
        return values.failure
    return replace(admitted, scope=replace(admitted.scope, parameters=taken))
