"""What the store says before a call is sent, looked at once: all guards of the call read the same answer.

What must still hold when the call is sent is checked by its version in that commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from contextos.contracts.documents.collection import FoundDocuments, find_documents
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.journal import Entry
from contextos.contracts.ports.storage import Store


class Barrier:
    """The look of one run at its store. `forget` it where time passed outside: what was found counts no more.

    `active_sought` returns what has to be found so that the catalog knows what is active.
    """

    def __init__(self, store: Store, run_id: str, active_sought: Callable[[], Mapping[str, Any]]) -> None:
        self._store, self._cancel, self._active_sought = store, CANCELS.place(run_id), active_sought
        self._lines: dict[tuple[str, int], None] = {}
        self.forget()

    def forget(self) -> None:
        """Let the next `found` read the store, and find only whether the run is cancelled and what is sought then."""
        self._found: FoundDocuments | None = None
        self._sought: dict[str, dict[Any, None]] = {"places": {self._cancel: None}, "prefixes": {}, "lines": {}}

    def anew(self) -> None:
        """As `forget`; the next look also finds what is active, and all that `lines` was asked for in this run."""
        self.forget()
        self.expect(active=True, lines=[*self._lines])

    def expect(self, *, active: bool = False, **sought: Any) -> None:
        """Let the next look find this too: `places`, `prefixes` and `lines` as of `Store.look`, and what is active."""
        for name, these in (*sought.items(), *(self._active_sought().items() if active else ())):
            known = self._sought[name]
            before = len(known)
            known.update(dict.fromkeys(these))
            if len(known) > before:
                self._found = None

    async def found(self, *, active: bool = False, **sought: Any) -> FoundDocuments:
        """Return what was found at the last look, or look again if all of this was not sought then."""
        self.expect(active=active, **sought)
        if (found := self._found) is None:
            asked = self._sought
            places, prefixes, lines = map(list, asked.values())
            found = await find_documents(self._store, *places, prefixes=prefixes, lines=lines)
            # What looks at an open question can do so while its run goes on. What is sought only grows.
            if asked is self._sought and [*map(len, asked.values())] == [len(places), len(prefixes), len(lines)]:
                self._found = found
        return found

    async def lines(self, _control: str, *keys: str) -> Sequence[Entry]:
        """Return what `Store.lines` returns for `control`, as it was found at the last look."""
        self._lines.update(asked := dict.fromkeys(zip(keys, repeat(0))))
        found = await self.found(lines=asked)
        return [line for line in found.lines if line.key in keys]
