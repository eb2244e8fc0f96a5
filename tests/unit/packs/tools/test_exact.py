"""A type of an argument keeps the value of the JSON, and what a function received is written as that JSON."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from operator import attrgetter
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, RootModel, SecretStr, TypeAdapter

from contextos.adapters.function.adapter import BusinessError
from contextos.errors import InvalidTool
from contextos.packs.tools.exact import as_json, exactly, refuse_changed, refuse_inexact


class Kind(enum.Enum):
    A = "a"


class Named(BaseModel):
    amount: int = Field(1, alias="amountMinor")


class Names(RootModel[list[str]]):
    pass


ITS_NAME = Annotated[Kind, AfterValidator(attrgetter("name"))]


@dataclasses.dataclass
class Pair:
    one: Kind
    two: tuple[int, ...]


@pytest.mark.parametrize("kind", [int, str | None, list[Named], dict[str, Pair], Kind, Literal["a"], datetime])
def test_an_exact_type_is_taken(kind: Any) -> None:
    refuse_inexact(TypeAdapter(kind), "pay", ("x",))


@pytest.mark.parametrize("kind", [bytes, set[int], dict[int, str], timedelta, list[bytes], Kind | bytes, ITS_NAME])
def test_another_one_is_refused_with_its_place(kind: Any) -> None:
    with pytest.raises(InvalidTool) as caught:
        refuse_inexact(TypeAdapter(kind), "pay", ("x",))
    assert (caught.value.problems[0].code, caught.value.problems[0].pointer) == ("changes_value", "/pay/x")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Kind.A, "a"),
        (Named(amountMinor=3), {"amountMinor": 3}),
        (Names(["a"]), ["a"]),
        (Pair(Kind.A, (1, 2)), {"one": "a", "two": [1, 2]}),
        (datetime(2026, 5, 4, 9, tzinfo=UTC), "2026-05-04T09:00:00Z"),
        (datetime(2026, 5, 4, 9, tzinfo=timezone(timedelta(hours=2))), "2026-05-04T09:00:00+02:00"),
        (date(2026, 5, 4), "2026-05-04"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (SecretStr("word"), "word"),
        ({"a": [None, True]}, {"a": [None, True]}),
    ],
)
def test_what_was_received_is_written_as_its_json(value: Any, written: Any) -> None:
    assert as_json(value) == written


@pytest.mark.parametrize("received", [{"x": "A"}, {}, {"x": "a", "y": 1}, {"x": object()}, {"x": True}, "a"])
def test_another_value_than_the_judged_one_is_refused(received: Any) -> None:
    with pytest.raises(BusinessError) as caught:
        refuse_changed({"x": "a"}, received)
    assert caught.value.code == "arguments_changed"
    refuse_changed({"x": "a"}, {"x": "a"})


@pytest.mark.parametrize(("judged", "runs"), [({"account": "a"}, False), ({"account": "a", "fast": True}, True)])
def test_a_default_that_only_the_function_has_counts_as_an_argument(judged: dict[str, Any], runs: bool) -> None:
    """Nobody judged it, and the function would run with it."""
    got = list[tuple[str, bool]]()

    def pay(account: str, fast: bool = True) -> None:
        got.append((account, fast))

    called = exactly(pay, judged)
    if runs:
        called(account="a")
    else:
        with pytest.raises(BusinessError, match="fast"):
            called(account="a")
    assert got == ([("a", True)] if runs else [])
