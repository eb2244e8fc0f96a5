"""The private parts of pydantic do what its public ways do. A failure here means that pydantic changed one of them."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from contextos.contracts import pydantic_internals as internals
from contextos.contracts.envelopes.identity import UserClaims
from contextos.contracts.model import Map, Model, Name, Seq
from contextos.contracts.refs import EvidenceRef


class Inner(Model):
    """A part with a default."""

    name: Name
    note: Name | None = None


class Outer(Model):
    """One field of each sort: plain, aliased, with a default, nested, in a sequence and in a map."""

    title: Name
    slot_id: Annotated[Name, Field(alias="slotId")]
    open: dict[str, Any] = {}
    inner: Inner
    several: Seq[Inner] = ()
    named: Map[Inner] = {}


WIRE: dict[str, Any] = {
    "title": "t",
    "slotId": "s",
    "inner": {"name": "a"},
    "several": [{"name": "b", "note": "c"}],
    "named": {"x": {"name": "d"}},
}
VALIDATED = Outer.model_validate(WIRE)
FIELDS_SET = {"title", "slot_id", "inner", "several", "named"}


def constructed() -> Outer:
    fields = {name: getattr(VALIDATED, name) for name in Outer.model_fields}
    return internals.construct_instance(Outer, fields, set(FIELDS_SET))


def test_a_constructed_instance_equals_the_validated_one() -> None:
    made = constructed()
    assert made == VALIDATED
    assert made.model_fields_set == VALIDATED.model_fields_set == FIELDS_SET
    assert repr(made) == repr(VALIDATED)


@pytest.mark.parametrize("update", [None, {}, {"title": "u"}, {"open": {"a": 1}, "several": ()}])
def test_a_copy_is_the_one_that_pydantic_makes(update: dict[str, Any] | None) -> None:
    before = VALIDATED.to_json()
    ours, theirs = VALIDATED.model_copy(update=update), BaseModel.model_copy(VALIDATED, update=update)
    assert (ours, ours.model_fields_set, ours.to_json()) == (theirs, theirs.model_fields_set, theirs.to_json())
    assert ours.__dict__ is not VALIDATED.__dict__
    assert VALIDATED.to_json() == before
    assert VALIDATED.model_copy(deep=True) == VALIDATED


@pytest.mark.parametrize("more", [{}, {"team": "refunds"}])
def test_a_copy_of_a_model_that_keeps_other_fields_keeps_them(more: dict[str, Any]) -> None:
    user = UserClaims.model_validate({"user_id": "u", **more})
    ours, theirs = user.model_copy(update={"role": "r"}), BaseModel.model_copy(user, update={"role": "r"})
    assert (ours, ours.to_json()) == (theirs, {"user_id": "u", "role": "r", **more})


def test_a_constructed_instance_has_the_state_that_pydantic_gives_and_nothing_else() -> None:
    theirs = Outer.model_construct(set(FIELDS_SET), **{name: getattr(VALIDATED, name) for name in Outer.model_fields})
    assert constructed().__getstate__() == theirs.__getstate__() == VALIDATED.__getstate__()
    assert constructed().__getstate__().keys() == {
        "__dict__",
        "__pydantic_extra__",
        "__pydantic_fields_set__",
        "__pydantic_private__",
    }
    assert constructed().__pydantic_private__ is constructed().__pydantic_extra__ is None
    assert Outer.__pydantic_post_init__ is None, "construct_instance calls no `model_post_init`"


@pytest.mark.parametrize(
    "clone",
    [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made)), lambda made: made.model_copy()],
    ids=["copy", "deepcopy", "pickle", "model_copy"],
)
def test_a_constructed_instance_can_be_copied(clone: Any) -> None:
    assert clone(constructed()) == VALIDATED
    assert clone(constructed()).model_fields_set == FIELDS_SET


def test_a_copy_with_another_field_leaves_the_set_of_fields_of_the_original_alone() -> None:
    made = constructed()
    other = made.model_copy(update={"open": {"a": 1}})
    assert other.model_fields_set == FIELDS_SET | {"open"}
    assert made.model_fields_set == FIELDS_SET


def test_a_constructed_instance_is_dumped_and_frozen_as_a_validated_one() -> None:
    assert constructed().model_dump() == VALIDATED.model_dump()
    assert constructed().model_dump_json() == VALIDATED.model_dump_json()
    with pytest.raises(ValidationError):
        constructed().title = "other"  # type: ignore[misc]


@pytest.mark.parametrize("instance", [VALIDATED, constructed()], ids=["validated", "constructed"])
def test_the_serializer_returns_what_model_dump_returns(instance: Outer) -> None:
    public = instance.model_dump(mode="json", exclude_unset=True, by_alias=True)
    assert internals.serialize_set_fields(instance) == public == WIRE


def test_a_validator_of_an_unchanged_schema_accepts_the_same_as_the_model() -> None:
    validator = internals.build_validator(internals.core_schema_of(Outer))
    assert validator.validate_python(WIRE) == VALIDATED


class Cited(Model):
    """A model whose schema the test changes."""

    name: Name


class Citing(Model):
    """A model that contains one: pydantic would reuse the validator of `Cited`."""

    cited: Cited
    ref: EvidenceRef | None = None


def shortened(schema: Any) -> Any:
    """The same schema with texts of at most one character."""
    if isinstance(schema, list):
        return [shortened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: 1 if name == "max_length" else shortened(item) for name, item in schema.items()}


def test_a_validator_is_built_of_the_changed_schema_and_reuses_none_of_the_classes() -> None:
    assert "_use_prebuilt" in str(inspect.signature(type(internals.build_validator(internals.core_schema_of(Cited)))))
    validator = internals.build_validator(shortened(internals.core_schema_of(Citing)))
    assert validator.validate_python({"cited": {"name": "a"}}) == Citing(cited=Cited(name="a"))
    assert Citing.model_validate({"cited": {"name": "ab"}}).cited.name == "ab"
    with pytest.raises(ValidationError):
        validator.validate_python({"cited": {"name": "ab"}})


def test_a_copy_of_a_model_is_as_pydantic_makes_it() -> None:
    for update in (None, {}, {"inner": Inner(name="b")}, {"title": "other", "open": {"a": 1}}):
        for deep in (False, True):
            ours, theirs = constructed(), BaseModel.model_copy(constructed(), update=update, deep=deep)
            made = ours.model_copy(update=update, deep=deep)
            assert made.__getstate__() == theirs.__getstate__()
            assert made.__dict__ is not ours.__dict__
            assert made.model_fields_set is not ours.model_fields_set
            assert (made.inner is ours.inner) is (not deep and "inner" not in (update or {}))
