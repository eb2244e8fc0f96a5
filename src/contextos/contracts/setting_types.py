"""The types of settings: which values a setting can have, the faults of all other values, and tables of settings.

A table of `contextos.toml` is a frozen data class. Pydantic validates it by the types of its fields, and the reference
page shows what they mean. No fault quotes the value of a setting, because that can be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import Field as DataclassField
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeVar, get_type_hints

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from contextos.contracts.facts import name_remedy
from contextos.contracts.model import ListOnly
from contextos.contracts.urls import is_private_connection, url_parts

ItemT = TypeVar("ItemT")
_HEX_KEY: Final = re.compile(r"[0-9a-f]{64}")
_VARIABLE: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,127})?")
QUIET: Final[Mapping[str, Any]] = {"include_url": False, "include_input": False}


class Nearest(NamedTuple):
    """A remedy that is computed when it is shown: the text in `known` that is most like `stated`, or all of `known`."""

    stated: Any
    known: Collection[str]

    def __str__(self) -> str:
        return name_remedy(self.stated if isinstance(self.stated, str) else "", self.known)


class Fault(NamedTuple):
    """What is wrong with the setting at `path`, which is relative to its table, and what to write instead."""

    path: tuple[str | int, ...]
    detail: str
    remedy: str | Nearest
    code: str = "bad_setting"


def validation_error(table: str, faults: Iterable[Fault]) -> ValidationError:
    """Return the error of pydantic for `faults` (one or more)."""
    return ValidationError.from_exception_data(
        table, [InitErrorDetails(type=_pydantic_error(fault), loc=fault.path, input=None) for fault in faults]
    )


def _pydantic_error(fault: Fault) -> PydanticCustomError:
    return PydanticCustomError(fault.code, "{detail}", {"detail": fault.detail, "remedy": fault.remedy})


class Fits:
    """A pydantic annotation: a value that is not of the type, or that `fits` refuses, has the fault `detail` and
    `remedy`. A `remedy` that is a tuple lists the accepted texts.
    """

    def __init__(
        self,
        detail: str,
        remedy: str | tuple[str, ...],
        fits: Callable[[Any], object] = lambda _: True,
        code: str = "bad_setting",
    ) -> None:
        self.detail, self.remedy, self.fits, self.code = detail, remedy, fits, code

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._validate, handler(source))

    def _validate(self, value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            if self.fits(result := validate(value)):
                return result
        except ValidationError as error:
            first = error.errors(**QUIET)[0] if error.error_count() == 1 else {"loc": "of several"}
            if first["loc"] or "detail" in first.get("ctx", ()):
                raise  # it is of an element, or of an annotation within this one
        remedy = Nearest(value, self.remedy) if isinstance(self.remedy, tuple) else self.remedy
        raise _pydantic_error(Fault((), self.detail, remedy, self.code))

    def or_empty(self) -> Fits:
        """Return an annotation that accepts the empty text too."""
        return Fits(self.detail, self.remedy, lambda value: value == "" or self.fits(value))


class SettingTable:
    """Base class of the tables. `given` names the fields that are not settings: the reader of the file gives them."""

    __slots__ = ()
    given: ClassVar[tuple[str, ...]] = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", revalidate_instances="always")

    def faults(self) -> Iterator[Fault]:
        """Yield the faults between several settings. It is called when each setting is right by itself."""
        return iter(())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(cls._validate, handler(source))

    @classmethod
    def _validate(cls, value: Any, validate: Callable[[Any], Self], info: ValidationInfo) -> Self:
        """Validate an instance, or the table of a file; for a file the context has the fields that are `given`."""
        if not isinstance(value, cls):
            table: Any = cls
            names = [field.name for field, _ in settings_of(table)]
            if not isinstance(value, dict) or info.context is None:
                remedy = f"give a `{cls.__name__}`" if info.context is None else f"give a table of {', '.join(names)}"
                raise _pydantic_error(Fault((), "this is not a table", remedy))
            unknown = [
                Fault((name,), "this is not a setting here", Nearest(str(name), names), "unknown_setting")
                for name in value
                if name not in names
            ]
            if unknown:
                raise validation_error(cls.__name__, unknown)
            value = value | {name: info.context[name] for name in cls.given}
        result = validate(value)
        if faults := list(result.faults()):
            raise validation_error(cls.__name__, faults)
        return result


class OneOfKinds:
    """A pydantic annotation of a setting that is a table of one of `kinds`, as its member `kind` says. With `text`, the
    type of a text, the setting can also be such a text.
    """

    def __init__(self, *kinds: type[Any], text: Any = None) -> None:
        self.kinds, self.text = {kind.kind: kind for kind in kinds}, text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._validate)

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        kind = type(value) if type(value) in self.kinds.values() else None
        if isinstance(value, dict) and info.context is not None:
            name = value.get("kind")
            kind = self.kinds.get(name) if isinstance(name, str) else None
            if kind is None:
                detail, code = (
                    ("this is not a kind", "bad_setting") if "kind" in value else ("`kind` is missing", "missing")
                )
                raise validation_error("kind", [Fault(("kind",), detail, Nearest(name, self.kinds), code)])
            value = {name: setting for name, setting in value.items() if name != "kind"}
        elif kind is None and self.text is None:
            remedy = f"give a table with a `kind`: {', '.join(self.kinds)}"
            raise _pydantic_error(Fault((), "this is not a table", remedy))
        validator: TypeAdapter[Any] = validator_of(kind or self.text)  # type: ignore[arg-type]
        return validator.validate_python(value, context=info.context)


@cache
def validator_of(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a table or of a type of this module, which is made at its first use."""
    return TypeAdapter(kind)


def means(meaning: str) -> Any:
    """Return the pydantic annotation of what a setting means, for the reference page."""
    return Field(description=meaning)


@cache
def settings_of(table: Any) -> tuple[tuple[DataclassField[Any], str], ...]:
    """Return the field and the meaning of each setting of a table, in their order."""
    hints = get_type_hints(table, include_extras=True)
    settings = []
    for field in fields(table):
        if field.name not in table.given:
            *_, info = (item for item in hints[field.name].__metadata__ if isinstance(item, FieldInfo))
            settings.append((field, str(info.description)))
    return tuple(settings)


def secret_faults(table: Any, what: str, *, required: bool = True) -> Iterator[Fault]:
    """Yield a fault unless a secret comes from exactly one of `<what>_file` and `<what>_env`; if it is not `required`,
    both can be empty.
    """
    file, variable = getattr(table, f"{what}_file"), getattr(table, f"{what}_env")
    if (file and variable) or (required and not file and not variable):
        detail = f"the {what} comes from exactly one of `{what}_file` and `{what}_env`"
        yield Fault((), detail, "name the one that holds it; the secret itself has no place in the settings")


def key_set_faults(table: Any, kind: str) -> Iterator[Fault]:
    """Yield a fault unless public keys come from exactly one of `<kind>_url` and `<kind>_file`."""
    if bool(getattr(table, f"{kind}_url")) == bool(getattr(table, f"{kind}_file")):
        detail = f"the keys come from exactly one of `{kind}_url` and `{kind}_file`"
        yield Fault((), detail, "name the address where they are served, or a file with them")


def whole(least: int, most: int, meaning: str) -> Any:
    """Return the pydantic annotation of a whole number within these bounds. A bool is not a number."""
    setting = Field(strict=True, description=meaning)
    detail = f"this is not a whole number from {least} to {most}"
    setting.metadata.append(Fits(detail, "give one within these bounds", lambda value: least <= value <= most))
    return setting


def one_of(known: Iterable[str], what: str) -> Fits:
    """Return the annotation of a text that is one of `known`; `what` names what these are, such as `a profile`."""
    return Fits(f"this is not {what}", tuple(known), lambda value: value in known)


def matches(pattern: re.Pattern[str], detail: str, remedy: str) -> Fits:
    """Return the annotation of a text that matches `pattern` as a whole."""
    return Fits(detail, remedy, pattern.fullmatch)


def table_by(remedy: str) -> Fits:
    """Return the annotation of a table whose names are not fixed."""
    return Fits("this is not a table", remedy)


def tables(name: str, meaning: str, *, least: int = 0) -> Any:
    """Return the pydantic annotation of a list of at least `least` tables, which a file writes as `[[name]]`."""
    setting = Field(description=meaning)
    detail = "this is not a list of tables" + (", or it is empty" if least else "")
    setting.metadata.extend((ListOnly(), Fits(detail, f"write `[[{name}]]`", lambda items: len(items) >= least)))
    return setting


def _is_filled(text: str) -> bool:
    return bool(text) and "\0" not in text


def _is_service(text: str) -> bool:
    parts = url_parts(text)
    return bool(parts.hostname) and "@" not in parts.netloc


_SERVICE: Final = Fits(
    "this is not the URL of a service", "write `https://host/path` in ASCII, without a query or a password", _is_service
)
_ENCRYPTED: Final = Fits(
    "the connection is not encrypted, so anybody on the way could answer", "write `https://`", is_private_connection
)
_NOT_A_TEXT: Final = "this is not a text"


def _check_number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise ValueError
    return value


AnyNumber = Annotated[float, PlainValidator(_check_number)]
"""A number, whose type is kept. A bool is not a number."""
String = Annotated[str, Strict()]
"""A text; another annotation beside this type says which texts are accepted."""
Flag = Annotated[bool, Strict(), Fits("this is neither true nor false", "write `true` or `false`")]
"""True or false."""
AnyText = Annotated[str, Strict(), Fits(_NOT_A_TEXT, "give a text", lambda text: "\0" not in text)]
"""A text, which can be empty."""
SomeText = Annotated[str, Strict(), Fits(_NOT_A_TEXT, "give a text that is not empty", _is_filled)]
"""A text that is not empty."""
TableKey = Annotated[
    str, Strict(), Fits("its name is empty, or not a text", "give a name that is not empty", _is_filled, "bad_name")
]
"""A name in a table whose names are not fixed."""
ServiceUrl = Annotated[SomeText, _SERVICE, _ENCRYPTED]
"""The URL of a service whose answers nobody on the way can change."""
AnyServiceUrl = Annotated[AnyText, _SERVICE.or_empty(), _ENCRYPTED.or_empty()]
"""A `ServiceUrl`, or an empty text."""
Variable = Annotated[
    String, matches(_VARIABLE, "this is not the name of an environment variable", "write it like `KEYS_SECRET`")
]
"""The name of an environment variable, or an empty text."""
PublicKeyHex = Annotated[
    String,
    matches(
        _HEX_KEY, "this is not an Ed25519 public key", "write its 64 hex digits, as `contextos key new` prints them"
    ),
]
"""An Ed25519 public key in hex."""
ListOf = Annotated[tuple[ItemT, ...], ListOnly(), Fits("this is not a list", "give a list")]
"""A list in a file, a tuple in memory."""
SomeOf = Annotated[
    tuple[ItemT, ...], ListOnly(), Fits("this is not a list, or it is empty", "list at least one", lambda value: value)
]
"""A list that is not empty."""
