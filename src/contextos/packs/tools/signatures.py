"""Reads the signature of a function: its arguments, the dependencies that the runtime supplies, and what it returns.

A parameter that is annotated with exactly `Key` or `CallContext` is a dependency; it never reaches a schema. A
parameter of the type `SecretStr` is a secret argument.
Refuses `*args`, positional-only parameters, missing hints, mutable defaults and a missing return type.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from contextos.contracts.encoding.codec import own_copy
from contextos.contracts.encoding.jcs import canonical, same_json
from contextos.contracts.envelopes.tool import CallContext
from contextos.errors import MalformedJson, Problem
from contextos.packs.tools.exact import as_json, refuse_inexact
from contextos.packs.tools.schemas import ARGUMENT_BOUNDS, OUTPUT_BOUNDS, refuse_tool, schema_of

_NAME_EACH: Final = "name each argument, such as `count: int`; for several of one kind take `rows: list[str]`"
RESULT: Final = "result"
"""The property that holds a returned value that is not an object."""

_IMMUTABLE: Final = (type(None), bool, int, float, str, enum.Enum, date, time, UUID)


class Key(str):
    """Annotates a parameter that receives the idempotency key of a write. Pass it on to the system that is called."""

    __slots__ = ()


_DEPENDENCIES: Final = (Key, CallContext)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its type, and its JSON Schema. If not `required`, the schema has the default that the runtime fills
    in. `secret`: its value is recorded nowhere.
    """

    adapter: TypeAdapter[Any]
    schema: dict[str, Any]
    required: bool
    secret: bool = False


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """The arguments by name, the dependencies by parameter, the returned type and the JSON Schema of the output.

    `wrapped`: the returned value is not an object, so the output holds it as `result`. `takes_self`: the function is a
    method, whose first parameter is not in `arguments`.
    """

    arguments: dict[str, Argument]
    dependencies: dict[str, type]
    returned: TypeAdapter[Any]
    output_schema: dict[str, Any]
    wrapped: bool
    takes_self: bool

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments: a closed object."""
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [name for name, argument in self.arguments.items() if argument.required],
            "properties": {name: argument.schema for name, argument in self.arguments.items()},
        }


def read_signature(function: Callable[..., Any], name: str) -> ToolSignature:
    """Return the signature of a function, or refuse it. `name` is the tool's name in errors.

    Raises:
        InvalidTool: nothing safe can be derived; says what to write.
    """
    hints = resolved_hints(function, name)
    parameters = list(inspect.signature(function).parameters.values())
    takes_self = bool(parameters) and parameters[0].name == "self" and "self" not in hints
    arguments: dict[str, Argument] = {}
    dependencies: dict[str, type] = {}
    for parameter in parameters[takes_self:]:
        label = f"argument `{parameter.name}`"
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            refuse_tool(name, "open_arguments", (parameter.name,), f"{label} takes anything", _NAME_EACH)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            refuse_tool(name, "positional", (parameter.name,), f"{label} has no name in a call", "remove the `/`")
        if parameter.name not in hints:
            remedy = f"write one, such as `{parameter.name}: str`"
            refuse_tool(name, "no_hint", (parameter.name,), f"{label} has no type hint", remedy)
        hint = hints[parameter.name]
        if hint in _DEPENDENCIES:
            dependencies[parameter.name] = hint
        else:
            arguments[parameter.name] = _read_argument(parameter, hint, name)
    return_type, schema, wrapped = read_return(hints, name)
    return ToolSignature(arguments, dependencies, return_type, schema, wrapped, takes_self)


def resolved_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the type hints of a function, each resolved. Raises `InvalidTool` if a hint names an unknown type."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        remedy = "import the type, or define it at the top of the module, above the function"
        refuse_tool(name, "unresolved_hint", (), f"a type hint cannot be resolved: {str(error)[:200]}", remedy)


def adapted(hint: Any, name: str, at: str) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a type. Raises `InvalidTool` if it has none."""
    place = (at.removeprefix("argument ").strip("`"),)
    try:
        adapter = TypeAdapter(hint)
        if adapter.pydantic_complete:
            return adapter
        remedy = "define every type that it uses at the top of the module, above the function"
        refuse_tool(name, "unresolved_hint", place, f"the type of {at} names a type that is not known yet", remedy)
    except PydanticUserError as error:
        reason = str(error).partition("\n")[0].partition(". Set `arbitrary")[0][:200]
        remedy = "use JSON types, a pydantic model, a dataclass or a TypedDict"
        if hint == Key | None or hint == CallContext | None:
            remedy = "annotate it with exactly `contextos.Key` or `contextos.CallContext`"
        refuse_tool(name, "no_schema", place, f"the type of {at} is not known here: {reason}", remedy)


def _read_argument(parameter: inspect.Parameter, hint: Any, name: str) -> Argument:
    label = f"argument `{parameter.name}`"
    if parameter.name == "idempotency_key":
        remedy = "take `key: contextos.Key`, which the runtime supplies"
        refuse_tool(name, "reserved", (parameter.name,), f"{label} has a reserved name", remedy)
    adapter = adapted(hint, name, label)
    default, secret = parameter.default, _is_secret(hint)
    # The type of a secret only hides its value; in JSON it is a text with the same bounds.
    json_adapter = adapted(_text_type(hint), name, label) if secret else adapter
    schema = schema_of(json_adapter, "validation", ARGUMENT_BOUNDS, tool=name, at=("arguments", parameter.name))
    refuse_inexact(json_adapter, name, (parameter.name,))
    if default is inspect.Parameter.empty:
        return Argument(adapter, schema, required=True, secret=secret)
    if secret:
        refuse_tool(
            name, "secret_default", (parameter.name,), f"{label} is secret and has a default", "remove the default"
        )
    if isinstance(default, FieldInfo):
        remedy = f"write `{parameter.name}: Annotated[..., Field(...)] = ` and the default itself"
        refuse_tool(name, "wrong_default", (parameter.name,), f"the default of {label} is a `Field`", remedy)
    if not _is_immutable(default):
        remedy = "use None or a tuple, or freeze the model or dataclass; or make the value in the function"
        refuse_tool(name, "mutable_default", (parameter.name,), f"the default of {label} can change", remedy)
    try:
        default_json = own_copy(as_json(default))
        parsed = adapter.validate_json(canonical(default_json), strict=True)
        if not same_json(as_json(parsed), default_json):
            raise MalformedJson(Problem("", "changed", "it is read as another value", "state that one"))
    except (ValidationError, MalformedJson, PydanticUserError):
        kind = inspect.formatannotation(hint)
        remedy = f"correct the default: give one of the type `{kind}`, or another type"
        if default is None:
            remedy = f"write `{parameter.name}: {kind} | None = None`, or leave the default out"
        refuse_tool(name, "wrong_default", (parameter.name,), f"the default of {label} is not of its type", remedy)
    return Argument(adapter, {**schema, "default": default_json}, required=False)


def _is_secret(hint: Any) -> bool:
    """Return whether a type hint is `SecretStr`, alone or with annotations such as a length."""
    return hint is SecretStr or (typing.get_origin(hint) is typing.Annotated and hint.__origin__ is SecretStr)


def _text_type(hint: Any) -> Any:
    return str if hint is SecretStr else typing.Annotated[str, *hint.__metadata__]


def _is_immutable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_immutable, value))
    if isinstance(value, BaseModel) and value.model_config.get("frozen"):
        return all(map(_is_immutable, vars(value).values()))
    if dataclasses.is_dataclass(value) and getattr(value, "__dataclass_params__").frozen:  # noqa: B009 - mypy
        return all(_is_immutable(getattr(value, field.name)) for field in dataclasses.fields(value))
    return isinstance(value, _IMMUTABLE)


def read_return(hints: dict[str, Any], name: str) -> tuple[TypeAdapter[Any], dict[str, Any], bool]:
    """Return the returned type, the JSON Schema of the output, and whether the output wraps the returned value.

    Raises:
        InvalidTool: there is no return type, or it has no JSON form that can be enforced.
    """
    if "return" not in hints:
        remedy = "write one, such as a pydantic model, a TypedDict or `-> bool`"
        refuse_tool(name, "no_return_type", ("return",), "it has no return type", remedy)
    adapter = adapted(hints["return"], name, "return")
    empty: dict[str, Any] = {"type": "object", "additionalProperties": False, "required": [], "properties": {}}
    if hints["return"] is type(None):
        return adapter, empty, True
    schema = schema_of(adapter, "serialization", OUTPUT_BOUNDS, tool=name, at=("output",))
    if schema.get("type") == "object":
        return adapter, schema, False
    return adapter, {**empty, "required": [RESULT], "properties": {RESULT: schema}}, True
