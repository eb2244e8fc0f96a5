"""The types of settings: one text says what is wrong and what to write, and the value is in none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import ValidationError

from contextos.contracts.setting_types import (
    QUIET,
    AnyNumber,
    AnyServiceUrl,
    AnyText,
    Fault,
    Fits,
    Flag,
    ListOf,
    OneOfKinds,
    PublicKeyHex,
    ServiceUrl,
    SettingTable,
    SomeOf,
    SomeText,
    String,
    Variable,
    key_set_faults,
    means,
    one_of,
    secret_faults,
    settings_of,
    tables,
    validator_of,
    whole,
)


def faults(kind: Any, value: Any, context: Any = None) -> list[tuple[tuple[str | int, ...], str]]:
    """The place and the remedy of each fault."""
    try:
        validator_of(kind).validate_python(value, context=context)
    except ValidationError as refused:
        return [(one["loc"], str(one.get("ctx", {}).get("remedy", ""))) for one in refused.errors(**QUIET)]
    return []


@pytest.mark.parametrize(
    ("kind", "good", "wrong"),
    [
        (SomeText, ["a"], ["", "a\0", 7, b"a", None]),
        (Flag, [True, False], [0, 1, "true", None]),
        (Annotated[AnyNumber, Fits("no", "give one")], [1, 1.5], [True, "1", None]),
        (Annotated[int, whole(1, 3, "")], [1, 3], [0, 4, True, 2.0, "2", None]),
        (Variable, ["", "KEYS_SECRET"], ["a b", "1A", "A" * 129, 7]),
        (PublicKeyHex, ["ab" * 32], ["AB" * 32, "ab" * 31, "", 7]),
        (ServiceUrl, ["https://a.example/b", "http://127.0.0.1:1/a"], ["", "http://a.example", "https://u:p@a", 7]),
        (AnyServiceUrl, ["", "https://a.example/b"], ["http://a.example", "a", 7, False]),
        (ListOf[SomeText], [(), ["a"], ("a",)], ["a", {"a"}, {"a": 1}, 7]),
        (SomeOf[SomeText], [["a"]], [[], (), "a"]),
        (Annotated[String, one_of(("a", "b"), "a letter")], ["a"], ["c", "", 7, ["a"]]),
    ],
    ids=["text", "flag", "number", "whole", "variable", "key", "url", "any_url", "list", "some", "one"],
)
def test_a_type_accepts_its_values_and_says_the_same_of_every_other(
    kind: Any, good: list[Any], wrong: list[Any]
) -> None:
    assert [faults(kind, value) for value in good] == [[]] * len(good)
    for value in wrong:
        ((place, remedy),) = faults(kind, value)
        assert place == ()
        assert remedy


def test_a_number_keeps_its_type() -> None:
    made = [validator_of(AnyNumber).validate_python(value) for value in (1, 1.0)]
    assert [type(value) for value in made] == [int, float]


def test_a_fault_of_an_element_is_at_the_element() -> None:
    assert faults(ListOf[SomeText], ["a", 7, ""]) == [((at,), "give a text that is not empty") for at in (1, 2)]


def test_the_nearest_of_the_known_texts_is_named() -> None:
    letters = Annotated[String, one_of(("alpha", "beta"), "a letter")]
    assert [faults(letters, value)[0][1] for value in ("alfa", "hunter2", 7)] == [
        "did you mean `alpha`?",
        "use one of alpha, beta",
        "use one of alpha, beta",
    ]


@dataclass(frozen=True, slots=True)
class Door(SettingTable):
    kind: ClassVar[str] = "door"

    name: Annotated[SomeText, means("its name")]
    secret_file: Annotated[AnyText, means("the file")] = ""
    secret_env: Annotated[Variable, means("the variable")] = ""

    def faults(self) -> Iterator[Fault]:
        yield from secret_faults(self, "secret", required=False)
        if self.name == "closed":
            yield Fault(("name",), "it is closed", "open it")


@dataclass(frozen=True, slots=True)
class House(SettingTable):
    given: ClassVar[tuple[str, ...]] = ("street",)

    street: str
    doors: Annotated[tuple[Door, ...], tables("doors", "its doors", least=1)]
    front: Annotated[str | Door, OneOfKinds(Door, text=SomeText), means("the first one")] = "none"


def test_a_table_of_a_file_gets_what_the_reader_gives() -> None:
    table = {"doors": [{"name": "a"}], "front": {"kind": "door", "name": "b"}}
    made = validator_of(House).validate_python(table, context={"street": "Elm"})
    assert made == House("Elm", (Door("a"),), Door("b"))
    assert [(one.name, meaning) for one, meaning in settings_of(House)] == [
        ("doors", "its doors"),
        ("front", "the first one"),
    ]


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({"doors": []}, [(("doors",), "write `[[doors]]`")]),
        ({"doors": [7]}, [(("doors", 0), "give a table of name, secret_file, secret_env")]),
        ({"doors": [{"nam": "a"}]}, [(("doors", 0, "nam"), "did you mean `name`?")]),
        ({"doors": [{"name": "closed"}]}, [(("doors", 0, "name"), "open it")]),
        ({"doors": [{"name": "a"}], "street": "Oak"}, [(("street",), "use one of doors, front")]),
        ({"doors": [{"name": "a"}], "front": {"name": "b"}}, [(("front", "kind"), "use one of door")]),
        ({"doors": [{"name": "a"}], "front": {"kind": "dor"}}, [(("front", "kind"), "did you mean `door`?")]),
        ({"doors": [{"name": "a"}], "front": 7}, [(("front",), "give a text that is not empty")]),
    ],
    ids=str,
)
def test_a_fault_of_a_table_is_in_its_place(table: dict[str, Any], found: list[Any]) -> None:
    assert faults(House, table, {"street": "Elm"}) == found


def test_a_table_that_a_program_makes_is_an_object_and_no_dict() -> None:
    assert faults(House, House("Elm", ({"name": "a"},))) == [(("doors", 0), "give a `Door`")]  # type: ignore[arg-type]
    assert faults(House, House("Elm", (Door(""),))) == [(("doors", 0, "name"), "give a text that is not empty")]


def test_a_secret_and_a_key_set_come_from_one_place() -> None:
    class Given:
        secret_file, secret_env, jwks_url, jwks_file = "a", "B", "", ""

    assert [one.path for one in (*secret_faults(Given, "secret"), *key_set_faults(Given, "jwks"))] == [(), ()]
    Given.secret_file, Given.secret_env, Given.jwks_file = "", "", "a"
    assert len(list(secret_faults(Given, "secret"))) == 1
    assert not [*secret_faults(Given, "secret", required=False), *key_set_faults(Given, "jwks")]
