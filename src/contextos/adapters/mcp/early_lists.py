"""`EarlyLists`: listings of tools that are begun when a call is expected, so that the call does not wait for them.

A listing is for one call. It is used if it was begun for this call, in the same session, at most `FRESH_S` seconds ago,
and if the server did not report a change of its list since. Otherwise the call lists anew. A listing that fails or is
not used changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

FRESH_S: Final = 5.0
MAX_EARLY: Final = 64

Listed = list[dict[str, Any]]


class ListsTools(Protocol):
    """A session with a server. `changes` counts the events that make an earlier list void."""

    @property
    def changes(self) -> int: ...

    async def list_tools(self, trace: Mapping[str, str] = ...) -> Listed: ...


class _EarlyListing(NamedTuple):
    at_s: float
    session: ListsTools
    changes: int
    listing: asyncio.Task[Listed]


class EarlyLists:
    """The listings that are begun and not used yet, at most `MAX_EARLY`, by the id of their call. Runs on one event
    loop.
    """

    def __init__(self) -> None:
        self._listings: dict[str, _EarlyListing] = {}

    def begin(self, tool_call_id: str, session: ListsTools) -> None:
        """Begin the listing for a call, unless it is begun already. Raises nothing."""
        now_s = asyncio.get_running_loop().time()
        for call_id in [key for key, early in self._listings.items() if now_s - early.at_s > FRESH_S]:
            self._listings.pop(call_id).listing.cancel()
        if tool_call_id in self._listings or len(self._listings) >= MAX_EARLY:
            return
        changes, listing = session.changes, asyncio.create_task(session.list_tools())
        listing.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._listings[tool_call_id] = _EarlyListing(now_s, session, changes, listing)

    async def listed(self, tool_call_id: str, session: ListsTools, trace: Mapping[str, str]) -> Listed:
        """Return the tools that the server lists, from the listing that was begun for this call if there is one.
        `trace` has the trace headers of the call; an early listing has none. If the server reports a change of its list
        meanwhile, it is asked once more.

        Raises whatever the SDK raises, and `Unavailable` as `McpSession.list_tools`.
        """
        early = self._listings.pop(tool_call_id, None)
        if early is not None and early.session is session:
            loop, deadline_s = asyncio.get_running_loop(), early.at_s + FRESH_S
            # An exception of the early listing does not count: the call asks again.
            with suppress(Exception):
                if loop.time() <= deadline_s:
                    async with asyncio.timeout_at(deadline_s):
                        tools = await early.listing
                    if session.changes == early.changes:
                        return tools
        if early is not None:
            early.listing.cancel()
        changes = session.changes
        tools = await session.list_tools(trace)
        return tools if session.changes == changes else await session.list_tools(trace)
