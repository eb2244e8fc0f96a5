"""Errors name the place and the remedy, and each class has one stable code."""

from __future__ import annotations

import pickle

import pytest

from contextos import errors
from contextos.errors import (
    ApprovalRefused,
    ContextOSError,
    InvalidInput,
    Overloaded,
    Problem,
    RequestRefused,
    StoreRestored,
    Unavailable,
)


def every(kind: type[ContextOSError]) -> list[type[ContextOSError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in every(below))]


def test_every_class_has_a_code_of_its_own_and_an_exit_code_of_the_command_line() -> None:
    classes = [one for one in every(ContextOSError) if one.__module__ == errors.__name__]
    assert len({one.code for one in classes}) == len(classes)
    assert {one.exit_code for one in classes} <= {1, 2, 3, 4}
    assert all(one.__doc__ for one in classes)


def test_an_input_error_counts_its_further_problems() -> None:
    one = Problem("/a", "missing", "it is required", "add it")
    assert str(InvalidInput(one)) == "at `/a`: it is required; add it"
    assert str(InvalidInput(one, one, one)).endswith("(+2 more)")


def test_whatever_is_unavailable_says_when_to_come_again() -> None:
    assert "try again in 7 ms" in str(Overloaded("tenant", "full", retry_after_ms=7))
    restored = StoreRestored("record the restore")
    assert isinstance(restored, Unavailable)
    assert restored.retry_after_ms > 0


def test_where_a_person_has_to_act_first_no_time_is_named() -> None:
    assert str(Unavailable("$A", "it is not set", remedy="set it")) == "`$A` is unavailable: it is not set; set it"


@pytest.mark.parametrize(
    "error",
    [
        ContextOSError("it is over"),
        InvalidInput(Problem("/a", "missing", "it is required", "add it"), Problem("", "odd", "it is odd")),
        ApprovalRefused("expired", "it is too late"),
        Overloaded("tenant", "full", retry_after_ms=7),
        RequestRefused(403, "not_allowed", "about:blank", "Forbidden", "a role is missing"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_reaches_another_process_whole(error: ContextOSError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))
