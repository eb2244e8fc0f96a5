"""Whether the status of a file tells that the file changed again."""

from __future__ import annotations

import os
import time
from typing import Final

STEP_NS: Final = 20_000_000
"""Longer than a step of the clock by which a file system dates changes: 1 to 10 ms on Linux."""


def is_settled(*statuses: os.stat_result) -> bool:
    """Return whether one more change of these files would have another time than their last.

    Two changes within one step have the same time, so that what was read between them would count for ever. What is
    read of a file that just changed is read again.
    """
    now_ns = time.time_ns()
    return all(abs(now_ns - status.st_ctime_ns) > STEP_NS for status in statuses)
