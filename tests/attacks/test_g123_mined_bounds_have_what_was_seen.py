"""G123: a part of a number, and an account that nobody was seen to use, within a mined bound."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.packs.mining.bounds import bound_of
from contextos.trust.policy.constraints import check_args, lint_constraint

ACCOUNTS = [f"acc_{number:05d}" for number in range(10_100, 10_130)]
IBANS = [f"DE89370400440532{number:06d}" for number in range(20)]


def passes(seen: list[Any], value: Any) -> bool:
    bound = bound_of(seen)
    assert bound is not None
    assert lint_constraint(bound, "") == ()
    return not check_args({"x": (bound,)}, {"x": value}, approved=False)


@pytest.mark.parametrize("seen", [[1, 2, 500], [1.0, 2, 500.0], list(range(40))])
@pytest.mark.parametrize("value", [1.5, 2.000001, 0.5, 1e-9])
def test_no_part_of_a_number_passes_where_only_whole_ones_were_seen(seen: list[Any], value: float) -> None:
    assert all(passes(seen, one) for one in seen)
    assert passes(seen, 2.0)
    assert not passes(seen, value)


def test_where_parts_were_seen_others_within_the_range_pass() -> None:
    assert passes([1, 2.5, 9], 3.25)


@pytest.mark.parametrize(
    ("seen", "other"),
    [(ACCOUNTS, "acc_10150"), (ACCOUNTS, "acc_10099"), (IBANS, "DE89370400440532999999"), (ACCOUNTS, "acc_1010")],
)
def test_no_account_passes_that_nobody_was_seen_to_use(seen: list[str], other: str) -> None:
    assert all(passes(seen, one) for one in seen)
    assert not passes(seen, other)
