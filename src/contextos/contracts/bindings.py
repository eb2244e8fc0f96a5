"""Plan arguments: bindings, which name a source and a JSON Pointer to a value, and the defaults of the tool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.envelopes.plan import Binding, Plan
from contextos.contracts.scope import Capability

_SOURCES: Final = ("request", "parameter", "pack", "evidence", "step")


def binding_of(value: Any) -> Binding | None:
    """Return the binding that the plan argument `value` holds, or None if the argument is a literal.
    A binding is a JSON object with exactly the keys `from` and `pointer`.
    """
    if isinstance(value, dict) and value.keys() == {"from", "pointer"} and value["from"] in _SOURCES:
        source, pointer = value["from"], value["pointer"]
        return _binding(source, pointer) if isinstance(pointer, str) else Binding.model_validate(value)
    return None


@lru_cache(1024)
def _binding(source: str, pointer: str) -> Binding:
    return Binding.model_validate({"from": source, "pointer": pointer})


def resolve_binding(binding: Binding, sources: Mapping[str, Any]) -> Any:
    """Return the value that `binding` points to in `sources` (a JSON value for each source name), or `MISSING`."""
    return resolve_pointer(sources[binding.source], binding.pointer) if binding.source in sources else MISSING


def plan_with_defaults(plan: Plan, capabilities: Mapping[str, Capability]) -> Plan:
    """Return a plan whose literal arguments have the defaults of their tools, as it is recorded and judged.

    Raises:
        InvalidInput: as `with_defaults`.
    """
    steps = []
    for step in plan.steps:
        tool = capabilities.get(step.tool)
        if tool is not None:
            bound = [name for name, value in step.params.items() if binding_of(value) is not None]
            filled = with_defaults(tool.definition.input_schema, step.params, bound)
            step = step if filled == step.params else step.model_copy(update={"params": filled})
        steps.append(step)
    return plan if steps == [*plan.steps] else plan.model_copy(update={"steps": tuple(steps)})


def resolve_params(
    params: Mapping[str, Any], sources: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Replace each binding in the plan arguments `params` by its value in `sources`, with the defaults of the tool's
    input `schema` in it.

    Return (arguments, the origin of each argument by name, the names of the arguments that do not resolve yet).

    Raises:
        InvalidInput: as `with_defaults`.
    """
    args: dict[str, Any] = {}
    provenance: dict[str, str] = {}
    missing: list[str] = []
    for name in sorted(params):
        binding = binding_of(params[name])
        value = params[name] if binding is None else resolve_binding(binding, sources)
        if value is MISSING:
            missing.append(name)
            continue
        args[name] = value
        provenance[name] = "literal" if binding is None else f"{binding.source}:{binding.pointer}"
    return with_defaults(schema, args, missing), provenance, missing
