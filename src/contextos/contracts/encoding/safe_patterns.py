"""Patterns of texts that others write: RE2, which searches in linear time and has no look-around."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2  # type: ignore[import-untyped]

MAX_PATTERN_BYTES: Final = 1 << 20
"""Memory limit of one compiled pattern, in bytes; RE2 refuses a larger one."""


@lru_cache(maxsize=1024)
def safe_pattern(pattern: str) -> Any | None:
    """Return the compiled pattern, or None if RE2 refuses it.

    >>> safe_pattern("(?=a)") is None, safe_pattern("ord_([0-9]+)").groups
    (True, 1)
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        return None
