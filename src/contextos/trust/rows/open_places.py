"""Caps the open questions to one role of a tenant, and the open sessions of one agent.

There is a document for each place below the cap. The commit that opens a question or a session takes a free place with
it, so two processes cannot both take the last one. A place is free again once its question or session is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from contextos.contracts.documents.collection import Collection as Documents
from contextos.contracts.documents.collection import find_documents
from contextos.contracts.documents.operations import APPROVALS, OPEN_QUESTIONS, OPEN_SESSIONS, OpenPlace
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.journal import INDEX, Write
from contextos.contracts.ports.storage import Store
from contextos.errors import Overloaded

LOOK_AT_FIRST: Final = 8
"""How many places are looked at first, from a place that depends on the question or session; then all are."""
RETRY_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class OpenPlacesOf:
    """The places of one tenant."""

    store: Store
    max_questions: int
    max_sessions: int

    async def question(self, role: str, approval_id: str) -> Write:
        """Return the write that takes a place for a question to this role. Raises `Overloaded` if there is none."""
        what = (
            f"`{role[:64]}` has all the open questions that `max_open_questions_per_role` allows ({self.max_questions})"
        )
        remedy = "have some answered, denied or cancelled, then do the same again, or let an operator raise the limit"
        return await self._take(OPEN_QUESTIONS, role, approval_id, self.max_questions, self._asked, (what, remedy))

    async def session(self, agent_id: str, run_id: str) -> Write:
        """Return the write that takes a place for a session of this agent. Raises `Overloaded` if there is none."""
        most = self.max_sessions
        what = f"`{agent_id[:64]}` has all the open sessions that `max_open_sessions_per_agent` allows ({most})"
        remedy = "finish or cancel some, then open it again, or let an operator raise the limit"
        return await self._take(OPEN_SESSIONS, agent_id, run_id, most, self._going_on, (what, remedy))

    async def _take(
        self,
        places: Documents[OpenPlace],
        of: str,
        one: str,
        most: int,
        still_open: Callable[[Sequence[str]], Awaitable[Collection[str]]],
        full: tuple[str, str],
    ) -> Write:
        first = int(digest(one.encode()).removeprefix("sha256:")[:8], 16)
        for count in (min(LOOK_AT_FIRST, most), most):
            keys = [f"{of}/{(first + number) % most}" for number in range(count)]
            found = await find_documents(self.store, *map(places.place, keys))
            taken = {key: stored for key in keys if (stored := found.one(places, key)) is not None}
            if absent := next((key for key in keys if key not in taken), None):
                return places.write(absent, 0, OpenPlace(one))
            open_now = await still_open([stored.body.held for stored in taken.values()])
            for key, stored in taken.items():
                if stored.body.held == one or stored.body.held not in open_now:
                    return places.write(key, stored.version, OpenPlace(one))
        detail, remedy = full
        raise Overloaded(places.name, detail, retry_after_ms=RETRY_MS, remedy=remedy)

    async def _asked(self, approvals: Sequence[str]) -> Collection[str]:
        found = await find_documents(self.store, *map(APPROVALS.place, approvals))
        stored = [found.one(APPROVALS, one) for one in approvals]
        return {one.key for one in stored if one is not None and one.body.state == "open"}

    async def _going_on(self, runs: Sequence[str]) -> Collection[str]:
        last = {line.key: line.kind for line in await self.store.lines(INDEX, *runs)}
        return {run for run, kind in last.items() if kind != "run.closed"}
