"""The bounds of an auto-approval: the conditions and the limits that each of them means."""

from __future__ import annotations

from contextos.packs.declaration import ArgumentBounds

FACT = {"var": "args.amount"}


def test_bounds_mean_the_conditions_and_the_limits_of_the_argument() -> None:
    bounds = ArgumentBounds(min=1, max=5, enum=(1, 2))
    assert bounds.conditions("amount") == [{">=": [FACT, 1]}, {"<=": [FACT, 5]}, {"in": [FACT, [1, 2]]}]
    assert bounds.limits() == {"min": 1, "max": 5, "enum": [1, 2], "required": True}


def test_a_free_argument_has_no_condition_and_can_be_absent() -> None:
    free = ArgumentBounds.model_validate({"any": True})
    assert (free.conditions("amount"), free.limits()) == ([], {"required": False})
