"""`McpAdapter`: the `Adapter` port over an MCP server: a process or a URL, with code of somebody else.

Before every call the server is asked for its tools, and the digest of the called tool is compared with the digest in
the adapter file. For a read, an earlier list of the session is enough if it is younger than the file allows
(`definition_max_age_s`) and nothing made it void. If the tool differs, or is gone, nothing is sent. The call then ends
with the business error `definition_drift`: nothing happened, so a write keeps no key and nobody has to settle it. The
Tool Gateway then keeps the capability in quarantine, also if the server changes back.

Up to the call itself every fault is `Unavailable`. After it, a fault is `LostReply` for a write and `Unavailable` for a
read. An error that the server reports is a business error. The session lives on a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import wait
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from contextos.action.registry import Registry
from contextos.action.secret_redactor import SecretRedactor
from contextos.adapters.foreign.adapter_file import with_auth
from contextos.adapters.foreign.replies import artifact_of, paused_task, stated_error, unreadable_answer
from contextos.adapters.foreign.server_adapter import ServerAdapter
from contextos.adapters.loop_thread import LoopThread
from contextos.adapters.mcp.definitions import (
    McpConnection,
    McpOperation,
    ResourceOperation,
    ToolOperation,
    is_as_published,
    misfit,
)
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.secret_shapes import shortened
from contextos.contracts.envelopes.artifacts import ToolArtifact
from contextos.contracts.envelopes.tool import (
    MAX_SAID_CHARS,
    AdapterDefinition,
    AdapterReply,
    CallContext,
    CapabilityDefinition,
)
from contextos.errors import InvalidInput, LostReply, Overloaded, Problem, Unavailable

if TYPE_CHECKING:
    from contextos.adapters.foreign.adapter_file import AdapterFile
    from contextos.adapters.mcp.connection import McpSession, McpSessions, ResourceAnswer, ToolAnswer

ReturnT = TypeVar("ReturnT")
Redact = Callable[[Any], Any]

LIST_TIMEOUT_S: Final = 60
END_TIMEOUT_S: Final = 12
CHECK_SERVER: Final = "check its command, or its URL and token"
BAD_ARGUMENTS: Final = -32602
"""The JSON-RPC error for wrong arguments. A server can send it, like every other error, after an effect too."""
RPC_CODES: Final = {BAD_ARGUMENTS: "tool_refused"}
"""The codes of JSON-RPC errors that have a name of their own here. Any other code is named `jsonrpc_<code>`."""
UNFINISHED: Final = frozenset({"input_required", "task"})
"""The kinds of answer (`result_type`) after which the tool has not finished."""


class McpAdapter(ServerAdapter[McpOperation]):
    """An adapter whose capabilities are tools of one MCP server, and reads of the resources that its file lists.

    `folder` is where the command of the server runs. There is no connection before the first call.
    """

    def __init__(
        self,
        definition: AdapterDefinition,
        connection: McpConnection,
        operations: Mapping[str, McpOperation],
        folder: Path,
    ) -> None:
        super().__init__(definition, operations)
        ages = {name: one.definition_max_age_s for name, one in operations.items() if isinstance(one, ToolOperation)}
        self.definition_max_age_s = {name: age_s for name, age_s in ages.items() if age_s is not None}
        self._named, self._folder, self._published = connection, folder, Registry()
        self._capabilities = self._published.register((definition,))
        self._thread: LoopThread | None = None
        self._open: McpSessions | None = None

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        """Check the definition of the tool, and call it.

        Raises:
            Unavailable: nothing happened.
            LostReply: it may have happened.
        """
        operation, declared = self._known(capability)
        return await self._on_thread(self._call(operation, declared, dict(args), context))

    def expect_call(self, capability: str, tool_call_id: str) -> None:
        """Begin to list the tools for a call that will probably follow, if a session is open."""
        thread, connection = self._thread, self._open
        if (
            thread is not None
            and connection is not None
            and isinstance(self._operations.get(capability), ToolOperation)
        ):
            thread.soon(connection.expect, tool_call_id, self.definition_max_age_s.get(capability, 0))

    async def lookup(self, capability: str, _idempotency_key: str, _context: CallContext) -> AdapterReply | None:
        """Raise `LostReply`: MCP has no way to ask what an earlier call did."""
        raise LostReply(f"`{self._definition.adapter_id}.{capability}` cannot be looked up; settle it by hand")

    async def drifted(self) -> frozenset[str]:
        """Ask the server for its tools, and return the capabilities that are not as they were published.

        Raises:
            Unavailable: the server does not answer.
        """
        return await self._on_thread(self._drifted())

    def close(self) -> None:
        """End the session, and the process of the server with it."""
        thread, connection = self._thread, self._open
        self._thread, self._open = None, None
        if thread is not None and connection is not None:
            _end(thread, connection)

    async def _on_thread(self, work: Coroutine[Any, Any, ReturnT]) -> ReturnT:
        if self._thread is None:
            from contextos.adapters.mcp.connection import THREAD_NAME, McpSessions, silence_sdk

            silence_sdk()
            keeps = bool(self.definition_max_age_s)
            self._thread, self._open = LoopThread(THREAD_NAME), McpSessions(self._named, self._folder, keeps=keeps)
        return await asyncio.wrap_future(self._thread.submit(work))

    async def _drifted(self) -> frozenset[str]:
        assert self._open is not None, "it is made before anything runs on the thread"
        context = CallContext("", "", "", None, 0, 30_000)
        with self._faults("tools/list", context, is_read=True) as faults:
            try:
                async with asyncio.timeout(context.timeout_ms / 1000):
                    listed = await (await self._open.session()).list_tools()
            except TimeoutError:
                faults.uncertain(f"it did not answer in {context.timeout_ms} ms")
        tools = {name: one for name, one in self._operations.items() if isinstance(one, ToolOperation)}
        return frozenset(name for name, one in tools.items() if not is_as_published(one, listed))

    async def _call(
        self, operation: McpOperation, declared: CapabilityDefinition, args: dict[str, Any], context: CallContext
    ) -> AdapterReply:
        assert self._open is not None, "it is made before anything runs on the thread"
        over_at = asyncio.get_running_loop().time() + context.timeout_ms / 1000
        trace = context.headers()
        with ExitStack() as after:
            session, age_ms = await self._compared(operation, declared, context, trace, over_at, after)
            if age_ms is None and isinstance(operation, ToolOperation):
                return self._drift(declared.name).model_copy(update={"definition_age_ms": 0})
            if context.is_late():
                raise Overloaded(self._definition.adapter_id, "its time was over before it had its turn")
            reply: AdapterReply | None = None
            try:
                with self._faults(declared.name, context, is_read=declared.kind == "read") as faults:
                    try:
                        async with asyncio.timeout_at(over_at):
                            reply = await self._send(session, operation, declared, args, context, trace)
                    except TimeoutError:
                        faults.uncertain(f"it did not answer in {context.timeout_ms} ms")
            finally:
                if reply is None or not self._is_good(reply, declared):
                    # The tool can have changed since it was listed.
                    session.forget()
            assert reply is not None, "a fault raises"
            return reply.model_copy(update={"definition_age_ms": age_ms})

    def _is_good(self, reply: AdapterReply, declared: CapabilityDefinition) -> bool:
        """Return whether a reply has an output. If lists are kept for later calls, it also has to fit its schema."""
        if reply.output is None or not self.definition_max_age_s:
            return reply.output is not None
        capability = self._capabilities[f"{self._definition.adapter_id}.{declared.name}"]
        return self._published.check(capability, "output", reply.output) is None

    async def _compared(
        self,
        operation: McpOperation,
        declared: CapabilityDefinition,
        context: CallContext,
        trace: Mapping[str, str],
        over_at: float,
        after: ExitStack,
    ) -> tuple[McpSession, int | None]:
        """Return the session, and the age in ms of the list that has the tool as it was published: 0 if the server was
        asked for this call, None for a resource, or if the tool differs. The call itself is not sent yet, so a fault is
        `Unavailable` also for a write. `after` retires a session that is for this call alone.
        """
        assert self._open is not None, "it is made before anything runs on the thread"
        session: McpSession | None = None
        age_ms: int | None = None
        with self._faults(declared.name, context, is_read=True) as faults:
            try:
                async with asyncio.timeout_at(over_at):
                    session = await self._open.session(context.access_token)
                    if context.access_token:
                        after.callback(session.retire)
                    if isinstance(operation, ToolOperation):
                        known = session.known(self.definition_max_age_s.get(declared.name, 0))
                        if known is not None and known.fits(operation):
                            age_ms = max(1, int(known.age_s() * 1000))
                        elif is_as_published(
                            operation, await self._open.early.listed(context.tool_call_id, session, trace)
                        ):
                            age_ms = 0
            except TimeoutError:
                # The server does not even list its tools: the next call gets another session, open calls keep this one.
                if session is not None:
                    session.retire()
                faults.uncertain(f"it did not list its tools in {context.timeout_ms} ms")
        assert session is not None, "a fault raises"
        return session, age_ms

    async def _send(
        self,
        session: McpSession,
        operation: McpOperation,
        declared: CapabilityDefinition,
        args: dict[str, Any],
        context: CallContext,
        trace: Mapping[str, str],
    ) -> AdapterReply:
        from mcp import MCPError

        from contextos.adapters.mcp.messages import CUT_SHORT, UnreadableAnswer

        redact = SecretRedactor([*self._named.secrets(os.environ), context.access_token]).redact
        try:
            if isinstance(operation, ResourceOperation):
                return _contents(await session.read_resource(args["uri"], trace), args["uri"], declared, redact)
            if operation.key_argument is not None and context.idempotency_key is not None:
                args[operation.key_argument] = context.idempotency_key
            return _reply(await session.call_tool(operation.tool, args, trace), operation, declared, redact)
        except UnreadableAnswer as fault:
            final = fault.succeeded if declared.kind == "write" else fault.problem.code not in CUT_SHORT
            return unreadable_answer(fault.problem, declared, redact, final=final)
        except MCPError as error:
            if error.code != BAD_ARGUMENTS and not session.is_stated(error):
                raise
            said = shortened(redact(error.message), MAX_SAID_CHARS)
            if declared.kind == "read":
                return stated_error(RPC_CODES.get(error.code, f"jsonrpc_{error.code}"), said, declared)
            why = f"the server answered with the error {error.code}; look before it is sent again. It says: {said}"
            raise LostReply(f"`{declared.name}` may have happened: {why}") from None


def mcp_adapter(file: AdapterFile, folder: Path) -> McpAdapter:
    """Make the adapter of a file of the kind `mcp`, without connecting. `folder` is where the command runs.

    Raises:
        InvalidInput: the connection or an operation is not valid, the egress list lacks the server, an operation does
            not fit its capability, or the extra `mcp` is not installed.
    """
    require_mcp()
    connection = parse(McpConnection, file.connection, at="/connection")
    connection.check()
    if (connection.is_remote or connection.audience) and connection.endpoint() not in file.definition.egress:
        remedy = f"add `{connection.endpoint()}` to `egress`, and set `external` to true"
        raise InvalidInput(Problem("/definition/egress", "no_egress_list", "it lacks the server itself", remedy))
    operations: dict[str, McpOperation] = {}
    for capability in file.definition.capabilities:
        said = file.operations[capability.name]
        kind: type[McpOperation] = ResourceOperation if "resources" in said else ToolOperation
        operations[capability.name] = parse(kind, said, at=pointer(("operations", capability.name)))
        fault = misfit(operations[capability.name], capability, own_sessions=connection.audience is not None)
        if fault is not None:
            raise InvalidInput(Problem(f"/operations/{capability.name}", "misfit", *fault))
    definition = with_auth(file.definition, dict.fromkeys(operations, connection.auth))
    return McpAdapter(definition, connection, operations, folder)


def require_mcp() -> None:
    """Raise `InvalidInput` where the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise InvalidInput(Problem("", "missing_extra", "`mcp` is not installed", "install `contextos[mcp]`"))


async def listed_tools(named: McpConnection, folder: Path) -> list[dict[str, Any]]:
    """Return the tools that a server lists now, for the person who drafts its adapter.

    Raises:
        Unavailable: the server does not answer, or lists too many tools. The text has the last line of its stderr, or
            the status with which it refuses.
    """
    from contextos.adapters.mcp.connection import THREAD_NAME, McpSessions, silence_sdk

    silence_sdk()
    thread, sessions = LoopThread(THREAD_NAME), McpSessions(named, folder)

    async def listed() -> list[dict[str, Any]]:
        return await (await sessions.session()).list_tools()

    with ExitStack() as on_exit:
        on_exit.callback(_end, thread, sessions)
        listing = asyncio.wrap_future(thread.submit(listed()))
        # After Ctrl-C nobody waits for it any more, and what it then raises is no news.
        listing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        done, _ = await asyncio.wait({listing}, timeout=LIST_TIMEOUT_S)
        error = listing.exception() if done else None
        if isinstance(error, Unavailable):
            raise error
        if done and error is None:
            return listing.result()
        await asyncio.wrap_future(thread.submit(sessions.close()))
        why = sessions.transport.last_words() if sessions.transport else ""
        raise Unavailable("the server", f"it does not list its tools{why and f': {why}'}", remedy=CHECK_SERVER)


def _end(thread: LoopThread, sessions: McpSessions) -> None:
    """Close the sessions (for `END_TIMEOUT_S` seconds at most), end their thread, and kill processes that are left."""
    wait({thread.submit(sessions.close())}, timeout=END_TIMEOUT_S)
    thread.close()
    sessions.kill()


def _reply(
    answer: ToolAnswer, operation: ToolOperation, declared: CapabilityDefinition, redact: Redact
) -> AdapterReply:
    """Return the answer of a tool as a reply, without the secrets of the connection. The Tool Gateway checks the output
    against the published schema. Raises `LostReply` for a write that has not finished.
    """
    texts = redact(
        [part["text"] for part in answer.content if part.get("type") == "text" and isinstance(part.get("text"), str)]
    )
    if answer.result_type != "complete":
        if declared.kind == "write":
            # A task goes on after this answer, and a tool can ask for input after its effect.
            known = answer.result_type if answer.result_type in UNFINISHED else "of another kind"
            raise LostReply(f"`{declared.name}` may have happened: its answer is `{known}`")
        return paused_task("input_required", "the tool asks for input, which nobody gives it", declared)
    if answer.is_error:
        return stated_error("tool_error", "\n".join(texts), declared)
    made = [one for part in answer.content if (one := _artifact(part, redact)) is not None]
    if operation.output == "text":
        output = {"texts": texts, "omitted": len(answer.content) - len(texts)}
        return AdapterReply(output=output, cost_cents=declared.cost_cents, artifacts=tuple(made))
    if not isinstance(answer.structured, dict):
        absent = Problem("/structuredContent", "no_object", "the structured content is absent, or is not an object")
        return unreadable_answer(absent, declared, redact, final=True)
    return AdapterReply(output=redact(answer.structured), cost_cents=declared.cost_cents, artifacts=tuple(made))


def _artifact(part: Mapping[str, Any], redact: Redact) -> ToolArtifact | None:
    """Return the resource, image or sound that a part of an answer embeds, else None: a link embeds nothing."""
    if part.get("type") in ("image", "audio") and isinstance(part.get("data"), str):
        return artifact_of(part["type"], part.get("mimeType"), part["data"], redact, raw=True)
    found = part.get("resource") if part.get("type") == "resource" else None
    return _resource(found, redact) if isinstance(found, dict) else None


def _resource(found: Mapping[str, Any], redact: Redact) -> ToolArtifact | None:
    kind = "blob" if isinstance(found.get("blob"), str) else "text"
    if not isinstance(found.get(kind), str):
        return None
    return artifact_of(found.get("uri"), found.get("mimeType"), found[kind], redact, raw=kind == "blob")


def _contents(answer: ResourceAnswer, uri: str, declared: CapabilityDefinition, redact: Redact) -> AdapterReply:
    """Return the texts of the resource `uri`, with its bytes as artifacts. Contents with another URI are left out,
    because that resource was not asked for.
    """
    own = [part for part in answer.contents if part.get("uri") == uri]
    said = [part["text"] for part in own if isinstance(part.get("text"), str)]
    made = [one for part in own if not isinstance(part.get("text"), str) and (one := _resource(part, redact))]
    texts = [{"uri": redact(uri), "text": text} for text in redact(said)]
    output = {"contents": texts, "omitted": len(answer.contents) - len(texts)}
    return AdapterReply(output=output, cost_cents=declared.cost_cents, artifacts=tuple(made))
