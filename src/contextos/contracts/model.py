"""The shape every contract has: frozen, closed, strict, bounded; read loosely from the wire, sealed by the runtime.

One class serves both forms. As read from the wire, ids are checked by prefix, digests may be the
placeholder `sha256:...`, and fields that the seeds' examples omit may be absent. `sealed()` validates the
same value again under the full rules; the runtime writes sealed values only.

Every text, list, object and number has a bound. The open objects of the specification (`metadata`, `args`, `output`,
`input.context`) hold any JSON within the caps of `contracts.codec`.
Source: shared/design/contracts.md, "Wire and hashing".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

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

from contextos.contracts.ids import sealing

MAX_NAME_CHARS: Final = 512
MAX_TEXT_CHARS: Final = 262_144
MAX_ITEMS: Final = 10_000
MAX_KEYS: Final = 1_000
MAX_COUNT: Final = 2**53 - 1
MAX_CENTS: Final = 100_000_000_000

ItemT = TypeVar("ItemT")


class ListOnly:
    """Lists and tuples. A set or a generator would also make a tuple, but not the same one twice.

    `at_least` is counted last, so that a faulty item is not also reported as a list that is too short.
    """

    def __init__(self, at_least: int = 0) -> None:
        self.at_least = at_least

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        items = handler(source)
        if self.at_least:
            counted = core_schema.tuple_variable_schema(core_schema.any_schema(), min_length=self.at_least)
            items = core_schema.chain_schema([items, counted], serialization=items.get("serialization"))
        a_list = core_schema.is_instance_schema((list, tuple), cls_repr="list")
        checked = core_schema.custom_error_schema(a_list, custom_error_type="list_type")
        return core_schema.json_or_python_schema(items, core_schema.chain_schema([checked, items]))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        assert schema["type"] == "json-or-python", "pydantic hands back the schema made above"
        items = schema["json_schema"]
        if items["type"] == "chain":
            return handler(items["steps"][0]) | {"minItems": self.at_least}
        return handler(items)


Seq = Annotated[tuple[ItemT, ...], Strict(False), Field(max_length=MAX_ITEMS), ListOnly()]
"""A list on the wire, a tuple in memory."""

NonEmpty = Annotated[tuple[ItemT, ...], Strict(False), Field(max_length=MAX_ITEMS), ListOnly(at_least=1)]
"""A `Seq` of at least one."""

Name = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
"""A short text: a name, a role, a version, a code."""

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
"""A text that people or models read."""

Map = Annotated[dict[Name, ItemT], Field(max_length=MAX_KEYS)]
"""An object of names. It is a dict, which freezing cannot reach: nobody writes into a value that was handed over."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A natural number that every JSON reader keeps exact."""

Whole = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
"""An integer that every JSON reader keeps exact."""

Amount = Annotated[float, Field(ge=0, le=MAX_COUNT)] | Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A number that is not negative, kept as given: 25 stays 25 and 25.0 stays 25.0; their canonical form is one."""

Number = Annotated[float, Field(ge=-MAX_COUNT, le=MAX_COUNT)] | Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
"""A number, kept as given."""

Positive = Annotated[int, Field(gt=0, le=MAX_COUNT)]
"""An integer above 0."""

Share = Annotated[float, Field(ge=0, le=1)] | Annotated[int, Field(ge=0, le=1)]
"""A number within 0 and 1."""

OpenObject = dict[str, Any]
"""An object that the specification leaves open: any JSON within the caps of `contracts.codec`."""


def _four_decimals(value: float | int) -> float | int:
    if round(value, 4) != value:
        raise ValueError("more than 4 decimals; give US cents in steps of 1/10,000 cent")
    return value


Cents = Annotated[
    Annotated[float, Field(ge=0, le=MAX_CENTS)] | Annotated[int, Field(ge=0, le=MAX_CENTS)],
    AfterValidator(_four_decimals),
]
"""US cents with at most 4 decimals; counted inside as integers of 1/10,000 cent."""

UNITS_PER_CENT: Final = 10_000
"""Costs are summed and compared as integers of 1/10,000 cent, so that they are exact."""


_put: Final = object.__setattr__
_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


class Model(BaseModel):
    """Base of every contract. Unknown fields are refused; nothing is coerced.

    `required_when_sealed` names the fields that may be absent on the wire but not in what the runtime writes.
    A default of `{}` is copied for each instance.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    required_when_sealed: ClassVar[tuple[str, ...]] = ()

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """(field, why) for each rule between fields that this value breaks; only `sealed()` asks."""
        return iter(())

    def sealed(self) -> Self:
        """The same value, held to everything the runtime promises of what it writes.

        Raises:
            pydantic.ValidationError: it does not hold; every fault is listed.
        """
        faults = list(_faults(self, ()))
        try:
            value = type(self).validate_sealed(self.to_json())
        except ValidationError as error:
            faults += map(_again, error.errors(include_url=False))
        else:
            if not faults:
                return value
        raise ValidationError.from_exception_data(type(self).__name__, faults)

    @classmethod
    def sealed_from(cls, body: dict[str, Any]) -> Self:
        """What `sealed()` gives, straight from its wire form.

        Raises:
            pydantic.ValidationError: it does not hold.
        """
        value = cls.validate_sealed(body)
        if faults := list(_faults(value, ())):
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return value

    @classmethod
    def validate_sealed(cls, body: dict[str, Any]) -> Self:
        """`model_validate` with every id in its sealed form; rules between fields are not asked.

        Raises:
            pydantic.ValidationError: it does not hold.
        """
        made: Self = _sealed_validator(cls).validate_python(body)
        return made

    @classmethod
    def unasked(cls, fields: dict[str, Any], *, unset: str | None = None) -> Self:
        """An instance of these very fields, by name and complete but for `unset`, which is None; nothing is validated.

        For what is made of values that were validated before. What `model_construct` does, at a fifth of its cost. The
        set of set fields is shared, which frozen models allow: pydantic copies it where it would write into it.
        """
        made = cls.__new__(cls)
        _put(made, "__dict__", {**fields, unset: None} if unset else fields)
        _put(made, "__pydantic_fields_set__", _given(cls, unset))
        _put(made, "__pydantic_extra__", None)
        _put(made, "__pydantic_private__", None)
        return made

    def to_json(self) -> dict[str, Any]:
        """The wire form: JSON-able; exactly the fields that were given."""
        wire: dict[str, Any] = self.__pydantic_serializer__.to_python(
            self, mode="json", exclude_unset=True, by_alias=True
        )
        return wire


@cache
def _given(model: type[Model], unset: str | None) -> set[str]:
    return set(model.model_fields) - {unset}


@cache
def _wire_names(model: type[Model]) -> dict[str, str]:
    return {name: field.alias or name for name, field in model.model_fields.items()}


@cache
def _sealed_validator(model: type[Model]) -> SchemaValidator:
    # The last argument: a class that validates already is built anew, or its loose validator would be taken.
    return SchemaValidator(sealing(model.__pydantic_core_schema__), None, False)


def _faults(value: Any, path: tuple[str | int, ...]) -> Iterator[InitErrorDetails]:
    """What is absent, or breaks a rule between fields, anywhere below `value`."""
    kind = type(value)
    if kind is tuple or kind is dict:
        for at, child in enumerate(value) if kind is tuple else value.items():
            if type(child) not in _LEAVES:
                yield from _faults(child, (*path, at))
    elif isinstance(value, Model):
        wire = _wire_names(type(value))
        for name in value.required_when_sealed:
            if getattr(value, name) is None:
                yield InitErrorDetails(type="missing", loc=(*path, wire[name]), input=None)
        for name, why in value.sealing_faults():
            broken = PydanticCustomError("sealing", "{why}", {"why": why})
            yield InitErrorDetails(type=broken, loc=(*path, wire[name]), input=getattr(value, name))
        for name, child in value.__dict__.items():
            if type(child) not in _LEAVES:
                yield from _faults(child, (*path, wire[name]))


def _again(item: Any) -> InitErrorDetails:
    """An error as reported, in the form that pydantic takes back."""
    context = {"said": item["msg"]} | item.get("ctx", {})
    said = PydanticCustomError(item["type"], "{said}", context)
    return InitErrorDetails(type=said, loc=item["loc"], input=item["input"])
