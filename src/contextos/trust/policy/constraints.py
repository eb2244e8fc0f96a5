"""Constraints on the arguments of a call: linted when a bundle is compiled, checked on the final arguments.

Refuses a constrained argument that is absent, null or of another type, unless the constraint says `required: false`
and the argument is absent. `unless_approved` lifts `min`, `max`, `whole`, `enum` and `pattern` once the call is
approved; it never lifts `required`. Patterns are RE2: they match the whole text, in linear time.
Source: docs/design/contracts.md, "Policy" (`arg_constraints`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.pointer import MISSING, last_name, pointer
from contextos.contracts.encoding.safe_patterns import safe_pattern
from contextos.contracts.envelopes.policy import ArgConstraint
from contextos.errors import Problem

MAX_VALUES_CHARS: Final = 1_000


def check_args(
    constraints: Mapping[str, Sequence[ArgConstraint]], args: Mapping[str, Any], approved: bool
) -> tuple[Problem, ...]:
    """Check a call's arguments against the limits of policy. Returns one problem for each violation, with its
    pointer.

    All limits on an argument apply. `approved`: a person approved the call, which lifts limits with
    `unless_approved`.

    >>> limit = {"amount": (ArgConstraint(max=3000),)}
    >>> [problem.code for problem in check_args(limit, {"amount": 4000}, approved=False)]
    ['arg_above_max']
    """
    problems = list[Problem]()
    for name, bounds in constraints.items():
        at, value = pointer(("args", name)), args.get(name, MISSING)
        for bound in bounds:
            problems += _violations(bound, value, at, approved)
    return tuple(dict.fromkeys(problems))


def is_bounding(constraint: ArgConstraint) -> bool:
    """Return whether the constraint limits the argument in every case. A rule that lowers the approval mode needs
    such a constraint.
    """
    return constraint.required is not False and not constraint.unless_approved and _has_bound(constraint)


def lint_constraint(constraint: ArgConstraint, at: str) -> tuple[Problem, ...]:
    """Return what is wrong with a constraint itself, for example an empty range or a pattern that RE2 refuses."""
    problems = []
    if not _has_bound(constraint) and not constraint.whole and constraint.required is None:
        problems.append(Problem(at, "empty_constraint", "the constraint bounds nothing", "add a bound or remove it"))
    if constraint.min is not None and constraint.max is not None and constraint.min > constraint.max:
        problems.append(Problem(at, "empty_range", "`min` is above `max`", "swap them"))
    if constraint.enum is not None and not constraint.enum:
        problems.append(Problem(f"{at}/enum", "empty_enum", "an empty `enum` refuses every value", "list the values"))
    if constraint.pattern is not None and safe_pattern(constraint.pattern) is None:
        detail = "the pattern is not RE2, or too large"
        problems.append(Problem(f"{at}/pattern", "pattern_refused", detail, "use RE2 syntax without look-around"))
    return tuple(problems)


def _has_bound(constraint: ArgConstraint) -> bool:
    return any(value is not None for value in (constraint.min, constraint.max, constraint.enum, constraint.pattern))


def _violations(constraint: ArgConstraint, value: Any, at: str, approved: bool) -> list[Problem]:
    is_lifted = approved and constraint.unless_approved
    if value is MISSING or value is None:
        is_optional = constraint.required is False and value is MISSING
        if is_optional or (is_lifted and not constraint.required):
            return []
        return [Problem(at, "arg_required", f"`{last_name(at)}` is constrained but absent", "add the argument")]
    return [] if is_lifted else [*_range_violations(constraint, value, at), *_text_violations(constraint, value, at)]


def _range_violations(constraint: ArgConstraint, value: Any, at: str) -> list[Problem]:
    if constraint.min is None and constraint.max is None and not constraint.whole:
        return []
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return [Problem(at, "arg_wrong_type", f"`{last_name(at)}` is not a number", "use a number")]
    problems = []
    if constraint.whole and value % 1 != 0:
        problems.append(Problem(at, "arg_not_whole", f"`{last_name(at)}` is not a whole number", "use a whole number"))
    if constraint.min is not None and value < constraint.min:
        problems.append(
            Problem(at, "arg_below_min", f"`{last_name(at)}` is below {constraint.min}", "use a larger one")
        )
    if constraint.max is not None and value > constraint.max:
        problems.append(
            Problem(at, "arg_above_max", f"`{last_name(at)}` is above {constraint.max}", "use a smaller one")
        )
    return problems


def _text_violations(constraint: ArgConstraint, value: Any, at: str) -> list[Problem]:
    problems = []
    if constraint.enum is not None and not any(_json_equal(value, option) for option in constraint.enum):
        allowed = ", ".join(json.dumps(option) for option in constraint.enum)
        allowed = allowed if len(allowed) <= MAX_VALUES_CHARS else f"{allowed[:MAX_VALUES_CHARS]}…"
        detail = f"`{last_name(at)}` is not one of {allowed}"
        problems.append(Problem(at, "arg_not_in_enum", detail, "use one of them"))
    if constraint.pattern is None:
        return problems
    if not isinstance(value, str):
        problems.append(Problem(at, "arg_wrong_type", f"`{last_name(at)}` is not a string", "use a string"))
    elif not _matches(constraint.pattern, value):
        detail = f"`{last_name(at)}` does not match `{constraint.pattern}`"
        problems.append(Problem(at, "arg_pattern_mismatch", detail, "correct the argument"))
    return problems


def _matches(pattern: str, value: str) -> bool:
    compiled = safe_pattern(pattern)
    try:  # a pattern that lint refuses matches nothing
        return compiled is not None and compiled.fullmatch(value) is not None
    except UnicodeEncodeError:  # a lone surrogate matches nothing
        return False


def _json_equal(left: Any, right: Any) -> bool:
    """Compare as JSON: a boolean never equals a number, 1 equals 1.0, and a tuple is a list."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_json_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_json_equal(value, right[key]) for key, value in left.items())
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)
