"""Describe how a value breaks a rule of a schema: the rule, and what the schema expects instead.

A description repeats only the schema, and never the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.safe_patterns import pattern_example
from contextos.contracts.facts import nearest_name
from contextos.contracts.model import MAX_COUNT

MAX_ALTERNATIVES_SHOWN: Final = 20
"""The most names, or allowed values, that are listed."""
MAX_VALUE_SHOWN_CHARS: Final = 60
_BOUNDS: Final = ("format", "pattern", "minimum", "maximum", "minLength", "maxLength")
_LIMITS: Final = {
    "minimum": "is below {}, the least that is allowed",
    "maximum": "is above {}, the most that is allowed",
    "exclusiveMinimum": "has to be above {}",
    "exclusiveMaximum": "has to be below {}",
    "minLength": "is shorter than {} characters",
    "maxLength": "is longer than {} characters",
    "minItems": "has fewer than {} entries",
    "maxItems": "has more than {} entries",
    "minProperties": "has fewer than {} members",
    "maxProperties": "has more than {} members",
    "multipleOf": "is no multiple of {}",
    "format": "does not have the format {}",
    "const": "can only be {}",
}
_OTHERS: Final = {"uniqueItems": "has an entry twice", "not": "is a value that its schema excludes"}


def broken_rule(schema: Any, rule: Sequence[str | int], value: Any, at: Sequence[str | int]) -> str:
    """Return what is wrong with `value` at the place `at`, which breaks the rule of `schema` at the path `rule`.

    >>> pick = {"properties": {"size": {"enum": ["s", "m"]}, "n": {"type": "integer"}}, "required": ["size", "n"]}
    >>> broken_rule(pick, ["required"], {"n": 1}, [])
    'lacks `size` (one of "s", "m")'
    >>> broken_rule(pick, ["properties", "n", "type"], {"n": "x"}, ["n"])
    'is not of the type "integer"'
    """
    keyword = str(rule[-1]) if rule else "schema"
    holder, stated = _found(schema, rule[:-1]), _found(schema, rule)
    if keyword == "required" and isinstance(holder, Mapping) and isinstance(stated, list):
        given = _found(value, at)
        lacking = [name for name in stated if not isinstance(given, Mapping) or name not in given]
        named = holder.get("properties", {})
        return "lacks " + _listed((f"`{name}`{_expected(named.get(name))}" for name in lacking), " and ")
    if keyword == "enum" and isinstance(stated, list):
        return f"is not one of {_values(stated)}"
    if keyword == "type":
        return f"is not of the type {_values(stated if isinstance(stated, list) else [stated])}"
    if keyword in ("additionalProperties", "unevaluatedProperties") and isinstance(holder, Mapping) and stated is False:
        known, given = holder.get("properties", {}), _found(value, at)
        named = _listed((f"`{name}`" for name in known), ", ") or "none"
        unknown = [name for name in given if name not in known] if isinstance(given, Mapping) else []
        near = [one for name in unknown if (one := nearest_name(name[:200], known))]
        meant = f" (did you mean {_listed((f'`{one}`' for one in dict.fromkeys(near)), ' and ')}?)" if near else ""
        names = f"{len(unknown)} names that are" if len(unknown) > 1 else "a name that is"
        return f"has {names} not defined{meant}; those that are: {named}" + ("" if near else "; leave out any other")
    if keyword == "pattern" and isinstance(stated, str):
        return f"does not have the form{_form(stated)}"
    if keyword in _LIMITS and isinstance(stated, str | int | float):
        return _LIMITS[keyword].format(_values([stated]))
    if keyword in _OTHERS:
        return _OTHERS[keyword]
    if keyword in ("anyOf", "oneOf") and isinstance(stated, list) and all(map(_wanted, stated)):
        how = "has to fit exactly one of" if keyword == "oneOf" else "fits none of"
        return f"{how}: {_listed(map(_wanted, stated), '; or ')}"
    shown = f" ({_values([stated])})" if isinstance(stated, str | int | float) and stated is not False else ""
    return f"does not satisfy `{'/'.join(map(str, rule)) or keyword}`{shown}"


def _expected(schema: Any) -> str:
    """Return what a schema expects, in parentheses: its allowed values, or its type and bounds."""
    if not isinstance(schema, Mapping):
        return ""
    if isinstance(allowed := schema.get("enum"), list):
        return f" (one of {_values(allowed)})"
    if "const" in schema:
        return f" (only {_values([schema['const']])})"
    bounds = {name: schema[name] for name in _BOUNDS if name in schema and schema[name] not in (MAX_COUNT, -MAX_COUNT)}
    parts = [
        f"form{_form(bound)}" if name == "pattern" else f"{name} {_values([bound])}" for name, bound in bounds.items()
    ]
    kind = schema.get("type")
    kinds = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind) if kind else ""
    return f" ({', '.join([kinds, *parts] if kinds else parts)})" if kinds or parts else ""


def _wanted(branch: Any) -> str:
    """Return what one of several alternatives expects, with its required members; empty if it states nothing."""
    if not isinstance(branch, Mapping):
        return ""
    named, needed = branch.get("properties", {}), branch.get("required", ())
    members = [f"`{name}`{_expected(named.get(name))}" for name in needed]
    kind = _expected(branch).removeprefix(" (").removesuffix(")")
    return (f"{kind or 'an object'} with " if members else kind) + " and ".join(members)


def _form(pattern: str) -> str:
    example = pattern_example(pattern)
    return f" `{_short(pattern)}`" + (f", such as `{example}`" if example else "")


def in_words(place: Sequence[str | int]) -> str:
    """Return a place in the arguments of a call, in words.

    >>> in_words(["lines", 0, "price"])
    '`price` of entry 1 of `lines`'
    """
    return " of ".join(f"entry {one + 1}" if isinstance(one, int) else f"`{one[:80]}`" for one in reversed(place))


def _values(values: Iterable[Any]) -> str:
    return _listed((_short(canonical(one).decode()) for one in values), ", ")


def _listed(names: Iterable[str], joint: str) -> str:
    every = [_short(name) if len(name) > 8 * MAX_VALUE_SHOWN_CHARS else name for name in names]
    more = f"{joint}{len(every) - MAX_ALTERNATIVES_SHOWN} more" if len(every) > MAX_ALTERNATIVES_SHOWN else ""
    return joint.join(every[:MAX_ALTERNATIVES_SHOWN]) + more


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE_SHOWN_CHARS else text[:MAX_VALUE_SHOWN_CHARS] + "…"


def _found(document: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path, or None if the path does not lead to one, as where it passes through a `$ref`."""
    for part in path:
        if isinstance(document, Mapping):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int) and 0 <= part < len(document):
            document = document[part]
        else:
            return None
    return document
