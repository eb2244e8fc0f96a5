"""Loops at rest: a run that waits for a person keeps its loop where it stands, and goes on from there when it is woken.

Only memory is saved here, never truth: whatever is not kept, or is not as it was left, is derived again from the
journal, to the same end.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from contextos.contracts.journal import Rest
from contextos.trust.ledger import RunJournal

MAX_RESTING: Final = 256


class Drive:
    """Awaited, it drives a loop on: to its next `Rest`, or to its end, which is None. Any event loop may drive it."""

    def __init__(self, loop: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop

    def __await__(self) -> Generator[Any, Any, Rest | None]:
        step: Callable[[], Any] = partial(self._loop.send, None)
        while True:
            try:
                asked = step()
            except StopIteration:
                return None
            if isinstance(asked, Rest):
                return asked
            # All else is between the loop and the event loop, in both directions (PEP 380).
            try:
                yield asked
            except BaseException as thrown:  # noqa: BLE001 - a cancellation belongs to the loop too
                step = partial(self._loop.throw, thrown)
            else:
                step = partial(self._loop.send, None)


@dataclass(frozen=True, slots=True)
class Resting:
    """A loop at rest, its journal, and the deployment as it was then: where that is another, the loop is not kept."""

    drive: Drive
    journal: RunJournal
    outside: tuple[Any, ...]


class RestingLoops:
    """At most `MAX_RESTING` loops by run; the one that rests longest makes room. May be used from any thread."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Resting] = {}

    def keep(self, run: tuple[str, str], resting: Resting) -> None:
        self._kept[run] = resting
        for oldest in list(self._kept)[:-MAX_RESTING]:
            self._kept.pop(oldest, None)

    def take(self, run: tuple[str, str]) -> Resting | None:
        return self._kept.pop(run, None)
