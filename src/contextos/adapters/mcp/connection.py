"""`McpSessions`: the sessions with an MCP server, one at a time. A call that finds no usable session makes a new one.

All sessions run on one event loop. A fault of the server ends its session. The caller gets an exception of any class,
and turns it into an error that its port promises.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, time
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import anyio
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
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contextos.adapters.mcp.definitions import McpConnection, ToolOperation, is_as_published
from contextos.adapters.mcp.early_lists import EarlyLists
from contextos.adapters.mcp.messages import UnreadableAnswer, is_success
from contextos.adapters.mcp.transports import HttpTransport, StdioTransport
from contextos.contracts.encoding.codec import problems_of
from contextos.errors import Unavailable

SESSION_TIMEOUT_S: Final = 30.0
CLOSE_TIMEOUT_S: Final = 10
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
NO_TRACE: Final[Mapping[str, str]] = MappingProxyType({})
THREAD_NAME: Final = "contextos-mcp"

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class ListedTools(BaseModel):
    """One page of `tools/list`, with every tool as the server wrote it."""

    model_config = ConfigDict(extra="ignore")
    tools: list[Any]
    next_cursor: str | None = Field(default=None, alias="nextCursor")


class WrappedAnswer(BaseModel):
    """The answer to `tools/call` or `tools/list` as `MessageReader` wraps it: `said` is the result as it was sent."""

    model_config = ConfigDict(extra="ignore")
    meta: dict[str, Any] = Field(alias="_meta")


class ToolAnswer(BaseModel):
    """The answer to `tools/call`. `result_type` is `complete`, or names what the server wants before it goes on."""

    model_config = ConfigDict(extra="ignore")
    content: list[dict[str, Any]] = []
    structured: Any = Field(default=None, alias="structuredContent")
    is_error: bool = Field(default=False, alias="isError")
    result_type: str = Field(default="complete", alias="resultType")


class ResourceAnswer(BaseModel):
    """The answer to `resources/read`."""

    model_config = ConfigDict(extra="ignore")
    contents: list[dict[str, Any]]


class Listing(NamedTuple):
    """The tools that a server listed. `asked_s` is the time of the request in seconds, by the monotonic and by the wall
    clock. `changes` is the count of the session at that time. `compared` caches the results of `fits`.
    """

    asked_s: tuple[float, float]
    changes: int
    tools: list[dict[str, Any]]
    compared: dict[tuple[str, str], bool]

    def fits(self, operation: ToolOperation) -> bool:
        """Return whether this list has the tool of an operation as it was published."""
        key = operation.tool, operation.digest
        if key not in self.compared:
            self.compared[key] = is_as_published(operation, self.tools)
        return self.compared[key]

    def age_s(self) -> float:
        """Return the seconds since the server was asked, by the clock that shows more: one can stop or be set back."""
        return max(now_s - asked_s for now_s, asked_s in zip(_now_s(), self.asked_s, strict=True))


class McpSession:
    """One session with a server, from its handshake to its end. It ends with its transport, or by `end`. With `keeps`
    it keeps its newest list of tools for `known`.
    """

    def __init__(self, transport: StdioTransport | HttpTransport, *, keeps: bool = False) -> None:
        self.transport = transport
        self._keeps = keeps
        self._newest_list: Listing | None = None
        self._session_future: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._end_event, self._open_requests, self._is_retired, self._is_ending = asyncio.Event(), 0, False, False
        self.task = asyncio.create_task(self._serve())
        self.task.add_done_callback(_retrieve_exception)

    @property
    def is_usable(self) -> bool:
        return not (self._is_retired or self._end_event.is_set() or self.task.done())

    @property
    def is_open(self) -> bool:
        return self.is_usable and self._session_future.done()

    @property
    def changes(self) -> int:
        """The number of events so far that made a list of tools void, such as the server's notice of a change."""
        return self.transport.reader.changes

    def known(self, max_age_s: float) -> Listing | None:
        """Return the newest list of this session, or None if it is `max_age_s` seconds old or older, or something made
        it void since.
        """
        newest = self._newest_list
        if newest is None or newest.changes != self.changes or newest.age_s() >= max_age_s:
            return None
        return newest

    def forget(self) -> None:
        """Make the list of tools void that the session has now, or is asking for."""
        self.transport.reader.changes += 1

    async def ask(self, request: Any, kind: type[AnswerT]) -> AnswerT:
        """Send a request in this session only, and return its result. Raises whatever the SDK raises,
        `UnreadableAnswer` for an answer that cannot be read, and `ConnectionError` if the session never opened.
        """
        self._open_requests += 1
        try:
            if not self._session_future.done():
                ready: set[asyncio.Future[Any]] = {self._session_future, self.task}
                await asyncio.wait(ready, return_when=asyncio.FIRST_COMPLETED)
            if not self._session_future.done():
                raise ConnectionError("the server did not open a session")
            return await self._session_future.result().send_request(request, kind)
        except MCPError as error:
            if fault := self.transport.reader.fault_of(error):
                raise fault from None
            self._is_retired = self._is_retired or (error.code == CONNECTION_CLOSED and not self.is_stated(error))
            raise
        finally:
            self._open_requests -= 1
            if self._is_retired and not self._open_requests:
                self.end()

    def is_stated(self, error: MCPError) -> bool:
        """Return whether the server itself sent this error of a call. If not, the SDK made it."""
        return self.transport.reader.is_stated(error)

    async def list_tools(self, trace: Mapping[str, str] = NO_TRACE) -> list[dict[str, Any]]:
        """Return all tools that the server lists. `trace` has the W3C trace headers of the call that asks.

        Raises:
            Unavailable: there are more than `MAX_TOOLS` tools or `MAX_PAGES` pages, or a page is not valid.
        """
        asked_s, changes = _now_s(), self.changes
        tools, cursor, seen = list[dict[str, Any]](), None, set[str]()
        for _ in range(MAX_PAGES):
            params = PaginatedRequestParams(cursor=cursor, _meta=_meta(trace)) if cursor is not None or trace else None
            with _within_trace(trace):
                try:
                    wrapped = await self.ask(ListToolsRequest(params=params), WrappedAnswer)
                    page = ListedTools.model_validate(wrapped.meta["said"], by_name=False)
                except ValidationError as error:
                    member = str(error.errors()[0]["loc"][0])
                    raise _listing_fault(f"a page of its list of tools has a wrong `{member}`, or none") from None
                except UnreadableAnswer as fault:
                    raise _listing_fault(f"its list of tools cannot be read ({fault.problem.code})") from None
            tools += [tool if isinstance(tool, dict) else {} for tool in page.tools]
            cursor = page.next_cursor
            if len(tools) > MAX_TOOLS:
                break
            if cursor is None:
                if self._keeps and (self._newest_list is None or self._newest_list.asked_s <= asked_s):
                    self._newest_list = Listing(asked_s, changes, tools, {})
                return tools
            if cursor in seen:
                raise _listing_fault("it sends the same cursor of its list of tools twice")
            seen.add(cursor)
        detail = f"it lists more than {MAX_TOOLS} tools, or more than {MAX_PAGES} pages of them"
        raise Unavailable("the server", detail, remedy="use one that offers only what is needed")

    async def call_tool(self, tool: str, arguments: dict[str, Any], trace: Mapping[str, str] = NO_TRACE) -> ToolAnswer:
        """Call a tool. Raises `UnreadableAnswer`, or whatever the SDK raises."""
        params = CallToolRequestParams(name=tool, arguments=arguments, _meta=_meta(trace))
        with _within_trace(trace):
            wrapped = await self.ask(CallToolRequest(params=params), WrappedAnswer)
        result = wrapped.meta["said"]
        try:
            return ToolAnswer.model_validate(result, by_name=False)
        except ValidationError as error:
            raise UnreadableAnswer(problems_of(error, result)[0], succeeded=is_success(result)) from None

    async def read_resource(self, uri: str, trace: Mapping[str, str] = NO_TRACE) -> ResourceAnswer:
        """Read a resource. Raises `UnreadableAnswer`, or whatever the SDK raises."""
        params = ReadResourceRequestParams(uri=uri, _meta=_meta(trace))
        try:
            with _within_trace(trace):
                return await self.ask(ReadResourceRequest(params=params), ResourceAnswer)
        except ValidationError as error:
            raise UnreadableAnswer(problems_of(error)[0], succeeded=True) from None

    def retire(self) -> None:
        """Give no new call this session, and end it once its open requests are answered. Does not wait."""
        self._is_retired = True
        if not self._open_requests:
            self.end()

    def end(self) -> None:
        """Begin to end the session. Does not wait."""
        is_first, self._is_ending = not self._is_ending, True
        self._end_event.set()
        # Not a second time: that would cut the ending of the process short.
        if is_first and not self._session_future.done():
            self.task.cancel()

    async def _serve(self) -> None:
        info = Implementation(name="contextos", version="1")
        async with asyncio.timeout(SESSION_TIMEOUT_S) as connecting:
            async with Client(self.transport.open(self._end_event), client_info=info, cache=None) as client:
                connecting.reschedule(None)
                self._session_future.set_result(client.session)
                async with anyio.create_task_group() as group:
                    if self._keeps and isinstance(self.transport, StdioTransport):
                        group.start_soon(self._listen, client)
                    await self._end_event.wait()
                    group.cancel_scope.cancel()

    async def _listen(self, client: Client) -> None:
        """Ask a server of MCP 2026-07-28 to report changes of its list of tools, which it does on request only. Over
        HTTP this is not asked. If the server refuses, only the age of a list counts.
        """
        with suppress(Exception):
            async with client.listen(tools_list_changed=True):
                # The server does not report changes from before it took the request.
                self.forget()
                await anyio.sleep_forever()


class McpSessions:
    """The sessions with one server: the one in use, and those that are ending. Runs on one event loop. With `keeps`
    each session keeps its newest list of tools.
    """

    def __init__(self, named: McpConnection, folder: Path, *, keeps: bool = False) -> None:
        self._config, self._folder, self._keeps = named, folder, keeps
        self._current: McpSession | None = None
        self._sessions: set[McpSession] = set()
        self.early = EarlyLists()

    @property
    def transport(self) -> StdioTransport | HttpTransport | None:
        """The transport of the newest session that calls share; None before the first."""
        return self._current.transport if self._current else None

    async def session(self, access_token: str = "") -> McpSession:
        """Return the session in use, or a new one after it ended. It may not be open yet. If each call has a token of
        its own, return a new session for that call alone, which the caller retires.

        Raises:
            Unavailable: the program or a variable that it needs does not exist, or the token of the call is missing.
        """
        if self._config.audience is not None:
            if not access_token:
                raise Unavailable("the server", "it is asked for a user only, with a token that is issued for a call")
            return self._make_session(access_token)
        if self._current is None or not self._current.is_usable:
            self._current = self._make_session("")
        return self._current

    def expect(self, tool_call_id: str, max_age_s: float) -> None:
        """Begin to list the tools for a call that will probably follow. Does nothing if a list is known that is newer
        than `max_age_s` seconds, no session is open, or each call has a token of its own.
        """
        current = self._current
        if self._config.audience is None and current is not None and current.is_open and not current.known(max_age_s):
            self.early.begin(tool_call_id, current)

    async def close(self) -> None:
        """End every session, and every process with it."""
        ending = list(self._sessions)
        for session in ending:
            session.end()
        if tasks := {session.task for session in ending}:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
        for session in ending:
            await session.transport.wait()

    def kill(self) -> None:
        """Kill every process that is left. Safe from any thread."""
        for session in self._sessions:
            session.transport.kill()

    def _make_session(self, access_token: str) -> McpSession:
        self._sessions = {session for session in self._sessions if not session.task.done()}
        session = McpSession(self._make_transport(access_token), keeps=self._keeps)
        self._sessions.add(session)
        return session

    def _make_transport(self, access_token: str) -> StdioTransport | HttpTransport:
        config = self._config
        names = {name: config.source(name) for name in (*config.env, *([config.token_env] if config.token_env else []))}
        env = {name: os.environ.get(source) for name, source in names.items()}
        if missing := [names[name] for name, value in env.items() if value is None]:
            raise Unavailable(f"${missing[0]}", "the environment has no such variable", remedy="set it")
        if config.url:
            return HttpTransport(config, access_token or env.get(config.token_env or "") or "")
        values = {name: value or "" for name, value in env.items()}
        program = config.command[0]
        path = (
            self._folder / program if os.sep in program else shutil.which(program, path=values.get("PATH", os.defpath))
        )
        if path is None or not os.access(path, os.X_OK):
            remedy = "install it, or let it see `PATH`: `--env PATH`, or `PATH` in `env` of the adapter file"
            raise Unavailable(program[:200], "there is no such program", remedy=remedy)
        return StdioTransport(config.command, values, self._folder)


def _now_s() -> tuple[float, float]:
    return monotonic(), time()


def _listing_fault(reason: str) -> Unavailable:
    return Unavailable("the server", reason, remedy="tell who maintains it")


def _meta(trace: Mapping[str, str]) -> Any:
    """Return the trace headers as MCP carries them (SEP-414): without a prefix in `_meta`."""
    return dict(trace) or None


@contextmanager
def _within_trace(trace: Mapping[str, str]) -> Iterator[None]:
    """Make `trace` the current trace. The SDK writes the current trace and baggage of OpenTelemetry into every request,
    and without this they would be those of the embedding program.
    """
    token = attach(TraceContextTextMapPropagator().extract(trace, Context()))
    try:
        yield
    finally:
        detach(token)


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a session that ended, so that asyncio does not print it: its text is the server's."""
    with suppress(asyncio.CancelledError):
        task.exception()


class _RuntimeThreadFilter(logging.Filter):
    """Drops the log records of the SDK in the runtime's own threads, because they hold text of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.threadName or "").startswith(THREAD_NAME)


def silence_sdk() -> None:
    """Keep text of servers out of the log. Records of the SDK in threads of the embedding program are kept."""
    for name in SDK_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(entry, _RuntimeThreadFilter) for entry in logger.filters):
            logger.addFilter(_RuntimeThreadFilter())
