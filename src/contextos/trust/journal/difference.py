"""Where a value that was derived again differs from the recorded one."""

from __future__ import annotations

from typing import Any


def first_difference(recorded: Any, derived: Any, where: str = "") -> str:
    """Return a sentence that names the first place (JSON Pointer) where two JSON values differ, keys in order."""
    if isinstance(recorded, dict) and isinstance(derived, dict):
        for name in sorted(recorded.keys() | derived.keys()):
            if recorded.get(name) != derived.get(name):
                return first_difference(recorded.get(name), derived.get(name), f"{where}/{name}")
    if isinstance(recorded, list) and isinstance(derived, (list, tuple)) and len(recorded) == len(derived):
        for index, (one, other) in enumerate(zip(recorded, derived, strict=True)):
            if one != other:
                return first_difference(one, other, f"{where}/{index}")
    return f"differs from what was recorded at `{where or '/'}`"
