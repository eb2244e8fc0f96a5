"""The system clock: the default with which a store compares the deadlines of writes."""

from __future__ import annotations

import time


class SystemClock:
    """The `Clock` of the machine: Unix time in microseconds."""

    def now_us(self) -> int:
        return time.time_ns() // 1000
