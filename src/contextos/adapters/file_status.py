"""Decides whether the status of a file shows each further change of the file."""

from __future__ import annotations

import os
import time
from typing import Final

STEP_NS: Final = 20_000_000
"""Longer than a step of the clock by which a file system dates changes: 1 to 10 ms on Linux."""


def is_settled(*statuses: os.stat_result) -> bool:
    """Return whether another change of any of these files would get another time than the file's last change.

    Two changes within one step of the clock have the same time, so a content that was read between them would never be
    replaced. A caller therefore reads a file again that changed just now.
    """
    now_ns = time.time_ns()
    return all(abs(now_ns - status.st_ctime_ns) > STEP_NS for status in statuses)
