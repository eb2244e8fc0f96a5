"""What a signature does not say safely is refused when the tool is defined, with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field

from contextos import CallContext, Key
from contextos.errors import InvalidTool
from contextos.packs.tools.signatures import read_signature


def no_hint(a) -> int: ...
def anything(a: Any) -> int: ...
def an_object(a: object) -> int: ...
def open_dict(a: dict) -> int: ...
def open_values(a: dict[str, Any]) -> int: ...
def open_list(a: list) -> int: ...
def star(*a: str) -> int: ...
def double_star(**a: str) -> int: ...
def positional(a: str, /) -> int: ...
def mutable(a: list[str] = []) -> int: ...  # noqa: B006
def mutable_inside(a: tuple[list[str], ...] = ([],)) -> int: ...
def wrong_default(a: int = "x") -> int: ...
def field_as_default(a: int = Field(3)) -> int: ...
def no_return(a: int): ...
def unknown(a: Unknown) -> int: ...  # noqa: F821
def binary(a: bytes) -> int: ...
def a_callable(a: Callable[[], int]) -> int: ...
def optional_key(key: Key | None) -> int: ...
def reserved(idempotency_key: str) -> int: ...
def a_set() -> set[str]: ...
def returns_anything() -> Any: ...


@pytest.mark.parametrize(
    ("function", "code", "remedy"),
    [
        (no_hint, "no_hint", "`a: str`"),
        (anything, "any_value", "other than `Any`"),
        (an_object, "any_value", "other than `Any`"),
        (open_dict, "open_object", "dict[str, int]"),
        (open_values, "open_object", "dict[str, int]"),
        (open_list, "any_value", "type"),
        (star, "open_arguments", "name each"),
        (double_star, "open_arguments", "name each"),
        (positional, "positional", "remove the `/`"),
        (mutable, "mutable_default", "None or a tuple"),
        (mutable_inside, "mutable_default", "None or a tuple"),
        (wrong_default, "wrong_default", "correct the default"),
        (field_as_default, "wrong_default", "a: Annotated"),
        (no_return, "no_return_type", "pydantic model"),
        (unknown, "unresolved_hint", "import the type"),
        (binary, "no_json_form", "`str`"),
        (a_callable, "no_json_form", "JSON types"),
        (optional_key, "no_schema", "exactly `contextos.Key`"),
        (reserved, "reserved", "contextos.Key"),
        (a_set, "no_order", "list"),
        (returns_anything, "any_value", "type"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_an_unsafe_signature_is_refused(function: Any, code: str, remedy: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        read_signature(function, "tool")
    problem = caught.value.problems[0]
    assert problem.code == code
    assert remedy in problem.remedy
    assert problem.pointer.startswith("/tool")


def test_dependencies_are_found_by_annotation_and_never_by_name() -> None:
    def function(name: Key, run: CallContext, key: str, context: int) -> int: ...

    found = read_signature(function, "tool")
    assert found.dependencies == {"name": Key, "run": CallContext}
    assert set(found.arguments) == {"key", "context"}


def test_defaults_that_cannot_change_make_an_argument_optional() -> None:
    def function(a: str | None = None, b: tuple[int, ...] = (1, 2), c: float = 2) -> int: ...

    schema = read_signature(function, "tool").input_schema
    assert schema["required"] == []
    assert [schema["properties"][name]["default"] for name in "abc"] == [None, [1, 2], 2]


def test_a_model_that_names_an_unknown_type_is_refused() -> None:
    class Half(BaseModel):
        """A model whose second half is not there."""

        other: Missing  # type: ignore[name-defined]  # noqa: F821

    def function(a: Half) -> int: ...

    function.__annotations__["a"] = Half
    with pytest.raises(InvalidTool) as caught:
        read_signature(function, "tool")
    assert caught.value.problems[0].code == "unresolved_hint"
