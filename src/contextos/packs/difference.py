"""Compares two whole packs, field by field. Entries of a list are compared by their id, not by their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.pointer import MISSING, pointer
from contextos.packs.printing import print_condition

_IDS: Final = (
    "rule_id",
    "bundle_id",
    "gate_id",
    "permission_id",
    "adapter_id",
    "decision_key",
    "intent_id",
    "template_id",
    "decision_id",
    "intent",
    "name",
    "id",
)
"""The fields that can identify an entry of a list, the most specific first."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. `before` or `after` is `MISSING` if the field is not there.

    `at` is a JSON Pointer in which an entry of a list is named by its id. A rule's condition is one field, as text.
    """

    at: str
    before: Any
    after: Any


def pack_changes(before: Any, after: Any) -> list[FieldChange]:
    """Return the fields in which two JSON documents of packs differ, sorted by their place."""
    old, new = dict(_leaves(before, ())), dict(_leaves(after, ()))
    places = sorted(old.keys() | new.keys())
    diffs = [FieldChange(place, old.get(place, MISSING), new.get(place, MISSING)) for place in places]
    return [diff for diff in diffs if diff.before is MISSING or diff.after is MISSING or diff.before != diff.after]


def _leaves(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str, Any]]:
    if path and path[-1] == "if" and isinstance(value, dict):
        yield pointer(path), print_condition(value)
    elif isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _leaves(child, (*path, name))
    elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        names = [next((str(entry[key]) for key in _IDS if isinstance(entry.get(key), str)), "") for entry in value]
        for index, (name, entry) in enumerate(zip(names, value, strict=True)):
            yield from _leaves(entry, (*path, name if name and names.count(name) == 1 else index))
    else:
        yield pointer(path), value
