"""The system clock gives Unix time in microseconds."""

from __future__ import annotations

import time

from contextos.store.shared.clock import SystemClock


def test_the_clock_reads_microseconds_of_unix_time() -> None:
    before = time.time_ns() // 1000
    assert before <= SystemClock().now_us() <= time.time_ns() // 1000
