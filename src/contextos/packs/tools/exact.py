"""Refuses types that change the JSON of an argument, and checks that a function receives exactly the recorded values.

Rules, the question to a person and the record see the JSON of a call. A type that makes another value of it (a stripped
text, a normalised path, a default of a factory) is refused when the tool is defined. The check before each call finds
the remaining changes, for example by a method of the type; then the function is not called.
Source: docs/adr/0059-arguments-have-one-form.md.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel, RootModel, SecretStr, TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from contextos.adapters.function.adapter import BusinessError
from contextos.contracts.encoding.defaults import with_defaults
from contextos.contracts.encoding.jcs import same_json
from contextos.contracts.encoding.pointer import MISSING
from contextos.errors import MalformedJson
from contextos.packs.tools.schemas import refuse_tool

CHANGED: Final = "arguments_changed"
"""The code of a call that was not made because the tool reads another value than the recorded one."""

_EXACT_TYPES: Final = ("any", "bool", "date", "datetime", "enum", "float", "int", "literal", "none", "time", "uuid")
_INNER_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "definitions": ("schema", "definitions"),
    "dict": ("keys_schema", "values_schema"),
    "json-or-python": ("json_schema",),
    "lax-or-strict": ("strict_schema",),
    "list": ("items_schema",),
    "nullable": ("schema",),
    "tuple": ("items_schema",),
    "union": ("choices",),
    "tagged-union": ("choices",),
    "chain": ("steps",),
    "typed-dict": ("fields",),
    "model-fields": ("fields",),
    "dataclass-args": ("fields",),
    "model": ("schema",),
    "dataclass": ("schema",),
    "typed-dict-field": ("schema",),
    "model-field": ("schema",),
    "dataclass-field": ("schema",),
    "default": ("schema",),
    "str": (),
    "definition-ref": (),
    "function-after": ("schema",),
    **dict.fromkeys(_EXACT_TYPES, ()),
}
"""The types of pydantic's core that keep a value, each with the keys under which its inner types are."""

_TEXT_TYPES: Final = frozenset({"str", "date", "datetime", "time", "uuid"})
"""Types that are texts in JSON. If a union has two of them, nobody can say which type a text has."""

_IN_PLACE: Final = ("chain", "default", "function-after", "json-or-python", "lax-or-strict", "nullable", "union")
_KEY_TYPES: Final = frozenset({"any", "str", "literal", "enum"})
_REMEDIES: Final[Mapping[str, str]] = {
    "bytes": "use `str`, and encode it in the function",
    "decimal": "use `int` for the smallest unit, such as cents, or `str`",
    "frozenset": "use `list`, and make the set in the function",
    "set": "use `list`, and make the set in the function",
    "timedelta": "use `int` for the seconds",
    "url": "use `str`, and read the URL in the function",
    "json": "use the type itself, without `Json`",
}
_PLAIN_REMEDY: Final = "use `str` or another JSON type, and convert or check it in the function"
_TEXT_CHANGES: Final = ("strip_whitespace", "to_lower", "to_upper")
_CHECK_MODULES: Final = ("pydantic._internal._validators", "pydantic._internal._known_annotated_metadata")
"""The modules of pydantic's constraints, which check a value and return it unchanged."""


def refuse_inexact(adapter: TypeAdapter[Any], name: str, at: tuple[str, ...]) -> None:
    """Refuse an argument's type that can change the value in the JSON. `name` and `at` name the argument in errors.

    Raises:
        InvalidTool: says which part of the type changes the value, and what to write.
    """
    queue: list[tuple[Any, tuple[str, ...]]] = [(adapter.core_schema, at)]
    for node, path in queue:  # grows while it is walked
        if fault := _fault(node):
            detail, remedy = fault
            refuse_tool(name, "changes_value", path, f"the type of `{'.'.join(path)}` {detail}", remedy)
        queue += [(inner, (*path, *step)) for inner, step in _inner_types(node)]


def _inner_types(node: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], tuple[str, ...]]]:
    for member in _INNER_KEYS[node["type"]]:
        value = node.get(member)
        if isinstance(value, Mapping) and "type" not in value:
            yield from ((field, (name,) if member == "fields" else ()) for name, field in value.items())
        elif isinstance(value, Mapping):
            yield value, ()
        else:
            for item in value or ():
                # A choice of a union can have a label; fields of a dataclass have names of their own.
                item = item[0] if isinstance(item, tuple) else item
                yield item, (item["name"],) if member == "fields" else ()


def _fault(node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return how a part of a type changes a value, and the remedy; None if it keeps the value."""
    kind = node["type"]
    if kind.startswith("function-") and not (kind == "function-after" and _keeps_value(node)):
        validator = getattr(node["function"]["function"], "__qualname__", "a function")
        return f"has a validator (`{validator[:80]}`), which can change the value after it was judged", _PLAIN_REMEDY
    if kind not in _INNER_KEYS:
        return f"is a `{kind}`, which can be another value than the JSON", _REMEDIES.get(kind, _PLAIN_REMEDY)
    config = node.get("config") or {}
    if any(node.get(change) or config.get(f"str_{change}") for change in _TEXT_CHANGES):
        remedy = "remove that, and state a `pattern`, or do it in the function"
        return "strips a text or changes its case, after it was judged", remedy
    if kind == "dict" and node.get("keys_schema", {"type": "str"})["type"] not in _KEY_TYPES:
        return "has keys that are not texts, and JSON has others", "use `dict[str, ...]`"
    if kind == "default":
        return _default_fault(node)
    if node.get("tz_constraint") == "naive":
        return "takes no time zone, and a time in JSON has one", "use `datetime`, and remove its zone in the function"
    if kind == "union" and len(_text_types(node)) > 1:
        return "has alternatives that the same text fits", "use `str`, and read it in the function"
    if kind == "literal" and any(isinstance(val, Enum) and not isinstance(val, str | int) for val in node["expected"]):
        return "is a literal of an enumeration, which no JSON is", "write its value, such as `Literal['red']`"
    if node.get("custom_init") or node.get("post_init"):
        made_by = "`__init__`, `__post_init__`, `model_post_init` or private attribute"
        return f"has an {made_by}, which can change the value", _PLAIN_REMEDY
    if node.get("init") is False or node.get("init_only"):
        return "has a field that a caller does not give, or that is not kept", "make it in the function"
    if not isinstance(node.get("validation_alias", ""), str) or (
        kind != "model-field" and node.get("validation_alias") is not None
    ):
        return "has a field of several names", "give it one name, by `Field(alias=...)` of a model"
    return None


def _text_types(node: Mapping[str, Any]) -> frozenset[str]:
    """Return the types of `_TEXT_TYPES` that a value in the place of `node` can be."""
    if node["type"] in _IN_PLACE:
        return frozenset().union(*(_text_types(inner) for inner, _ in _inner_types(node)))
    return _TEXT_TYPES & {node["type"]}


def _default_fault(node: Mapping[str, Any]) -> tuple[str, str] | None:
    if "default_factory" in node or node.get("on_error", "raise") != "raise":
        detail = "has a default that is made during the call, so that nobody can judge it before"
        return detail, "state the default itself (in a dataclass a tuple or None), or make the value in the function"
    try:
        to_jsonable_python(node.get("default"))
    except PydanticSerializationError:
        return "has a default that JSON does not have", "use None, and make the value in the function"
    return None


def _keeps_value(node: Mapping[str, Any]) -> bool:
    """Return whether the function at the end of a type returns its input as JSON: a check, or an enumeration."""
    function = node["function"]["function"]
    if isinstance(function, attrgetter):
        return bool(node["schema"]["type"] == "enum") and function.__reduce__()[1] == ("value",)
    plain = function.func if isinstance(function, functools.partial) else function
    return getattr(plain, "__module__", None) in _CHECK_MODULES


def refuse_unseen_parameters(
    function: Callable[..., Any], schema: Mapping[str, Any], name: str, supplied: Collection[str] = ()
) -> None:
    """Refuse a function with a parameter that is not in `schema` (its arguments as a model sees them), or whose default
    is not stated there. `supplied` are the parameters that a framework fills in.

    Raises:
        InvalidTool: names the parameter.
    """
    known_names = with_defaults(schema, {}).keys() | schema.get("required", ())
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in supplied or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name not in schema.get("properties", {}):
            detail, remedy = "is not in the schema of its arguments", "name it there, or remove it from the function"
        elif parameter.default is not parameter.empty and parameter.name not in known_names:
            detail, remedy = "has a default that its schema does not have", "state the same `default` in the schema"
        else:
            continue
        refuse_tool(name, "unseen_parameter", (parameter.name,), f"the parameter `{parameter.name}` {detail}", remedy)


def exactly(
    function: Callable[..., Any], given: Mapping[str, Any], supplied: Collection[str] = ()
) -> Callable[..., Any]:
    """Return `function` for one call, which runs it only if it would receive `given`, its own defaults included.

    Raises, when it is called:
        BusinessError: as `refuse_changed`; or the arguments are not those of the function.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BusinessError("invalid_arguments", str(error)) from None
        bound.apply_defaults()
        received: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                received |= value
            elif name not in supplied and (value or kind is not inspect.Parameter.VAR_POSITIONAL):
                received[name] = value
        refuse_changed(given, received)
        return function(*args, **kwargs)

    return called


def refuse_changed(given: Mapping[str, Any], received: Any) -> None:
    """Refuse a call whose function would receive other values than those that were judged and recorded.

    Raises:
        BusinessError: the function has not run; names the argument.
    """
    actual = as_json(received)
    names = sorted(given.keys() | actual.keys()) if isinstance(actual, dict) else ["arguments"]
    for name in names:
        try:
            same = same_json(given.get(name, MISSING), actual.get(name, MISSING)) if isinstance(actual, dict) else False
        except MalformedJson:
            same = False
        if not same:
            detail = f"it would get another value of the argument `{name[:80]}` than the one that was judged"
            raise BusinessError(CHANGED, f"{detail}; it was not called. Use a JSON type, and convert in the function")


def as_json(value: Any) -> Any:
    """Return a value that a function received as JSON of the same meaning: models and dataclasses by fields."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, datetime | time):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, RootModel):
        return as_json(value.root)
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        result = {str(field.validation_alias or name): as_json(getattr(value, name)) for name, field in fields}
        return result | {name: as_json(extra) for name, extra in (value.model_extra or {}).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {as_json(name): as_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(item) for item in value]
    return value
