"""JSON Pointer (RFC 6901): name a place in a JSON value, and read the value there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final


class Missing(Enum):
    """The type of `MISSING`, which `resolve_pointer` returns where no value exists. `MISSING` is falsy and is not
    None.
    """

    MISSING = "missing"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING

_STRAY_TILDE: Final = re.compile(r"~(?![01])")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def pointer(path: Iterable[str | int]) -> str:
    """Return the pointer of a path of keys and indices; the empty path is the whole value.

    >>> pointer(["a/b", "m~n", 0])
    '/a~1b/m~0n/0'
    """
    return "".join([f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path])


def texts_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each text of a JSON value, the names of members included, with the path to it (`pointer`).

    >>> list(texts_in({"a": ["b", 1]}))
    [((), 'a'), (('a', 0), 'b')]
    """
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield path, name
            yield from texts_in(child, (*path, name))
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from texts_in(child, (*path, index))


def last_name(pointer: str) -> str:
    """Return the last name of a pointer, or an empty text for the pointer of the whole value.

    >>> last_name("/input/context/order_id")
    'order_id'
    """
    return pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def resolve_pointer(value: Any, pointer: str) -> Any | Missing:
    """Return the value at `pointer`, or `MISSING`, also if `pointer` is not valid RFC 6901.

    In a list `-`, `01` and negative indices are `MISSING`; a text has no members.

    >>> resolve_pointer({"a": [{"b": None}]}, "/a/0/b") is None
    True
    >>> resolve_pointer({"a": [1]}, "/a/1")
    MISSING
    """
    path = _parse_pointer(pointer)
    if path is None:
        return MISSING
    for step in path:
        if isinstance(value, dict):
            value = value.get(step, MISSING)
        elif isinstance(value, list | tuple) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


@lru_cache(1024)
def _parse_pointer(pointer: str) -> tuple[str, ...] | None:
    """Return the steps of a pointer, or None if it is not valid RFC 6901. The same few are resolved again and again."""
    prefix, *steps = pointer.split("/")
    if prefix or _STRAY_TILDE.search(pointer):
        return None
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)
