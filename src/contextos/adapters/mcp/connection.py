"""`McpSessions`: one open session with an MCP server, made when it is needed and made anew after it ended.

It lives on one event loop. What a server does wrong ends the session; the caller learns it as an exception of whatever
kind, and turns it into what its port promises.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from mcp import Client, MCPError
from mcp.client.session import ClientSession
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    Implementation,
    ListToolsRequest,
    PaginatedRequestParams,
    ReadResourceRequest,
    ReadResourceRequestParams,
)
from pydantic import BaseModel, ConfigDict, Field

from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.transports import HttpTransport, StdioTransport
from contextos.errors import Unavailable

SESSION_TIMEOUT_S: Final = 30.0
MAX_PAGES: Final = 32
MAX_TOOLS: Final = 1_000
SDK_LOGGERS: Final = (
    "client",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.http2",
    "httpcore2.proxy",
    "httpcore2.socks",
    "httpx2",
    "mcp.client.client",
    "mcp.client.streamable_http",
    "mcp.shared.dispatcher",
    "mcp.shared.jsonrpc_dispatcher",
)
THREAD_NAME: Final = "contextos-mcp"

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class ListedTools(BaseModel):
    """One page of `tools/list`, with every tool as the server wrote it."""

    model_config = ConfigDict(extra="ignore")
    tools: list[dict[str, Any]]
    next_cursor: str | None = Field(default=None, alias="nextCursor")


class ToolAnswer(BaseModel):
    """The answer to `tools/call`. `result_type` is `complete`, or what the server wants before it goes on."""

    model_config = ConfigDict(extra="ignore")
    content: list[dict[str, Any]] = []
    structured: Any = Field(default=None, alias="structuredContent")
    is_error: bool = Field(default=False, alias="isError")
    result_type: str = Field(default="complete", alias="resultType")


class ResourceAnswer(BaseModel):
    """The answer to `resources/read`."""

    model_config = ConfigDict(extra="ignore")
    contents: list[dict[str, Any]]


class McpSessions:
    """Sessions with one server, one at a time. Everything but the constructor runs on one event loop."""

    def __init__(self, named: McpConnection, folder: Path) -> None:
        self._named, self._folder = named, folder
        self._running: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[ClientSession] | None = None
        self._over = asyncio.Event()
        self.transport: StdioTransport | HttpTransport | None = None

    async def list_tools(self, until: Callable[[dict[str, Any]], bool]) -> tuple[ClientSession, list[dict[str, Any]]]:
        """Return the session, and the tools that the server lists in it up to the page with one for which `until` is
        true.

        At most `MAX_PAGES` pages are read, and none after more than `MAX_TOOLS` tools; what comes later is not listed.
        """
        session, tools, cursor = await self.session(), list[dict[str, Any]](), None
        for _ in range(MAX_PAGES):
            params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            page = await self._ask(session, ListToolsRequest(params=params), ListedTools)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or len(tools) > MAX_TOOLS or any(until(tool) for tool in page.tools):
                break
        return session, tools

    async def call_tool(self, session: ClientSession, tool: str, arguments: dict[str, Any]) -> ToolAnswer:
        """Call a tool in the session in which it was listed, and in no other. Raises whatever the SDK raises."""
        params = CallToolRequestParams(name=tool, arguments=arguments)
        return await self._ask(session, CallToolRequest(params=params), ToolAnswer)

    async def read_resource(self, session: ClientSession, uri: str) -> ResourceAnswer:
        """Read a resource. Raises whatever the SDK raises."""
        return await self._ask(session, ReadResourceRequest(params=ReadResourceRequestParams(uri=uri)), ResourceAnswer)

    async def reset(self) -> None:
        """End the session, and the process of the server with it. The next call makes another."""
        running, self._running, self._opened = self._running, None, None
        if running is not None:
            self._over.set()
            await asyncio.wait({running})
            _forget(running)

    async def session(self) -> ClientSession:
        """Return the open session, or a new one after it ended. Raises `Unavailable`, or whatever the SDK raises."""
        if self._running is None or self._running.done() or self._over.is_set():
            self.transport = self._transport()
            self._over, self._opened = asyncio.Event(), asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._serve(self.transport, self._opened, self._over))
            self._running.add_done_callback(_forget)
        opened, running = self._opened, self._running
        assert opened is not None, "it is made with the task"
        ready: set[asyncio.Future[Any]] = {opened, running}
        await asyncio.wait(ready, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            raise ConnectionError("the server did not open a session")
        return opened.result()

    async def _ask(self, session: ClientSession, request: Any, kind: type[AnswerT]) -> AnswerT:
        try:
            return await session.send_request(request, kind)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and self._is_current(session):
                self._over.set()
            raise

    def _is_current(self, session: ClientSession) -> bool:
        return self._opened is not None and self._opened.done() and self._opened.result() is session

    async def _serve(
        self, transport: StdioTransport | HttpTransport, opened: asyncio.Future[ClientSession], over: asyncio.Event
    ) -> None:
        info = Implementation(name="contextos", version="1")
        async with asyncio.timeout(SESSION_TIMEOUT_S) as connecting:
            async with Client(transport.open(over), client_info=info, cache=None) as client:
                connecting.reschedule(None)
                opened.set_result(client.session)
                await over.wait()

    def _transport(self) -> StdioTransport | HttpTransport:
        named = self._named
        env = {name: os.environ.get(name) for name in (*named.env, *([named.token_env] if named.token_env else []))}
        if missing := [name for name, value in env.items() if value is None]:
            raise Unavailable(f"${missing[0]}", "the environment has no such variable; set it")
        if named.url:
            return HttpTransport(named.url, env.get(named.token_env or "") or "")
        return StdioTransport(named.command, {name: value or "" for name, value in env.items()}, self._folder)


def _forget(task: asyncio.Task[None]) -> None:
    """Take the exception of a session that ended, whose text is the server's, so that nothing prints it."""
    with suppress(asyncio.CancelledError):
        task.exception()


class _NotOurs(logging.Filter):
    """Drops what the SDK logs in our threads: it holds text of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.threadName or "").startswith(THREAD_NAME)


def silence_sdk() -> None:
    """Keep text of servers out of the log. What the SDK logs for the embedding program itself is not changed."""
    for name in SDK_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, _NotOurs) for one in logger.filters):
            logger.addFilter(_NotOurs())
