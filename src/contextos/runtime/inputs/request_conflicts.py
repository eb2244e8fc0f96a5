"""Show how a request or a call differs from an earlier one with the same id.

The values of the first use are shown only to the same user and agent. Anybody else learns only that the id is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.pointer import MISSING, pointer, resolve_pointer
from contextos.errors import ConflictingRequest, Problem
from contextos.runtime.admission import compared_request

MAX_DIFFERENCES: Final = 8
MAX_BEFORE_CHARS: Final = 80
WHOSE: Final = {"/user/user_id": "user", "/agent/agent_id": "agent"}


class Difference(NamedTuple):
    """A member (JSON Pointer) that differs, and its first value, or None if that value is not shown."""

    place: str
    before: str | None


def differing_places(before: Any, now: Any, path: tuple[str | int, ...] = ()) -> Iterator[str]:
    """Yield the pointer of each place where two JSON values differ, names in order. A member that only one has, or a
    list of another length, is one place.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted(before.keys() | now.keys()):
            yield from differing_places(before.get(name, MISSING), now.get(name, MISSING), (*path, name))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from differing_places(old, new, (*path, index))
    elif before != now or isinstance(before, bool) is not isinstance(now, bool):
        yield pointer(path)


def differences(before: Any, now: Any) -> list[Difference]:
    """Return the first places where two JSON values of one caller differ."""
    return [
        Difference(place, _display(before, place)) for place in islice(differing_places(before, now), MAX_DIFFERENCES)
    ]


def request_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Return how two requests of one id differ, both in their wire form and redacted."""
    before, now = compared_request(before), compared_request(now)
    for place in WHOSE:
        if resolve_pointer(before, place) != resolve_pointer(now, place):
            return [Difference(place, None)]
    return differences(before, now)


def conflict(
    at_id: str,
    said: str,
    found: Iterable[Difference],
    remedy: str,
    *,
    named: Callable[[str], str] = str,
    code: str = "conflicting_request",
) -> ConflictingRequest:
    """Return the error that names each difference. `at_id` is the place of the id, and `said` says when it was
    used. `named` returns the place of a member in the caller's own input.
    """
    problems = []
    for place, before in found:
        member = named(place)
        text = f"`{member}` was {before}" if before is not None else f"the {WHOSE.get(place, 'value')} was another one"
        problems.append(Problem(member, code, f"{text} when {said}", remedy))
    return ConflictingRequest(*problems or [Problem(at_id, code, f"something else was meant when {said}", remedy)])


def _display(before: Any, place: str) -> str:
    value = resolve_pointer(before, place)
    if value is MISSING:
        return "absent"
    text = displayed(canonical(value).decode())
    return f"`{text if len(text) <= MAX_BEFORE_CHARS else text[:MAX_BEFORE_CHARS] + '…'}`"
