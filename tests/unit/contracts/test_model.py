"""The base of every contract: strict, closed, frozen, bounded, and sealed with every fault listed."""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from pydantic import Field, TypeAdapter, ValidationError

import contextos.contracts as package
from contextos.contracts.encoding.codec import parse, problems_of
from contextos.contracts.envelopes import identity, run, tool
from contextos.contracts.model import (
    MAX_COUNT,
    MAX_ITEMS,
    MAX_KEYS,
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    Amount,
    Cents,
    Count,
    Map,
    Model,
    Name,
    NonEmpty,
    Number,
    OpenObject,
    Positive,
    Seq,
    Share,
    Text,
    Whole,
    final_fields,
)
from contextos.errors import InvalidEnvelope
from tests.unit.contracts.seeds import completed, example, with_changes


class Leaf(Model):
    """A part with a rule of its own."""

    colour: Name | None = None
    size: Count = 0
    required_when_sealed: ClassVar[tuple[str, ...]] = ("colour",)

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        if self.size > 9:
            yield "size", "a leaf is smaller than 10"


class Tree(Model):
    """A whole with parts in every place where parts can be."""

    best: Leaf | None = None
    leaves: Seq[Leaf] = ()
    named: Map[Leaf] = {}
    notes: OpenObject = {}


def holds(kind: Any, value: Any) -> bool:
    try:
        TypeAdapter(kind, config={"strict": True, "allow_inf_nan": False}).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", [Seq[Name], NonEmpty[Name]])
def test_a_sequence_is_made_of_a_list_or_a_tuple_and_of_nothing_else(kind: Any) -> None:
    assert TypeAdapter(kind).validate_python(["b", "a"]) == ("b", "a")
    assert TypeAdapter(kind).validate_python(("b", "a")) == ("b", "a")
    assert TypeAdapter(kind).validate_json('["b", "a"]') == ("b", "a")
    others: list[Any] = [
        "ab",
        b"ab",
        {"a", "b"},
        frozenset("ab"),
        {"a": "b"},
        {"a": 1}.keys(),
        {"a": "b"}.values(),
        (c for c in "ab"),
        iter(["a"]),
        range(2),
        None,
        1,
        MappingProxyType({"a": "b"}),
    ]
    assert [other for other in others if holds(kind, other)] == []
    assert holds(kind, []) == (kind is not NonEmpty[Name])


def test_a_faulty_item_is_reported_once_and_by_its_place() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(NonEmpty[Name], config={"strict": True}).validate_python(["a", 1])
    assert [(item["loc"], item["type"]) for item in caught.value.errors()] == [((1,), "string_type")]


def test_nothing_is_coerced_to_a_number() -> None:
    for kind in (Count, Whole, Positive, Amount, Number, Share, Cents):
        assert holds(kind, 1)
        assert [other for other in (True, False, "1", "", None, [1], b"1") if holds(kind, other)] == []
        assert [other for other in (float("nan"), float("inf"), 2**53, 10**400, -(2**53)) if holds(kind, other)] == []
    for kind in (Count, Whole, Positive):
        assert not holds(kind, 1.0)


def test_a_number_keeps_its_bounds() -> None:
    assert [holds(kind, 0) for kind in (Count, Whole, Positive, Amount, Number)] == [True, True, False, True, True]
    assert [holds(kind, -1) for kind in (Count, Whole, Amount, Number, Share)] == [False, True, False, True, False]
    assert [holds(kind, MAX_COUNT) for kind in (Count, Whole, Amount, Share)] == [True, True, True, False]
    assert [holds(Share, value) for value in (0.0, 1.0, 1.0000001, -0.1)] == [True, True, False, False]


def test_an_integer_stays_one_and_a_float_stays_one() -> None:
    for kind in (Amount, Number, Cents, Share):
        adapter = TypeAdapter(kind)
        assert type(adapter.validate_python(1)) is int
        assert type(adapter.validate_python(1.0)) is float
        assert adapter.dump_json(adapter.validate_python(1)) == b"1"


def test_cents_have_at_most_four_decimals() -> None:
    assert all(holds(Cents, value) for value in (0, 0.0001, 0.31, 25.0, 4200, 99_999_999_999.1234, 1e11))
    assert not any(holds(Cents, value) for value in (0.00001, 0.12345, 1.00005, -0.1, 1e11 + 1))


def test_texts_lists_and_objects_are_bounded() -> None:
    assert [holds(Name, "x" * size) for size in (0, MAX_NAME_CHARS, MAX_NAME_CHARS + 1)] == [True, True, False]
    assert [holds(Text, "x" * size) for size in (MAX_TEXT_CHARS, MAX_TEXT_CHARS + 1)] == [True, False]
    assert [holds(Seq[Count], [1] * size) for size in (MAX_ITEMS, MAX_ITEMS + 1)] == [True, False]
    keys = {f"key{number}": 1 for number in range(MAX_KEYS)}
    assert [holds(Map[Count], keys), holds(Map[Count], keys | {"more": 1})] == [True, False]
    assert not holds(Map[Count], {"x" * (MAX_NAME_CHARS + 1): 1})


def contracts() -> list[type[Model]]:
    """Every model of the package."""
    names = [found.name for found in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"contextos.contracts.{name}") for name in names]
    found = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    return sorted((each for each in found if issubclass(each, Model) and each is not Model), key=str)


@pytest.mark.parametrize("model", contracts(), ids=lambda model: model.__name__)
def test_a_contract_is_frozen_strict_and_closed(model: type[Model]) -> None:
    config = model.model_config
    assert config["frozen"]
    assert config["strict"]
    assert not config["allow_inf_nan"]
    assert config["extra"] == ("allow" if model is identity.UserClaims else "forbid")
    assert (model.__doc__ or "").strip()
    assert set(model.required_when_sealed) <= model.model_fields.keys()


PLAIN = (str, int, float)


def bare(hint: Any, path: str) -> Iterator[str]:
    """Where a type has no bound: a plain text or number, or a list or object without a length."""
    arguments = () if hint == OpenObject else typing.get_args(hint)
    if hasattr(hint, "__metadata__"):
        for argument in () if arguments[0] in PLAIN else typing.get_args(arguments[0]):
            yield from bare(argument, path)
    elif hint in PLAIN:
        yield f"{path} is a plain {hint.__name__}"
    elif arguments and typing.get_origin(hint) in (list, tuple, dict):
        if typing.get_origin(arguments[0]) is not typing.Literal:
            yield f"{path} has no length"
        yield from (found for argument in arguments for found in bare(argument, path))
    elif typing.get_origin(hint) is not typing.Literal:
        for argument in arguments:
            yield from bare(argument, path)


def boundless(model: type[Model]) -> list[str]:
    """The fields of a model that lack a bound; one in `Field(...)` counts for the field's own text or number."""
    hints = typing.get_type_hints(model, include_extras=True)
    found = []
    for name, field in model.model_fields.items():
        own = {*typing.get_args(hints[name]), hints[name]} & {*PLAIN}
        if not (own and field.metadata):
            found += bare(hints[name], f"{model.__name__}.{name}")
    return found


@pytest.mark.parametrize("model", contracts(), ids=lambda model: model.__name__)
def test_every_field_of_a_contract_has_a_bound(model: type[Model]) -> None:
    assert boundless(model) == []


class Loose(Model):
    """Each field but the last two lacks a bound somewhere."""

    text: str
    maybe: str | None = None
    names: Seq[str]
    counts: Map[int]
    items: tuple[Name, ...]
    values: dict[str, bool]
    sure: Name = ""
    short: str | None = Field(default=None, max_length=3)


def test_a_field_without_a_bound_is_found() -> None:
    assert {found.split(" ")[0] for found in boundless(Loose)} == {
        "Loose.text",
        "Loose.maybe",
        "Loose.names",
        "Loose.counts",
        "Loose.items",
        "Loose.values",
    }


def test_a_default_object_is_not_shared_between_values() -> None:
    first, second = Tree(), Tree()
    first.notes["mine"] = 1
    assert second.notes == {}
    assert Tree().notes == {}


def test_a_contract_cannot_be_written_to() -> None:
    tree = Tree(best=Leaf())
    with pytest.raises(ValidationError):
        tree.best = None  # type: ignore[misc]
    with pytest.raises(ValidationError):
        tree.unknown = 1  # type: ignore[attr-defined]


def test_only_the_given_fields_are_written() -> None:
    assert Tree().to_json() == {}
    assert Tree(best=None, leaves=()).to_json() == {"best": None, "leaves": []}
    user = identity.UserClaims.model_validate({"user_id": "usr_1", "team": ["a", {"b": 1}]})
    assert user.to_json() == {"user_id": "usr_1", "team": ["a", {"b": 1}]}


def test_sealing_lists_every_fault_at_every_depth() -> None:
    tree = Tree.model_validate(
        {
            "best": {"size": 12},
            "leaves": [{"colour": "red"}, {"colour": None}],
            "named": {"a/b": {"colour": "red", "size": 10}},
            "notes": {"colour": None},
        }
    )
    with pytest.raises(ValidationError) as caught:
        tree.sealed()
    problems = [(problem.pointer, problem.code) for problem in problems_of(caught.value)]
    assert problems == [
        ("/best/colour", "missing"),
        ("/best/size", "sealing"),
        ("/leaves/1/colour", "missing"),
        ("/named/a~1b/size", "sealing"),
    ]
    assert "a leaf is smaller than 10" in str(caught.value)


def test_sealing_reports_loose_ids_and_gaps_together() -> None:
    loose = with_changes(completed("tool_call_envelope"), {"/run_id": "run_1", "/auth_ref": None})
    with pytest.raises(ValidationError) as caught:
        tool.ToolCallEnvelope.model_validate(loose).sealed()
    problems = {problem.pointer: problem for problem in problems_of(caught.value, loose)}
    assert set(problems) == {"/run_id", "/auth_ref"}
    assert problems["/run_id"].remedy == "write it like `run_a1b2c3d4e5f60718`"


def test_sealing_sees_through_a_value_that_was_never_validated() -> None:
    call = tool.ToolCallEnvelope.model_validate(completed("tool_call_envelope"))
    with pytest.raises(ValidationError):
        call.model_copy(update={"run_id": "tool_1"}).sealed()


def test_braces_in_a_message_are_text() -> None:
    with pytest.raises(ValidationError) as caught:
        run.InvokeRequest.model_validate(completed("invoke_agent") | {"context_pack_refs": ["{reason}"]}).sealed()
    assert [item["loc"] for item in caught.value.errors()] == [("context_pack_refs", 0)]


def test_a_refusal_never_echoes_the_input() -> None:
    secret = "sk_live_4242424242424242"
    for changes in ({"/tenant_id": f"{secret} "}, {"/mode": secret}, {"/runtime/max_tool_calls": secret}):
        with pytest.raises(InvalidEnvelope) as caught:
            parse(run.InvokeRequest, with_changes(example("invoke_agent"), changes))
        assert secret not in str(caught.value)
        assert [problem.pointer for problem in caught.value.problems] == list(changes)


@final_fields
class Refund:
    """A data class of two fields."""

    cents: int
    notes: tuple[str, ...] = ()


def test_equal_values_are_equal_and_have_one_hash() -> None:
    assert Refund(1) == Refund(1) != Refund(2)
    assert len({Refund(1), Refund(1), Refund(2)}) == 2


def test_a_value_has_the_declared_fields_only() -> None:
    with pytest.raises(AttributeError):
        Refund(1).euros = 1  # type: ignore[attr-defined]


def test_a_changed_copy_leaves_the_value_as_it_was() -> None:
    value = Refund(1)
    assert replace(value, cents=2) == Refund(2)
    assert value == Refund(1)
