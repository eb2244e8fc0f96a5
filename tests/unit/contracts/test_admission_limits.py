"""A quota holds a minute's worth, refills evenly, is of each key alone, and takes bounded memory."""

from __future__ import annotations

import pytest

from contextos.contracts.admission_limits import MAX_KEPT_KEYS, PERIOD_US, MinuteQuota

NOW_US = 1_700_000_000_000_000


def test_a_key_has_its_quota_at_once_and_then_one_for_each_part_of_the_minute() -> None:
    quota = MinuteQuota[str](3)
    assert [quota.take("a", NOW_US) for _ in range(4)] == [0, 0, 0, 20_000_000]
    assert quota.take("a", NOW_US + 19_999_999) == 1
    assert quota.take("a", NOW_US + 20_000_000) == 0
    assert quota.take("a", NOW_US + 20_000_000) > 0
    assert [quota.take("a", NOW_US + 3 * PERIOD_US) for _ in range(4)] == [0, 0, 0, 20_000_000]


def test_what_is_refused_uses_nothing_up() -> None:
    quota = MinuteQuota[str](1)
    quota.take("a", NOW_US)
    assert {quota.take("a", NOW_US) for _ in range(100)} == {PERIOD_US}


def test_a_key_takes_nothing_from_another() -> None:
    quota = MinuteQuota[str](1)
    quota.take("a", NOW_US)
    assert (quota.take("b", NOW_US), quota.take("a", NOW_US)) == (0, PERIOD_US)


@pytest.mark.parametrize("back_us", [1, PERIOD_US, 2 * PERIOD_US, 3_600_000_000])
def test_a_clock_that_is_put_back_uses_nothing_up_and_goes_on_from_there(back_us: int) -> None:
    quota, now_us = MinuteQuota[str](3), NOW_US
    assert quota.take("a", now_us) == 0
    now_us -= back_us
    assert [quota.take("a", now_us) for _ in range(3)] == [0, 0, 20_000_000]
    now_us -= back_us
    assert [quota.take("a", now_us), quota.take("b", now_us)] == [20_000_000, 0]
    assert quota.take("a", now_us + 20_000_000) == 0


def test_any_number_of_keys_takes_bounded_memory_and_the_busy_ones_are_kept() -> None:
    quota = MinuteQuota[int](1)
    for number in range(MAX_KEPT_KEYS * 2):
        quota.take(number, NOW_US)
        quota.take(-1, NOW_US)
    assert len(quota._used_until_us) == MAX_KEPT_KEYS
    assert quota.take(-1, NOW_US) == PERIOD_US
