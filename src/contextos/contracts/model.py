"""`Model`, the base class of every contract: frozen, without unknown fields, without type conversion, with size
limits.

Each contract can be validated in two ways. The wire form, for input, is the loose one: an id is checked by its prefix,
a digest can be the placeholder `sha256:...`, and a field that the specification's examples omit can be absent. The
sealed form is the strict one, under the full rules (`sealed()`). The runtime writes sealed values only.

The open objects of the specification (`metadata`, `args`, `output`, `input.context`) hold any JSON within the limits of
`contracts.encoding.codec`. Source: docs/design/contracts.md, "Wire and hashing".

`final_fields` is the decorator of the data classes that a run makes for itself and that are not contracts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, dataclass_transform

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    ValidationError,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, SchemaValidator, core_schema

from contextos.contracts.ids import sealed_schema
from contextos.contracts.pydantic_internals import (
    build_validator,
    construct_instance,
    core_schema_of,
    serialize_set_fields,
)

MAX_NAME_CHARS: Final = 512
MAX_TEXT_CHARS: Final = 262_144
MAX_ITEMS: Final = 10_000
MAX_KEYS: Final = 1_000
MAX_COUNT: Final = 2**53 - 1
MAX_CENTS: Final = 100_000_000_000

ItemT = TypeVar("ItemT")
ValueT = TypeVar("ValueT")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def final_fields(cls: type[ValueT]) -> type[ValueT]:
    """Make a data class with slots whose fields are `Final`: the type checker refuses an assignment to a field, but it
    is not refused at run time.

    `dataclass(frozen=True)` refuses it at run time too, and takes several times as long to make an instance. Use that
    for values that foreign code gets, and for values that outlive a run.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


def changed(value: ValueT, /, **others: Any) -> ValueT:
    """Return a copy of a value of a data class with other values in these fields.

    `dataclasses.replace` does the same, and takes several times as long.
    """
    kind: Any = type(value)
    names, values_of = _fields_of(kind)
    instance: ValueT = kind(**(dict(zip(names, values_of(value), strict=True)) | others))
    return instance


@cache
def _fields_of(kind: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of all fields (two or more), and a function that returns their values in this order."""
    names = tuple(data_field.name for data_field in fields(kind))
    return names, attrgetter(*names)


class ListOnly:
    """A pydantic annotation: accept lists and tuples only. A set or generator has no stable order and is refused.

    The minimum length `at_least` is checked after the items, so that a faulty item is not also reported as a short
    list.
    """

    def __init__(self, at_least: int = 0) -> None:
        self.at_least = at_least

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        items = handler(source)
        if self.at_least:
            min_length = core_schema.tuple_variable_schema(core_schema.any_schema(), min_length=self.at_least)
            items = core_schema.chain_schema([items, min_length], serialization=items.get("serialization"))
        is_list = core_schema.is_instance_schema((list, tuple), cls_repr="list")
        list_check = core_schema.custom_error_schema(is_list, custom_error_type="list_type")
        return core_schema.json_or_python_schema(items, core_schema.chain_schema([list_check, items]))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        assert schema["type"] == "json-or-python", "pydantic passes the schema that was made above"
        items = schema["json_schema"]
        if items["type"] == "chain":
            return handler(items["steps"][0]) | {"minItems": self.at_least}
        return handler(items)


class NotNull:
    """A pydantic annotation of a field that can be absent (None in memory) and is never `null` on the wire."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        nullable = handler(source)
        assert nullable["type"] == "nullable", "the annotation is for an optional field"
        inner: CoreSchema = nullable["schema"]
        return inner


Seq = Annotated[tuple[ItemT, ...], Strict(False), Field(max_length=MAX_ITEMS), ListOnly()]
"""A list on the wire, a tuple in memory."""

NonEmpty = Annotated[tuple[ItemT, ...], Strict(False), Field(max_length=MAX_ITEMS), ListOnly(at_least=1)]
"""A `Seq` of at least one item."""

Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
"""A short text: a name, a role, a version, a code."""

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
"""A text that people or models read."""

Map = Annotated[dict[Name, ItemT], Field(max_length=MAX_KEYS)]
"""An object with names as keys. A frozen model cannot freeze a dict, so a model's owner must never write into it."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""An integer from 0 to 2^53-1, which every JSON reader keeps exact."""

Whole = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
"""An integer from -(2^53-1) to 2^53-1, which every JSON reader keeps exact."""

Amount = Annotated[float, Field(ge=0, le=MAX_COUNT)] | Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A number from 0. Its type is kept: 25 stays 25 and 25.0 stays 25.0; both have the same canonical form."""

Number = Annotated[float, Field(ge=-MAX_COUNT, le=MAX_COUNT)] | Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
"""A number of either sign; its type is kept."""

Positive = Annotated[int, Field(gt=0, le=MAX_COUNT)]
"""An integer from 1."""

Share = Annotated[float, Field(ge=0, le=1)] | Annotated[int, Field(ge=0, le=1)]
"""A number from 0 to 1."""

OpenObject = dict[str, Any]
"""An object that the specification leaves open: any JSON within the limits of `contracts.encoding.codec`."""


def _check_decimals(value: float | int) -> float | int:
    if round(value, 4) != value:
        raise ValueError("more than 4 decimals; give US cents in steps of 1/10,000 cent")
    return value


Cents = Annotated[
    Annotated[float, Field(ge=0, le=MAX_CENTS)] | Annotated[int, Field(ge=0, le=MAX_CENTS)],
    AfterValidator(_check_decimals),
]
"""US cents with at most 4 decimals."""

UNITS_PER_CENT: Final = 10_000
"""Costs are summed and compared as integers of 1/10,000 cent, so that sums are exact."""

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


class Model(BaseModel):
    """Base of every contract. Refuses unknown fields and converts no value to another type.

    `required_when_sealed` names the fields that can be absent in the wire form but not in the sealed form.
    Pydantic copies a default of `{}` for each instance.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    required_when_sealed: ClassVar[tuple[str, ...]] = ()

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """Yield (field, reason) for each broken rule between several fields. `sealed` calls this; plain validation
        does not.
        """
        return iter(())

    def sealed(self) -> Self:
        """Validate this value again under the full rules (exact ids, no missing field, rules between fields) and
        return it.

        Raises:
            pydantic.ValidationError: the value breaks a rule; the error lists every fault.
        """
        faults = list(_sealing_errors(self, ()))
        try:
            value = type(self).validate_sealed(self.to_json())
        except ValidationError as error:
            faults += map(_to_error_details, error.errors(include_url=False))
        else:
            if not faults:
                return value
        raise ValidationError.from_exception_data(type(self).__name__, faults)

    @classmethod
    def sealed_from(cls, body: dict[str, Any]) -> Self:
        """Validate the JSON object `body` under the full rules, and return the instance; the same as `sealed()` on a
        parsed value.

        Raises:
            pydantic.ValidationError: `body` breaks a rule.
        """
        value = cls.validate_sealed(body)
        if faults := list(_sealing_errors(value, ())):
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return value

    @classmethod
    def validate_sealed(cls, body: dict[str, Any]) -> Self:
        """Validate the JSON object `body` with every id in its full form. Rules between several fields are not
        checked.

        Raises:
            pydantic.ValidationError: `body` breaks a rule.
        """
        instance: Self = _sealed_validator(cls).validate_python(body)
        return instance

    @classmethod
    def construct_trusted(cls, fields: dict[str, Any], *, unset: str | None = None) -> Self:
        """Build an instance from fields that were validated before. Nothing is validated.

        `fields` has every field by attribute name, except `unset`, which becomes None and counts as not set. The dict
        is kept and not copied.
        """
        complete = {**fields, unset: None} if unset else fields
        return construct_instance(cls, complete, _fields_set(cls, unset))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return the copy that pydantic's own method returns, at less cost."""
        others = update or {}
        if self.__pydantic_extra__ is not None:
            return super().model_copy(update=update, deep=deep)
        fields = self.__dict__ if not deep else {name: _deep_copy(value) for name, value in self.__dict__.items()}
        return construct_instance(type(self), {**fields, **others}, self.__pydantic_fields_set__ | others.keys())

    def to_json(self) -> dict[str, Any]:
        """Return this value as a JSON object with exactly the fields that were set, by their names in JSON."""
        return serialize_set_fields(self)


def _deep_copy(value: Any) -> Any:
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is tuple:
        return value if _LEAVES.issuperset(map(type, value)) else tuple(map(_deep_copy, value))
    if kind is dict:
        return {name: _deep_copy(member) for name, member in value.items()}
    return value.model_copy(deep=True) if isinstance(value, Model) else copy.deepcopy(value)


@cache
def _fields_set(model: type[Model], unset: str | None) -> set[str]:
    """Return one set for all instances: frozen models never change it, and pydantic's `model_copy` copies it first."""
    return set(model.model_fields) - {unset}


@cache
def _wire_names(model: type[Model]) -> dict[str, str]:
    return {name: field.alias or name for name, field in model.model_fields.items()}


@cache
def _sealed_validator(model: type[Model]) -> SchemaValidator:
    return build_validator(sealed_schema(core_schema_of(model)))


def _sealing_errors(value: Any, path: tuple[str | int, ...]) -> Iterator[InitErrorDetails]:
    """Yield each missing field and each broken rule between fields, anywhere in `value`."""
    kind = type(value)
    if kind is tuple or kind is dict:
        for key, child in enumerate(value) if kind is tuple else value.items():
            if type(child) not in _LEAVES:
                yield from _sealing_errors(child, (*path, key))
    elif isinstance(value, Model):
        wire = _wire_names(type(value))
        for name in value.required_when_sealed:
            if getattr(value, name) is None:
                yield InitErrorDetails(type="missing", loc=(*path, wire[name]), input=None)
        for name, reason in value.sealing_faults():
            error = PydanticCustomError("sealing", "{reason}", {"reason": reason})
            yield InitErrorDetails(type=error, loc=(*path, wire[name]), input=getattr(value, name))
        for name, child in value.__dict__.items():
            if type(child) not in _LEAVES:
                yield from _sealing_errors(child, (*path, wire[name]))


def _to_error_details(item: Any) -> InitErrorDetails:
    """Convert an error as pydantic reports it into the form from which pydantic raises it."""
    context = item.get("ctx", {}) | {"message": item["msg"]}
    error = PydanticCustomError(item["type"], "{message}", context)
    return InitErrorDetails(type=error, loc=item["loc"], input=item["input"])
