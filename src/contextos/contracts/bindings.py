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
_STEP_SOURCES: Final = frozenset({"evidence", "step"})


class ParsedStep(NamedTuple):
    """A step whose tool is registered, with its parameters parsed, in the order of their names.

    `params` has for each parameter its name, the source of its binding (None for a literal), the pointer of the binding
    and the value as written. `origins` says where each argument comes from, by name. `is_bound`: at least one parameter
    is a binding. `is_settled`: no parameter depends on evidence or a step, so no step of a plan changes its value.
    `has_defaults`: the literals include the defaults of the tool.
    """

    step: PlanStep
    capability: Capability
    params: tuple[tuple[str, str | None, str, Any], ...]
    origins: Mapping[str, str]
    is_bound: bool
    is_settled: bool
    has_defaults: bool


class KnownStep(NamedTuple):
    """A parsed step: its arguments as far as they are known before the plan runs, the names of the others, and the
    origin of each argument (`provenance`). `is_final`: the call will have exactly these arguments. `is_filled`: the
    arguments have the defaults of the tool, and these are not too large.
    """

    step: PlanStep
    capability: Capability
    args: Mapping[str, Any]
    missing: list[str]
    provenance: Mapping[str, str]
    parsed: ParsedStep
    is_final: bool
    is_filled: bool


def binding_of(value: Any) -> Binding | None:
    """Return the binding that the plan argument `value` holds, or None if the argument is a literal.
    A binding is a JSON object with exactly the keys `from` and `pointer`.
    """
    if isinstance(value, dict) and value.keys() == {"from", "pointer"} and value["from"] in _SOURCES:
        source, pointer = value["from"], value["pointer"]
        return _make_binding(source, pointer) if isinstance(pointer, str) else Binding.model_validate(value)
    return None


@lru_cache(1024)
def _make_binding(source: str, pointer: str) -> Binding:
    return Binding.model_validate({"from": source, "pointer": pointer})


def resolve_binding(binding: Binding, sources: Mapping[str, Any]) -> Any:
    """Return the value that `binding` points to in `sources` (a JSON value for each source name), or `MISSING`."""
    return resolve_pointer(sources[binding.source], binding.pointer) if binding.source in sources else MISSING


def plan_with_defaults(plan: Plan, capabilities: Mapping[str, Capability], before: Iterable[KnownStep] = ()) -> Plan:
    """Return a plan whose literal arguments have the defaults of their tools, as it is recorded and judged. A step that
    has exactly the parameters of a step of `before` which already has its defaults stays as it is.

    Raises:
        InvalidInput: as `with_defaults`.
    """
    steps, known_by_id = [], {known.step.id: known for known in before if known.parsed.has_defaults}
    for step in plan.steps:
        tool, known = capabilities.get(step.tool), known_by_id.get(step.id)
        if tool is not None and not (known and _is_same(known, step, tool)):
            params = _params_with_defaults(step, tool)
            step = step if params == step.params else step.model_copy(update={"params": params})
        steps.append(step)
    return plan if steps == [*plan.steps] else plan.model_copy(update={"steps": tuple(steps)})


def _params_with_defaults(step: PlanStep, tool: Capability) -> dict[str, Any]:
    bound = [name for name, value in step.params.items() if binding_of(value) is not None]
    return with_defaults(tool.definition.input_schema, step.params, bound)


def _is_same(known: KnownStep, step: PlanStep, tool: Capability) -> bool:
    """Return whether `step` was made from `known`: it calls the same tool with the same parameters."""
    return known.step.params is step.params and known.capability is tool


def resolve_params(
    params: Mapping[str, Any], sources: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, str], list[str]]:
    """Replace each binding in the plan arguments `params` by its value in `sources`, and fill in the defaults of the
    tool's input `schema`.

    Return (arguments, the origin of each argument by name, the names of the arguments that do not resolve yet).

    Raises:
        InvalidInput: as `with_defaults`.
    """
    parsed = _parse_params(params)
    args, missing = _resolve_params(parsed, sources)
    origins = {name: origin for name, origin in _origins(parsed).items() if name in args}
    return with_defaults(schema, args, missing), origins, missing


def parsed_steps(steps: Iterable[PlanStep], capabilities: Mapping[str, Capability]) -> tuple[ParsedStep, ...]:
    """Return the steps whose tools are registered, in their order, with their parameters parsed."""
    parsed = []
    for step in steps:
        if (tool := capabilities.get(step.tool)) is not None:
            try:
                has_defaults = _params_with_defaults(step, tool) == step.params
            except InvalidInput:
                has_defaults = False
            parsed.append(_parse_step(step, tool, has_defaults))
    return tuple(parsed)


def _parse_step(step: PlanStep, tool: Capability, has_defaults: bool) -> ParsedStep:
    params = _parse_params(step.params)
    bindings = {source for _, source, _, _ in params if source is not None}
    return ParsedStep(
        step, tool, params, _origins(params), bool(bindings), _STEP_SOURCES.isdisjoint(bindings), has_defaults
    )


def known_steps(steps: Iterable[ParsedStep], sources: Mapping[str, Any]) -> tuple[KnownStep, ...]:
    """Return these steps with the values of their arguments in `sources`."""
    known = []
    for parsed in steps:
        args, missing = _resolve_params(parsed.params, sources)
        is_filled = True
        try:
            args = with_defaults(parsed.capability.definition.input_schema, args, missing)
        except InvalidInput:  # The executor refuses the step.
            args, is_filled = with_defaults({}, args, missing), False
        origins = {name: parsed.origins[name] for name in parsed.origins if name in args} if missing else parsed.origins
        is_final = parsed.is_settled and is_filled
        known.append(KnownStep(parsed.step, parsed.capability, args, missing, origins, parsed, is_final, is_filled))
    return tuple(known)


def steps_of_plan(
    plan: Plan, capabilities: Mapping[str, Capability], sources: Mapping[str, Any], before: Iterable[KnownStep]
) -> tuple[KnownStep, ...]:
    """Return the steps of a plan that has its defaults, as `known_steps` does. `before` are steps that were resolved
    from the same sources: a step that was made from one of them takes over its arguments.
    """
    known_by_id = {known.step.id: known for known in before}
    steps: list[KnownStep] = []
    for step in plan.steps:
        tool, known = capabilities.get(step.tool), known_by_id.get(step.id)
        if known is not None and tool is not None and _is_same(known, step, tool):
            steps.append(known if known.step is step else known._replace(step=step))
        elif tool is not None:
            steps += known_steps((_parse_step(step, tool, True),), sources)
    return tuple(steps)


def _parse_params(params: Mapping[str, Any]) -> tuple[tuple[str, str | None, str, Any], ...]:
    parsed = []
    for name in sorted(params):
        binding = binding_of(params[name])
        source, pointer = (binding.source, binding.pointer) if binding else (None, "")
        parsed.append((name, source, pointer, params[name]))
    return tuple(parsed)


def _origins(parsed: Iterable[tuple[str, str | None, str, Any]]) -> dict[str, str]:
    return {name: f"{source}:{pointer}" if source else "literal" for name, source, pointer, _ in parsed}


def _resolve_params(
    parsed: Iterable[tuple[str, str | None, str, Any]], sources: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments that have a value in `sources`, and the names of the others."""
    args: dict[str, Any] = {}
    missing: list[str] = []
    for name, source, pointer, value in parsed:
        if source is not None:
            value = resolve_pointer(sources[source], pointer) if source in sources else MISSING
        if value is MISSING:
            missing.append(name)
        else:
            args[name] = value
    return args, missing
