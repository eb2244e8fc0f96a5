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
    parent, limit = _value_at(schema, rule[:-1]), _value_at(schema, rule)
    if keyword == "required" and isinstance(parent, Mapping) and isinstance(limit, list):
        target = _value_at(value, at)
        missing = [name for name in limit if not isinstance(target, Mapping) or name not in target]
        properties = parent.get("properties", {})
        return "lacks " + _join_names((f"`{name}`{_expectation(properties.get(name))}" for name in missing), " and ")
    if keyword == "enum" and isinstance(limit, list):
        return f"is not one of {_shown(limit)}"
    if keyword == "type":
        return f"is not of the type {_shown(limit if isinstance(limit, list) else [limit])}"
    if keyword in ("additionalProperties", "unevaluatedProperties") and isinstance(parent, Mapping) and limit is False:
        properties, target = parent.get("properties", {}), _value_at(value, at)
        defined = _join_names((f"`{name}`" for name in properties), ", ") or "none"
        unknown = [name for name in target if name not in properties] if isinstance(target, Mapping) else []
        similar = [f"`{similar_name}`" for name in unknown if (similar_name := nearest_name(name[:200], properties))]
        hint = f" (did you mean {_join_names(dict.fromkeys(similar), ' and ')}?)" if similar else ""
        subject = f"{len(unknown)} names that are" if len(unknown) > 1 else "a name that is"
        advice = "" if similar else "; leave out any other"
        return f"has {subject} not defined{hint}; those that are: {defined}{advice}"
    if keyword == "pattern" and isinstance(limit, str):
        return f"does not have the form{_form_shown(limit)}"
    if keyword in _LIMITS and isinstance(limit, str | int | float):
        return _LIMITS[keyword].format(_shown([limit]))
    if keyword in _OTHERS:
        return _OTHERS[keyword]
    if keyword in ("anyOf", "oneOf") and isinstance(limit, list) and all(map(_alternative, limit)):
        condition = "has to fit exactly one of" if keyword == "oneOf" else "fits none of"
        return f"{condition}: {_join_names(map(_alternative, limit), '; or ')}"
    suffix = f" ({_shown([limit])})" if isinstance(limit, str | int | float) and limit is not False else ""
    return f"does not satisfy `{'/'.join(map(str, rule)) or keyword}`{suffix}"


def _expectation(schema: Any) -> str:
    """Return what a schema expects, in parentheses: its allowed values, or its type and bounds."""
    if not isinstance(schema, Mapping):
        return ""
    if isinstance(allowed := schema.get("enum"), list):
        return f" (one of {_shown(allowed)})"
    if "const" in schema:
        return f" (only {_shown([schema['const']])})"
    bounds = {name: schema[name] for name in _BOUNDS if name in schema and schema[name] not in (MAX_COUNT, -MAX_COUNT)}
    parts = [
        f"form{_form_shown(bound)}" if name == "pattern" else f"{name} {_shown([bound])}"
        for name, bound in bounds.items()
    ]
    kind = schema.get("type")
    kinds = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind) if kind else ""
    return f" ({', '.join([kinds, *parts] if kinds else parts)})" if kinds or parts else ""


def _alternative(branch: Any) -> str:
    """Return what one of several alternatives expects, with its required members; empty if it states nothing."""
    if not isinstance(branch, Mapping):
        return ""
    properties, required = branch.get("properties", {}), branch.get("required", ())
    members = [f"`{name}`{_expectation(properties.get(name))}" for name in required]
    kind = _expectation(branch).removeprefix(" (").removesuffix(")")
    return (f"{kind or 'an object'} with " if members else kind) + " and ".join(members)


def _form_shown(pattern: str) -> str:
    example = pattern_example(pattern)
    return f" `{_shorten(pattern)}`" + (f", such as `{example}`" if example else "")


def in_words(place: Sequence[str | int]) -> str:
    """Return a place in the arguments of a call, in words.

    >>> in_words(["lines", 0, "price"])
    '`price` of entry 1 of `lines`'
    """
    return " of ".join(f"entry {part + 1}" if isinstance(part, int) else f"`{part[:80]}`" for part in reversed(place))


def _shown(values: Iterable[Any]) -> str:
    return _join_names((_shorten(canonical(value).decode()) for value in values), ", ")


def _join_names(names: Iterable[str], joint: str) -> str:
    texts = [_shorten(name) if len(name) > 8 * MAX_VALUE_SHOWN_CHARS else name for name in names]
    suffix = f"{joint}{len(texts) - MAX_ALTERNATIVES_SHOWN} more" if len(texts) > MAX_ALTERNATIVES_SHOWN else ""
    return joint.join(texts[:MAX_ALTERNATIVES_SHOWN]) + suffix


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_VALUE_SHOWN_CHARS else text[:MAX_VALUE_SHOWN_CHARS] + "…"


def _value_at(document: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path, or None if the path does not lead to one, as where it passes through a `$ref`."""
    for part in path:
        if isinstance(document, Mapping):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int) and 0 <= part < len(document):
            document = document[part]
        else:
            return None
    return document
