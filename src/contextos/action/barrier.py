"""Read the store once before a call is sent, so that all guards of the call read the same answer.

A document that must be unchanged when the call is sent is checked by its version in the commit of the dispatch.
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
    """The documents of the store as one run read them last. Call `forget` when time has passed outside, so that the
    store is read again. `active_sought` returns the places that the catalog reads to know what is active.
    """

    def __init__(self, store: Store, run_id: str, active_sought: Callable[[], Mapping[str, Any]]) -> None:
        self._store, self._cancel, self._active_sought = store, CANCELS.place(run_id), active_sought
        self._asked_lines: dict[tuple[str, int], None] = {}
        self.forget()

    def forget(self) -> None:
        """Drop the last answer: the next `found` reads the store for a cancel request and its own arguments only."""
        self._last_answer: FoundDocuments | None = None
        self._sought: dict[str, dict[Any, None]] = {"places": {self._cancel: None}, "prefixes": {}, "lines": {}}

    def anew(self) -> None:
        """Do as `forget`, but the next look also finds the active artifacts, and all keys that `lines` ever got."""
        self.forget()
        self.expect(active=True, lines=[*self._asked_lines])

    def expect(self, *, active: bool = False, **sought: Any) -> None:
        """Let the next look also find `places`, `prefixes` and `lines` (as in `Store.look`), and active artifacts."""
        for name, values in (*sought.items(), *(self._active_sought().items() if active else ())):
            wanted = self._sought[name]
            size_before = len(wanted)
            wanted.update(dict.fromkeys(values))
            if len(wanted) > size_before:
                self._last_answer = None

    async def found(self, *, active: bool = False, **sought: Any) -> FoundDocuments:
        """Return the answer of the last look, or look again if that look did not include all of these arguments."""
        self.expect(active=active, **sought)
        if (answer := self._last_answer) is None:
            wanted = self._sought
            places, prefixes, lines = map(list, wanted.values())
            answer = await find_documents(self._store, *places, prefixes=prefixes, lines=lines)
            # Another task of the run can change `_sought` meanwhile. It only grows, so its sizes show whether it did.
            if wanted is self._sought and [*map(len, wanted.values())] == [len(places), len(prefixes), len(lines)]:
                self._last_answer = answer
        return answer

    async def lines(self, _control: str, *keys: str) -> Sequence[Entry]:
        """Return the entries that `Store.lines` returns for the stream `control`, as of the last look."""
        self._asked_lines.update(wanted := dict.fromkeys(zip(keys, repeat(0))))
        answer = await self.found(lines=wanted)
        return [entry for entry in answer.lines if entry.key in keys]
