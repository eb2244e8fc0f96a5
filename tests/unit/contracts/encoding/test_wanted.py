"""What an author reads about a place of a document: derived from the model, and nothing of the document is repeated."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.wanted import branches_of, explained, name_of, schemas_at, words_for
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.errors import InvalidEnvelope


class Inner(BaseModel):
    name: Annotated[str, Field(pattern=r"^[a-z]+$")]
    level: Literal["low", "high"] = "low"
    count: Annotated[int, Field(ge=1, le=9)] = 1


class Outer(BaseModel):
    inner: Inner
    several: list[Inner] = []
    either: Inner | str | None = None


class Lists(Outer):
    texts: list[str] = []
    numbers: list[int] = []
    lists: list[list[str]] = []


@pytest.mark.parametrize(
    ("path", "kind", "document", "said"),
    [
        (("innr",), "extra_forbidden", {"innr": 1}, ("there is no `innr` here", "did you mean `inner`?")),
        (
            ("zzz",),
            "extra_forbidden",
            {"zzz": 1},
            ("there is no `zzz` here", "remove it; the names here are `inner`, `several`, `either`"),
        ),
        (("inner", "level"), "missing", {"inner": {}}, ("`level` is missing", "add it: one of `low`, `high`")),
        (
            ("inner", "level"),
            "literal_error",
            {"inner": {"level": "hihg"}},
            ("it is not one of the allowed values", "did you mean `high`?"),
        ),
        (
            ("several", 0, "count"),
            "int_type",
            {"several": [{"count": "x"}]},
            ("it is a text", "write a whole number from 1 to 9"),
        ),
        (("several",), "list_type", {"several": {}}, ("it is an object", "write a list of objects with `name`")),
        (("inner",), "missing", {}, ("`inner` is missing", "add it: an object with `name`")),
        (("texts",), "list_type", {"texts": "a"}, ("it is a text", 'write a list (`["a", "b"]`)')),
        (("numbers",), "list_type", {"numbers": 1}, ("it is a number", "write a list (`[1, 2]`)")),
        (("lists",), "list_type", {"lists": 1}, ("it is a number", "write a list")),
    ],
)
def test_a_fault_names_what_is_wrong_and_what_to_write(
    path: tuple[str | int, ...], kind: str, document: object, said: tuple[str, str]
) -> None:
    assert explained(Lists if path[0] in Lists.__annotations__ else Outer, path, kind, document) == said


class Filled(BaseModel):
    hop_claim: str = ""
    hop: Annotated[str, Field(json_schema_extra={"readOnly": True})] = ""
    inner: dict[str, str] = {}


class Around(BaseModel):
    filled: Filled


def test_a_member_that_nobody_writes_is_not_offered() -> None:
    said = [explained(Filled, (name,), "extra_forbidden", {name: 1}) for name in ("hop_clam", "hop")]
    assert [one and one[1] for one in said] == [
        "did you mean `hop_claim`?",
        "remove it; the names here are `hop_claim`, `inner`",
    ]
    wanted = explained(Around, ("filled",), "missing", {})
    assert wanted == ("`filled` is missing", "add it: an object with `hop_claim`, `inner`")


@pytest.mark.parametrize("name", ["hopp", "ho", "hops"])
def test_a_request_is_never_asked_to_state_what_only_the_runtime_says(name: str) -> None:
    with pytest.raises(InvalidEnvelope) as caught:
        parse(InvokeRequest, {name: {}})
    assert not [one for one in caught.value.problems if "`hop`" in one.remedy]


def test_a_name_that_the_document_has_already_is_not_suggested() -> None:
    said = explained(Outer, ("innr",), "extra_forbidden", {"innr": 1, "inner": {}})
    assert said is not None
    assert "did you mean `inner`" not in said[1]


def test_a_fault_of_another_kind_and_an_open_place_have_no_words() -> None:
    assert explained(Outer, ("inner",), "value_error", {"inner": {}}) is None
    assert explained(Outer, ("nothing", "below"), "missing", {}) == ("`below` is missing", "add it")


def test_a_reference_and_the_branches_of_a_union_are_followed() -> None:
    kinds = [one.get("type") for one in schemas_at(Outer, ("either",))]
    assert sorted(map(str, kinds)) == ["null", "object", "string"]
    looped = {"$ref": "#/a", "a": {"$ref": "#/a"}}
    assert list(branches_of(looped, looped)) == []


def test_a_value_is_named_in_words() -> None:
    assert [name_of(one) for one in (True, 1, "x", [], {}, None)] == [
        "a truth value (true or false)",
        "a number",
        "a text",
        "a list",
        "an object",
        "null",
    ]
    assert words_for([{"type": "null"}, {"type": "integer"}, {"type": "number"}], {}) == "a number"
