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
        detail = (
            f"`{role[:64]}` has all the open questions that `max_open_questions_per_role` allows ({self.max_questions})"
        )
        remedy = "have some answered, denied or cancelled, then do the same again, or let an operator raise the limit"
        return await self._take_place(
            OPEN_QUESTIONS, role, approval_id, self.max_questions, self._open_questions, (detail, remedy)
        )

    async def session(self, agent_id: str, run_id: str) -> Write:
        """Return the write that takes a place for a session of this agent. Raises `Overloaded` if there is none."""
        limit = self.max_sessions
        detail = f"`{agent_id[:64]}` has all the open sessions that `max_open_sessions_per_agent` allows ({limit})"
        remedy = "finish or cancel some, then open it again, or let an operator raise the limit"
        return await self._take_place(OPEN_SESSIONS, agent_id, run_id, limit, self._open_sessions, (detail, remedy))

    async def _take_place(
        self,
        places: Documents[OpenPlace],
        owner: str,
        holder: str,
        limit: int,
        find_open: Callable[[Sequence[str]], Awaitable[Collection[str]]],
        refusal: tuple[str, str],
    ) -> Write:
        start = int(digest(holder.encode()).removeprefix("sha256:")[:8], 16)
        for count in (min(LOOK_AT_FIRST, limit), limit):
            keys = [f"{owner}/{(start + number) % limit}" for number in range(count)]
            documents = await find_documents(self.store, *map(places.place, keys))
            held = {key: stored for key in keys if (stored := documents.one(places, key)) is not None}
            if free_key := next((key for key in keys if key not in held), None):
                return places.write(free_key, 0, OpenPlace(holder))
            open_holders = await find_open([stored.body.held for stored in held.values()])
            for key, stored in held.items():
                if stored.body.held == holder or stored.body.held not in open_holders:
                    return places.write(key, stored.version, OpenPlace(holder))
        detail, remedy = refusal
        raise Overloaded(places.name, detail, retry_after_ms=RETRY_MS, remedy=remedy)

    async def _open_questions(self, approvals: Sequence[str]) -> Collection[str]:
        documents = await find_documents(self.store, *map(APPROVALS.place, approvals))
        stored = [documents.one(APPROVALS, key) for key in approvals]
        return {document.key for document in stored if document is not None and document.body.state == "open"}

    async def _open_sessions(self, run_ids: Sequence[str]) -> Collection[str]:
        last_kinds = {index_entry.key: index_entry.kind for index_entry in await self.store.lines(INDEX, *run_ids)}
        return {run_id for run_id, kind in last_kinds.items() if kind != "run.closed"}
