"""A schema that a tool declares is closed and bounded, whatever the author left out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from contextos.action.schema_profile import profile
from contextos.contracts.model import MAX_COUNT
from contextos.errors import InvalidTool
from contextos.packs.tools.schemas import ARGUMENT_BOUNDS, OUTPUT_BOUNDS, schema_of


class Inner(BaseModel):
    """An inner model."""

    note: str


class Outer(BaseModel):
    """An outer model."""

    inner: Inner
    twice: Inner
    names: list[str]
    counts: dict[str, int]
    exact: Annotated[str, Field(max_length=3)]
    few: Annotated[list[int], Field(max_length=2)]
    limited: Annotated[int, Field(ge=1, lt=5)]


class Card(BaseModel):
    """A card."""

    kind: Literal["card"]


class Cash(BaseModel):
    """Cash."""

    kind: Literal["cash"]


class Open(BaseModel):
    """A model that keeps what it does not know."""

    model_config = ConfigDict(extra="allow")
    a: int


class Node(BaseModel):
    """A tree."""

    below: list[Node]


class Deep0(BaseModel):
    """Nothing below."""

    a: int


def doubled(times: int) -> type[BaseModel]:
    """A model that grows to 2^times copies of one."""
    kind: type[BaseModel] = Deep0
    for number in range(times):
        kind = type(f"Deep{number + 1}", (BaseModel,), {"__annotations__": {"x": kind, "y": kind}})
    return kind


def schema(hint: Any, mode: Any = "validation") -> dict[str, Any]:
    bounds = ARGUMENT_BOUNDS if mode == "validation" else OUTPUT_BOUNDS
    return schema_of(TypeAdapter(hint), mode, bounds, tool="tool", at=("arguments", "a"))


def test_a_model_is_closed_bounded_and_has_no_references() -> None:
    found = schema(Outer)
    text = {"type": "string", "maxLength": 1000}
    inner = {
        "type": "object",
        "additionalProperties": False,
        "required": ["note"],
        "properties": {"note": text},
        "description": "An inner model.",
    }
    assert found["additionalProperties"] is False
    assert found["properties"]["inner"] == found["properties"]["twice"] == inner
    assert found["properties"]["names"] == {"type": "array", "items": text, "maxItems": 100}
    assert found["properties"]["counts"]["maxProperties"] == 100
    assert found["properties"]["counts"]["additionalProperties"]["maximum"] == MAX_COUNT
    assert found["properties"]["exact"]["maxLength"] == 3
    assert found["properties"]["few"]["maxItems"] == 2
    assert found["properties"]["limited"] == {"type": "integer", "minimum": 1, "exclusiveMaximum": 5}


def test_a_tagged_union_keeps_its_tags() -> None:
    found = schema(Annotated[Card | Cash, Field(discriminator="kind")])
    assert [one["properties"]["kind"]["const"] for one in found["oneOf"]] == ["card", "cash"]
    assert "discriminator" not in found


@pytest.mark.parametrize(
    ("hint", "code"),
    [
        (Open, "open_object"),
        (list[Open], "open_object"),
        (Node, "recursive"),
        (dict[str, dict[str, Any]], "open_object"),
        (doubled(12), "too_large"),
        (tuple[Any, int], "any_value"),
        (Annotated[str, Field(description="hidden \u200b text")], "unsafe_text"),
        (Annotated[str, Field(description="\x1b[31mred")], "unsafe_text"),
    ],
    ids=["open", "list of open", "recursive", "nested open", "doubling", "tuple of any", "hidden text", "escape"],
)
def test_what_nothing_can_enforce_is_refused(hint: Any, code: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        schema(hint)
    assert caught.value.problems[0].code == code
    assert caught.value.problems[0].remedy


LEAVES = st.sampled_from([str, int, float, bool, Literal["a", "b"], Annotated[int, Field(ge=0)], Card, Outer, None])
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),
        inner.map(lambda one: dict[str, one]),
        st.tuples(inner, inner).map(lambda two: tuple[two[0], two[1]]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1] if two[0] is not None else two[1]),
    ),
    max_leaves=6,
)


def unbounded(node: Any) -> list[Any]:
    """The subschemas that bound nothing, or are open."""
    if isinstance(node, list):
        return [found for one in node for found in unbounded(one)]
    if not isinstance(node, dict):
        return []
    kind = node.get("type")
    fixed = "enum" in node or "const" in node
    wrong = (
        (kind == "string" and "maxLength" not in node and not fixed)
        or (kind == "array" and "maxItems" not in node)
        or (kind == "integer" and not fixed and not {"maximum", "exclusiveMaximum"} & node.keys())
        or (kind == "object" and node.get("additionalProperties") is True)
    )
    return [*([node] if wrong else []), *(found for one in node.values() for found in unbounded(one))]


@given(TYPES, st.sampled_from(["validation", "serialization"]))
def test_every_schema_is_bounded_and_in_the_profile(hint: Any, mode: Any) -> None:
    found = schema(hint, mode)
    assert not unbounded(found)
    profile({"type": "object", "additionalProperties": False, "properties": {"a": found}}, "tool")
