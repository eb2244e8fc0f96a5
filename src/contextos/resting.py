"""Loops at rest: a run that waits for a person keeps its loop where it stands, and goes on from there when it is woken.

Only memory is saved here, never truth: whatever is not kept, or is not as it was left, is derived again from the
journal, to the same end.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.journal import Rest
from contextos.trust.ledger import RunJournal

MAX_RESTING: Final = 256


class Drive(Generator[Any, Any, Any]):
    """Awaited, it drives a loop on: to its next `Rest`, which it gives, or to its end. Any event loop may drive it.

    All else is between the loop and the event loop, in both directions (PEP 380).
    """

    def __init__(self, loop: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop

    def __await__(self) -> Drive:
        return self

    def send(self, value: Any, /) -> Any:
        return _passed_on(self._loop.send(value))

    def throw(self, *error: Any) -> Any:
        return _passed_on(self._loop.throw(*error))


def _passed_on(asked: Any) -> Any:
    if isinstance(asked, Rest):
        raise StopIteration(asked)
    return asked


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
