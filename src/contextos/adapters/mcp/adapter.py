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
        ages = {name: op.definition_max_age_s for name, op in operations.items() if isinstance(op, ToolOperation)}
        self.definition_max_age_s = {name: age_s for name, age_s in ages.items() if age_s is not None}
        self._config, self._folder, self._registry = connection, folder, Registry()
        self._capabilities = self._registry.register((definition,))
        self._thread: LoopThread | None = None
        self._sessions: McpSessions | None = None

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        """Check the definition of the tool, and call it.

        Raises:
            Unavailable: nothing happened.
            LostReply: it may have happened.
        """
        operation, declaration = self._find_operation(capability)
        return await self._run_on_thread(self._call(operation, declaration, dict(args), context))

    def expect_call(self, capability: str, tool_call_id: str) -> None:
        """Begin to list the tools for a call that will probably follow, if a session is open."""
        thread, sessions = self._thread, self._sessions
        if thread is not None and sessions is not None and isinstance(self._operations.get(capability), ToolOperation):
            thread.soon(sessions.expect, tool_call_id, self.definition_max_age_s.get(capability, 0))

    async def lookup(self, capability: str, _idempotency_key: str, _context: CallContext) -> AdapterReply | None:
        """Raise `LostReply`: MCP has no way to ask what an earlier call did."""
        raise LostReply(f"`{self._definition.adapter_id}.{capability}` cannot be looked up; settle it by hand")

    async def drifted(self) -> frozenset[str]:
        """Ask the server for its tools, and return the capabilities that are not as they were published.

        Raises:
            Unavailable: the server does not answer.
        """
        return await self._run_on_thread(self._find_drifted())

    def close(self) -> None:
        """End the session, and the process of the server with it."""
        thread, sessions = self._thread, self._sessions
        self._thread, self._sessions = None, None
        if thread is not None and sessions is not None:
            _end_sessions(thread, sessions)

    async def _run_on_thread(self, work: Coroutine[Any, Any, ReturnT]) -> ReturnT:
        if self._thread is None:
            from contextos.adapters.mcp.connection import THREAD_NAME, McpSessions, silence_sdk

            silence_sdk()
            keeps = bool(self.definition_max_age_s)
            self._thread, self._sessions = LoopThread(THREAD_NAME), McpSessions(self._config, self._folder, keeps=keeps)
        return await asyncio.wrap_future(self._thread.submit(work))

    async def _find_drifted(self) -> frozenset[str]:
        assert self._sessions is not None, "it is made before anything runs on the thread"
        context = CallContext("", "", "", None, 0, 30_000)
        with self._faults("tools/list", context, is_read=True) as faults:
            try:
                async with asyncio.timeout(context.timeout_ms / 1000):
                    current_tools = await (await self._sessions.session()).list_tools()
            except TimeoutError:
                faults.uncertain(f"it did not answer in {context.timeout_ms} ms")
        tools = {name: op for name, op in self._operations.items() if isinstance(op, ToolOperation)}
        return frozenset(name for name, op in tools.items() if not is_as_published(op, current_tools))

    async def _call(
        self, operation: McpOperation, declaration: CapabilityDefinition, args: dict[str, Any], context: CallContext
    ) -> AdapterReply:
        assert self._sessions is not None, "it is made before anything runs on the thread"
        deadline_s = asyncio.get_running_loop().time() + context.timeout_ms / 1000
        trace = context.headers()
        with ExitStack() as on_exit:
            session, age_ms = await self._check_definition(operation, declaration, context, trace, deadline_s, on_exit)
            if age_ms is None and isinstance(operation, ToolOperation):
                return self._drift(declaration.name).model_copy(update={"definition_age_ms": 0})
            if context.is_late():
                raise Overloaded(self._definition.adapter_id, "its time was over before it had its turn")
            reply: AdapterReply | None = None
            try:
                with self._faults(declaration.name, context, is_read=declaration.kind == "read") as faults:
                    try:
                        async with asyncio.timeout_at(deadline_s):
                            reply = await self._send(session, operation, declaration, args, context, trace)
                    except TimeoutError:
                        faults.uncertain(f"it did not answer in {context.timeout_ms} ms")
            finally:
                if reply is None or not self._is_valid_reply(reply, declaration):
                    # The tool can have changed since it was listed.
                    session.forget()
            assert reply is not None, "a fault raises"
            return reply.model_copy(update={"definition_age_ms": age_ms})

    def _is_valid_reply(self, reply: AdapterReply, declaration: CapabilityDefinition) -> bool:
        """Return whether a reply has an output. If lists are kept for later calls, it also has to fit its schema."""
        if reply.output is None or not self.definition_max_age_s:
            return reply.output is not None
        capability = self._capabilities[f"{self._definition.adapter_id}.{declaration.name}"]
        return self._registry.check(capability, "output", reply.output) is None

    async def _check_definition(
        self,
        operation: McpOperation,
        declaration: CapabilityDefinition,
        context: CallContext,
        trace: Mapping[str, str],
        deadline_s: float,
        on_exit: ExitStack,
    ) -> tuple[McpSession, int | None]:
        """Return the session, and the age in ms of the list that has the tool as it was published: 0 if the server was
        asked for this call, None for a resource, or if the tool differs. The call itself is not sent yet, so a fault is
        `Unavailable` also for a write. `on_exit` retires a session that is for this call alone.
        """
        assert self._sessions is not None, "it is made before anything runs on the thread"
        session: McpSession | None = None
        age_ms: int | None = None
        with self._faults(declaration.name, context, is_read=True) as faults:
            try:
                async with asyncio.timeout_at(deadline_s):
                    session = await self._sessions.session(context.access_token)
                    if context.access_token:
                        on_exit.callback(session.retire)
                    if isinstance(operation, ToolOperation):
                        listing = session.known(self.definition_max_age_s.get(declaration.name, 0))
                        if listing is not None and listing.fits(operation):
                            age_ms = max(1, int(listing.age_s() * 1000))
                        elif is_as_published(
                            operation, await self._sessions.early.listed(context.tool_call_id, session, trace)
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
        declaration: CapabilityDefinition,
        args: dict[str, Any],
        context: CallContext,
        trace: Mapping[str, str],
    ) -> AdapterReply:
        from mcp import MCPError

        from contextos.adapters.mcp.messages import CUT_SHORT, UnreadableAnswer

        redact = SecretRedactor([*self._config.secrets(os.environ), context.access_token]).redact
        try:
            if isinstance(operation, ResourceOperation):
                return _resource_reply(
                    await session.read_resource(args["uri"], trace), args["uri"], declaration, redact
                )
            if operation.key_argument is not None and context.idempotency_key is not None:
                args[operation.key_argument] = context.idempotency_key
            return _tool_reply(await session.call_tool(operation.tool, args, trace), operation, declaration, redact)
        except UnreadableAnswer as fault:
            final = fault.succeeded if declaration.kind == "write" else fault.problem.code not in CUT_SHORT
            return unreadable_answer(fault.problem, declaration, redact, final=final)
        except MCPError as error:
            if error.code != BAD_ARGUMENTS and not session.is_stated(error):
                raise
            message = shortened(redact(error.message), MAX_SAID_CHARS)
            if declaration.kind == "read":
                return stated_error(RPC_CODES.get(error.code, f"jsonrpc_{error.code}"), message, declaration)
            reason = (
                f"the server answered with the error {error.code}; look before it is sent again. It says: {message}"
            )
            raise LostReply(f"`{declaration.name}` may have happened: {reason}") from None


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
        fields = file.operations[capability.name]
        kind: type[McpOperation] = ResourceOperation if "resources" in fields else ToolOperation
        operations[capability.name] = parse(kind, fields, at=pointer(("operations", capability.name)))
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

    async def request_tools() -> list[dict[str, Any]]:
        return await (await sessions.session()).list_tools()

    with ExitStack() as on_exit:
        on_exit.callback(_end_sessions, thread, sessions)
        listing = asyncio.wrap_future(thread.submit(request_tools()))
        # After Ctrl-C nobody waits for it any more, and what it then raises is no news.
        listing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        done, _ = await asyncio.wait({listing}, timeout=LIST_TIMEOUT_S)
        error = listing.exception() if done else None
        if isinstance(error, Unavailable):
            raise error
        if done and error is None:
            return listing.result()
        await asyncio.wrap_future(thread.submit(sessions.close()))
        reason = sessions.transport.last_words() if sessions.transport else ""
        raise Unavailable("the server", f"it does not list its tools{reason and f': {reason}'}", remedy=CHECK_SERVER)


def _end_sessions(thread: LoopThread, sessions: McpSessions) -> None:
    """Close the sessions (for `END_TIMEOUT_S` seconds at most), end their thread, and kill processes that are left."""
    wait({thread.submit(sessions.close())}, timeout=END_TIMEOUT_S)
    thread.close()
    sessions.kill()


def _tool_reply(
    answer: ToolAnswer, operation: ToolOperation, declaration: CapabilityDefinition, redact: Redact
) -> AdapterReply:
    """Return the answer of a tool as a reply, without the secrets of the connection. The Tool Gateway checks the output
    against the published schema. Raises `LostReply` for a write that has not finished.
    """
    texts = redact(
        [part["text"] for part in answer.content if part.get("type") == "text" and isinstance(part.get("text"), str)]
    )
    if answer.result_type != "complete":
        if declaration.kind == "write":
            # A task goes on after this answer, and a tool can ask for input after its effect.
            kind = answer.result_type if answer.result_type in UNFINISHED else "of another kind"
            raise LostReply(f"`{declaration.name}` may have happened: its answer is `{kind}`")
        return paused_task("input_required", "the tool asks for input, which nobody gives it", declaration)
    if answer.is_error:
        return stated_error("tool_error", "\n".join(texts), declaration)
    artifacts = [artifact for part in answer.content if (artifact := _part_artifact(part, redact)) is not None]
    if operation.output == "text":
        output = {"texts": texts, "omitted": len(answer.content) - len(texts)}
        return AdapterReply(output=output, cost_cents=declaration.cost_cents, artifacts=tuple(artifacts))
    if not isinstance(answer.structured, dict):
        problem = Problem("/structuredContent", "no_object", "the structured content is absent, or is not an object")
        return unreadable_answer(problem, declaration, redact, final=True)
    return AdapterReply(output=redact(answer.structured), cost_cents=declaration.cost_cents, artifacts=tuple(artifacts))


def _part_artifact(part: Mapping[str, Any], redact: Redact) -> ToolArtifact | None:
    """Return the resource, image or sound that a part of an answer embeds, else None: a link embeds nothing."""
    if part.get("type") in ("image", "audio") and isinstance(part.get("data"), str):
        return artifact_of(part["type"], part.get("mimeType"), part["data"], redact, raw=True)
    resource = part.get("resource") if part.get("type") == "resource" else None
    return _resource(resource, redact) if isinstance(resource, dict) else None


def _resource(resource: Mapping[str, Any], redact: Redact) -> ToolArtifact | None:
    kind = "blob" if isinstance(resource.get("blob"), str) else "text"
    if not isinstance(resource.get(kind), str):
        return None
    return artifact_of(resource.get("uri"), resource.get("mimeType"), resource[kind], redact, raw=kind == "blob")


def _resource_reply(
    answer: ResourceAnswer, uri: str, declaration: CapabilityDefinition, redact: Redact
) -> AdapterReply:
    """Return the texts of the resource `uri`, with its bytes as artifacts. Contents with another URI are left out,
    because that resource was not asked for.
    """
    parts = [part for part in answer.contents if part.get("uri") == uri]
    contents = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    artifacts = [blob for part in parts if not isinstance(part.get("text"), str) and (blob := _resource(part, redact))]
    texts = [{"uri": redact(uri), "text": text} for text in redact(contents)]
    output = {"contents": texts, "omitted": len(answer.contents) - len(texts)}
    return AdapterReply(output=output, cost_cents=declaration.cost_cents, artifacts=tuple(artifacts))
