"""Lints limits: finds arguments that rules leave open where nobody is asked, and sums that cannot add up.

Only `contextos pack lint` and its equivalents check this: a bundle with an open side is still valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.jcs import MAX_INT, same_json
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.pack import ContextPack, Permission
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ArgConstraint, PolicyBundle, Rule
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.control.lint.graph import PointerPath
from contextos.errors import Problem

Limits = Mapping[str, Sequence[ArgConstraint]]

_AGREES: Final = ArgConstraint(required=False)
_SCHEMA_SIDES: Final = {"min": ("minimum", "exclusiveMinimum"), "max": ("maximum", "exclusiveMaximum")}


def permitted_limits(pack: ContextPack) -> dict[str, list[Limits]]:
    """Return the limits on arguments that the permissions of a pack state: by tool, one mapping by argument for each
    role that can use the tool. An argument that has to agree with the request has a limit without bounds.
    """
    by_role: dict[str, dict[str, list[Permission]]] = {}
    for permission in pack.tooling_layer.permissions:
        tool_roles = by_role.setdefault(f"{permission.adapter_id}.{permission.capability}", {})
        for role in permission.roles:
            tool_roles.setdefault(role, []).append(permission)
    return {
        tool: [_limits(permissions) for permissions in roles.values() if all(item.allow for item in permissions)]
        for tool, roles in by_role.items()
    }


def _limits(permissions: Iterable[Permission]) -> Limits:
    limits: dict[str, list[ArgConstraint]] = {}
    for item in permissions:
        for argument, limit in (*item.arg_constraints.items(), *dict.fromkeys(item.agrees_with, _AGREES).items()):
            limits.setdefault(argument, []).append(limit)
    return limits


def lint_bounds(
    bundle: PolicyBundle, tools: Mapping[str, CapabilityDefinition], permitted: Mapping[str, Sequence[Limits]]
) -> Iterator[Problem]:
    """Yield a problem for each argument that the rules of a bundle leave open where they ask nobody, and for each sum
    that cannot add up. `permitted` are the limits of permissions, as `permitted_limits` returns them. An argument that
    is open for one role is open.
    """
    problems = dict[Problem, None]()
    for index, rule in enumerate(bundle.policy_dsl.rules):
        target = rule.applies_to.capability
        path: PointerPath = ("policy_dsl", "rules", index, "then", "arg_constraints")
        for tool in tools.values() if target is None else [tools[target]] if target in tools else ():
            problems |= dict.fromkeys(_lint_defaults(rule.condition, tool, ("policy_dsl", "rules", index, "if")))
            for limits in permitted.get(target, ()) or ({},) if target is not None and asks_nobody(rule, tool) else ():
                problems |= dict.fromkeys(_lint_arguments(rule, tool, limits, path))
    for name, fact in bundle.history.items():
        for tool_id, count in fact.counted().items():
            if count.of is not None and tool_id in tools:
                path = ("history", name, *(("of",) if tool_id == fact.capability else ("also", tool_id)))
                for limits in permitted.get(tool_id, ()) or ({},):
                    problems |= dict.fromkeys(_lint_sum(count.of, tools[tool_id], limits.get(count.of, ()), path))
    yield from problems


def asks_nobody(rule: Rule, tool: CapabilityDefinition) -> bool:
    """Return whether a rule allows calls without asking anybody, although the definition of the tool asks."""
    then = rule.then
    lowers_mode = then.approval_mode is not None and APPROVAL_MODES.index(then.approval_mode) < APPROVAL_MODES.index(
        tool.approval_mode
    )
    return then.allow and lowers_mode and then.requires_approval_gate is None


def _lint_arguments(rule: Rule, tool: CapabilityDefinition, permitted: Limits, path: PointerPath) -> Iterator[Problem]:
    read_arguments = set(_read_arguments(rule.condition))
    for argument, schema in tool.input_schema.get("properties", {}).items():
        bound = rule.then.arg_constraints.get(argument)
        limits = [*([bound] if bound is not None else []), *permitted.get(argument, ())]
        if not limits and argument not in read_arguments and argument not in tool.secrets:
            detail = f"nobody is asked about the call, whatever `{argument}` of `{tool.name}` is"
            yield Problem(pointer(path), "argument_open", detail, f"bound it, or {_FREE}")
        elif bound is not None and _allows_all(bound, schema):
            detail = f"the bound of `{argument}` allows every value that `{tool.name}` takes"
            yield Problem(pointer((*path, argument)), "bounds_nothing", detail, f"leave a value out, or {_FREE}")
        elif bound is not None and bound.enum is None:
            for side, other in (("min", "max"), ("max", "min")):
                if getattr(bound, other) is not None and not _has_bound(side, limits, schema):
                    detail = f"nobody is asked about the call, whatever `{argument}` is {_BEYOND[side]}"
                    yield Problem(pointer((*path, argument)), "one_sided", detail, f"add `{side}`")


_FREE: Final = "say that it is free: `any: true` in `bounds`, or `required: false` in a rule"
_BEYOND: Final = {"min": "below that, such as a negative number", "max": "above that"}


def _has_bound(side: str, limits: Sequence[ArgConstraint], schema: Any) -> bool:
    """Return whether a limit or the schema of the argument bounds it on this side."""
    values = [schema.get(name) for name in _SCHEMA_SIDES[side]] if isinstance(schema, Mapping) else []
    # A bound of +-MAX_INT or beyond, as every integer in the schema of a Python function has, is not a limit.
    in_schema = any(isinstance(value, int | float) and abs(value) < MAX_INT for value in values)
    return in_schema or any(getattr(limit, side) is not None or limit.enum is not None for limit in limits)


def _allows_all(limit: ArgConstraint, schema: Any) -> bool:
    """Return whether a limit excludes no value that the schema of the argument allows."""
    if not isinstance(schema, Mapping) or limit.pattern is not None:
        return False
    if limit.enum is not None:
        values = _listed_values(schema)
        return values is not None and all(any(same_json(value, allowed) for allowed in limit.enum) for value in values)
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    covers_min = limit.min is None or (minimum is not None and limit.min <= minimum)
    covers_max = limit.max is None or (maximum is not None and limit.max >= maximum)
    return covers_min and covers_max and (limit.min, limit.max) != (None, None)


def _listed_values(schema: Any) -> list[Any] | None:
    """Return the values that a schema lists, or None if it does not list its values. A possible null is not listed."""
    parts = schema.get("anyOf", schema.get("oneOf"))
    if parts is not None:
        lists = [_listed_values(part) for part in parts if part != {"type": "null"}]
        return None if None in lists else [value for values in lists for value in values or ()]
    if schema.get("type") in ("boolean", ["boolean", "null"]):
        return [False, True]
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _read_arguments(node: Any) -> Iterator[str]:
    """Yield the arguments that a condition reads, except below `!`: an excluded value does not limit the others."""
    if isinstance(node, Mapping) and node.keys() == {"!"}:
        return
    if isinstance(node, str) and node.startswith("args."):
        yield node.split(".")[1]
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list | tuple) else ():
        yield from _read_arguments(child)


def _lint_defaults(node: Any, tool: CapabilityDefinition, path: PointerPath) -> Iterator[Problem]:
    """Yield a problem for each default of a missing argument in a condition that is not the default of the tool."""
    read = node["var"] if isinstance(node, Mapping) and node.keys() == {"var"} else None
    if isinstance(read, list | tuple) and len(read) == 2 and str(read[0]).startswith("args."):
        name = read[0].split(".")[1]
        schema = tool.input_schema.get("properties", {}).get(name)
        if isinstance(schema, Mapping) and name not in tool.input_schema.get("required", ()):
            if "default" not in schema:
                detail = (
                    f"the rule takes `{read[1]}` where `{name}` is missing; `{tool.name}` does not say what it does"
                )
                remedy = "state `default` in the input schema, or list it in `required`"
                yield Problem(pointer(path), "unknown_default", detail, remedy)
            elif not same_json(schema["default"], read[1]):
                default = "null" if schema["default"] is None else schema["default"]
                detail = f"`{tool.name}` takes `{default}` where `{name}` is missing, and the rule takes `{read[1]}`"
                yield Problem(pointer(path), "other_default", detail, f"write `{default}` as its default")
    children = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list | tuple) else ()
    for key, child in children:
        yield from _lint_defaults(child, tool, (*path, key))


def _lint_sum(
    argument: str, tool: CapabilityDefinition, limits: Sequence[ArgConstraint], path: PointerPath
) -> Iterator[Problem]:
    schema = tool.input_schema.get("properties", {}).get(argument)
    if argument not in tool.input_schema.get("required", ()) and all(limit.required is False for limit in limits):
        detail = f"`{tool.name}` can be called without `{argument}`, and no sum adds up what is missing"
        yield Problem(
            pointer(path), "sum_of_optional", detail, "list it in `required` of the input schema, or bound it"
        )
    minimums = [limit.min for limit in limits] + [(schema or {}).get(name) for name in _SCHEMA_SIDES["min"]]
    if not any(minimum is not None and minimum >= 0 for minimum in minimums):
        detail = f"`{argument}` of `{tool.name}` can be negative, and a negative number would make room in the sum"
        remedy = "write `minimum: 0` in the input schema, or `min: 0` in its permission"
        yield Problem(pointer(path), "sum_of_negative", detail, remedy)
