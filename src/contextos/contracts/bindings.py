"""Plan arguments: bindings, which name a source and a JSON Pointer to a value, and the defaults of the tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.envelopes.plan import Binding, Plan, PlanStep
from contextos.contracts.scope import Capability
from contextos.errors import InvalidInput

_SOURCES: Final = ("request", "parameter", "pack", "evidence", "step")
_GIVEN_BY_STEPS: Final = frozenset({"evidence", "step"})


class KnownStep(NamedTuple):
    """A step whose tool is registered: its arguments as far as they are known before the plan runs, and the names of
    the others.

    `provenance` has the origin of each argument. `is_bound`: an argument is no literal. `is_final`: no step of the plan
    changes what the arguments resolve to. `is_filled`: they have the defaults of the tool, which are not too large.
    """

    step: PlanStep
    capability: Capability
    args: Mapping[str, Any]
    missing: list[str]
    provenance: Mapping[str, str]
    is_bound: bool
    is_final: bool
    is_filled: bool = True


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
    args, provenance, missing, _ = _resolved(params, sources)
    return with_defaults(schema, args, missing), provenance, missing


def known_steps(
    steps: Iterable[PlanStep],
    sources: Mapping[str, Any],
    capabilities: Mapping[str, Capability],
    before: Iterable[KnownStep] = (),
) -> tuple[KnownStep, ...]:
    """Return the steps whose tools are registered, in their order, with what their arguments resolve to.

    `before` are steps that were resolved from the same sources: a step with exactly the parameters of one of them, for
    the same tool, has its arguments.
    """
    known, resolved = list[KnownStep](), {one.step.id: one for one in before}
    for step in steps:
        tool, same = capabilities.get(step.tool), resolved.get(step.id)
        if tool is None:
            continue
        if same is not None and same.step.params is step.params and same.capability is tool:
            known.append(same if same.step is step else same._replace(step=step))
            continue
        args, provenance, missing, reads = _resolved(step.params, sources)
        is_final, is_filled = _GIVEN_BY_STEPS.isdisjoint(reads), True
        try:
            args = with_defaults(tool.definition.input_schema, args, missing)
        except InvalidInput:  # The executor refuses the step.
            args, is_final, is_filled = with_defaults({}, args, missing), False, False
        known.append(KnownStep(step, tool, args, missing, provenance, bool(reads), is_final, is_filled))
    return tuple(known)


def _resolved(
    params: Mapping[str, Any], sources: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], list[str], set[str]]:
    """The arguments that resolve, the origin of each, the names of the others, and the sources that bindings read."""
    args: dict[str, Any] = {}
    provenance: dict[str, str] = {}
    missing: list[str] = []
    reads: set[str] = set()
    for name in sorted(params):
        value, origin = params[name], "literal"
        binding = binding_of(value) if isinstance(value, dict) else None
        if binding is not None:
            source, place = binding.source, binding.pointer
            reads.add(source)
            value, origin = (
                resolve_pointer(sources[source], place) if source in sources else MISSING,
                f"{source}:{place}",
            )
            if value is MISSING:
                missing.append(name)
                continue
        args[name] = value
        provenance[name] = origin
    return args, provenance, missing, reads
