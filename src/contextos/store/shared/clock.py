"""The machine's own clock, which judges the deadlines of writes unless a store is given another."""

from __future__ import annotations

import time


class SystemClock:
    """The `Clock` of the machine: Unix time in microseconds."""

    def now_us(self) -> int:
        return time.time_ns() // 1000
