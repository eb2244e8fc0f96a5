"""What is kept of tenants is bounded, and two threads see no gap in it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from types import FrameType
from typing import Any

from contextos.deployment import lru


def test_a_known_key_is_visible_at_every_step_at_which_another_thread_can_look() -> None:
    table = OrderedDict.fromkeys(["a", "b"])
    seen: list[list[str]] = []

    def look(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is lru.keep_recent.__code__:
            seen.append(sorted(table))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        lru.keep_recent(table, "a", None, 2)
    finally:
        sys.settrace(before)
    assert len(seen) > 3
    assert all(one == ["a", "b"] for one in seen)
    assert list(table) == ["b", "a"]


def test_the_first_value_is_kept_and_the_least_recently_used_key_is_evicted() -> None:
    table: OrderedDict[str, int] = OrderedDict()
    assert [lru.keep_recent(table, name, number, 2) for number, name in enumerate("abac")] == [0, 1, 0, 3]
    assert list(table) == ["a", "c"]


def test_a_key_evicted_by_another_thread_meanwhile_is_no_error() -> None:
    class Losing(OrderedDict[str, int]):
        def move_to_end(self, key: str, last: bool = True) -> None:
            self.pop("a", None)
            super().move_to_end(key, last)

    table = Losing()
    assert lru.keep_recent(table, "a", 1, 2) == 1
    assert not table
