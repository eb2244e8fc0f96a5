"""What the store says before a call is sent, looked at once: all guards of the call read the same answer.

What must still hold when the call is sent is checked by its version in that commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from contextos.contracts.documents.collection import FoundDocuments, find_documents
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.ports.storage import Store


class Barrier:
    """The look of one run at its store. `forget` it where time passed outside: what was found counts no more.

    `active_sought` returns what has to be found so that the catalog knows what is active.
    """

    def __init__(self, store: Store, run_id: str, active_sought: Callable[[], Mapping[str, Any]]) -> None:
        self._store, self._cancel, self._active_sought = store, CANCELS.place(run_id), active_sought
        self.forget()

    def forget(self) -> None:
        """Let the next `found` read the store, and find only whether the run is cancelled and what is sought then."""
        self._found: FoundDocuments | None = None
        self._sought: dict[str, dict[Any, None]] = {"places": {self._cancel: None}, "prefixes": {}, "lines": {}}

    def expect(self, *, active: bool = False, **sought: Any) -> None:
        """Let the next look find this too: `places`, `prefixes` and `lines` as of `Store.look`, and what is active."""
        for name, these in (*sought.items(), *(self._active_sought().items() if active else ())):
            if lacking := [one for one in these if one not in self._sought[name]]:
                self._sought[name].update(dict.fromkeys(lacking))
                self._found = None

    async def found(self, *, active: bool = False, **sought: Any) -> FoundDocuments:
        """Return what was found at the last look, or look again if all of this was not sought then."""
        self.expect(active=active, **sought)
        if self._found is None:
            places, prefixes, lines = self._sought.values()
            self._found = await find_documents(self._store, *places, prefixes=[*prefixes], lines=[*lines])
        return self._found
