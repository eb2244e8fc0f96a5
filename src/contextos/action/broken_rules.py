"""What is said of a value that breaks a rule of a schema: the rule, and what the schema expects instead.

Only the schema is repeated, and never the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.model import MAX_COUNT

MAX_ALTERNATIVES_SHOWN: Final = 20
"""Most names, or allowed values, that are listed."""
MAX_VALUE_SHOWN_CHARS: Final = 60
_BOUNDS: Final = ("format", "minimum", "maximum", "minLength", "maxLength")


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
    if keyword == "additionalProperties" and isinstance(holder, Mapping) and stated is False:
        named = _listed((f"`{name}`" for name in holder.get("properties", {})), ", ") or "none"
        return f"has a member that is not defined; those that are: {named}"
    shown = f" ({_values([stated])})" if isinstance(stated, str | int | float) and stated is not False else ""
    return f"does not satisfy `{'/'.join(map(str, rule)) or keyword}`{shown}"


def _expected(schema: Any) -> str:
    """What a schema expects: its allowed values, or its type and bounds."""
    if not isinstance(schema, Mapping):
        return ""
    if isinstance(allowed := schema.get("enum"), list):
        return f" (one of {_values(allowed)})"
    if "const" in schema:
        return f" (only {_values([schema['const']])})"
    bounds = {name: schema[name] for name in _BOUNDS if name in schema and schema[name] not in (MAX_COUNT, -MAX_COUNT)}
    parts = [f"{name} {_values([bound])}" for name, bound in bounds.items()]
    kind = schema.get("type")
    kinds = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind) if kind else ""
    return f" ({', '.join([kinds, *parts] if kinds else parts)})" if kinds or parts else ""


def _values(values: Iterable[Any]) -> str:
    return _listed((_short(canonical(one).decode()) for one in values), ", ")


def _listed(names: Iterable[str], joint: str) -> str:
    every = [_short(name) if len(name) > 8 * MAX_VALUE_SHOWN_CHARS else name for name in names]
    more = f"{joint}{len(every) - MAX_ALTERNATIVES_SHOWN} more" if len(every) > MAX_ALTERNATIVES_SHOWN else ""
    return joint.join(every[:MAX_ALTERNATIVES_SHOWN]) + more


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE_SHOWN_CHARS else text[:MAX_VALUE_SHOWN_CHARS] + "…"


def _found(document: Any, path: Sequence[str | int]) -> Any:
    """What a path leads to, or None: a schema can refer to another place, which its path does not say."""
    for part in path:
        if isinstance(document, Mapping):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int) and 0 <= part < len(document):
            document = document[part]
        else:
            return None
    return document
