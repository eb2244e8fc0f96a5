"""Reads an answer that is JSON, but not I-JSON within the limits, as far as that is possible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from contextos.contracts.encoding.pointer import MISSING
from contextos.errors import Problem

MAX_DIGITS: Final = 17
_DECODER: Final = json.JSONDecoder(parse_int=lambda text: int(text) if len(text) <= MAX_DIGITS else float("inf"))


def read_refused(raw: bytes) -> Any:
    """Return the value of a JSON text that `loads` refuses, to find the request that it answers; `MISSING` for a text
    that cannot be read at all.
    """
    try:
        return _DECODER.decode(raw.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return MISSING


def is_whole(raw: bytes) -> bool:
    """Return whether a text that `loads` refuses seems to be complete JSON, from its start to its end."""
    return read_refused(raw) is not MISSING or (raw.lstrip()[:1] in b"[{" and raw.rstrip()[-1:] in (b"]", b"}"))


def says_twice(problems: Sequence[Problem], depth: int) -> bool:
    """Return whether a member of the outer `depth` levels is there twice, so that its value is not known."""
    return any(problem.code == "duplicate_key" and problem.pointer.count("/") <= depth for problem in problems)
