"""Reads the messages of an MCP server one at a time, so that a fault stays with the call whose answer it is.

The SDK gets only messages that it can take. An answer that is not I-JSON within the limits, or not JSON-RPC 2.0,
becomes an error of its request, which says where the fault is. An answer to no request is left out. An answer to
`tools/call` or `tools/list` reaches the SDK wrapped, since the SDK drops the whole answer if one member is not as its
revision of MCP defines it.
Source: JSON-RPC 2.0; RFC 7493 (I-JSON); MCP 2025-11-25, "Transports".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

from mcp import MCPError
from mcp.types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from contextos.adapters.foreign.refused_json import read_refused, says_twice
from contextos.adapters.mcp.listings import read_listing
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.pointer import MISSING
from contextos.errors import MalformedJson, Problem

MAX_MCP_BYTES: Final = 2 << 20
SCANNED_BYTES: Final = 65_536
"""The bytes at the begin and at the end of a line that are searched for its id, if it cannot be parsed."""
CUT_SHORT: Final = frozenset({"syntax", "unanswered"})
"""The codes of faults that another attempt of a read can avoid."""
LIST_CHANGED: Final = "notifications/tools/list_changed"
_LIST: Final = "tools/list"
_CALLS: Final = frozenset({"tools/call", "resources/read"})
_EMPTY: Final[Mapping[str, Mapping[str, Any]]] = {
    "tools/call": {"content": [], "resultType": "complete"},
    _LIST: {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"},
}
"""By method, an empty result that the SDK accepts in every revision of MCP."""
_TOKEN: Final = re.compile(rb'"((?:[^"\\]|\\.)*+)"|([{}\[\]])|(-?[0-9]++)')
_LAST_ID: Final = re.compile(rb',\s*"id"\s*:\s*(?:"([^"\\]{1,64})"|([0-9]{1,18}))\s*\}\s*$')


class UnreadableAnswer(Exception):
    """An answer came and cannot be used: `problem` says why and where. `succeeded`: it does say that the request was
    done.
    """

    def __init__(self, problem: Problem, *, succeeded: bool) -> None:
        super().__init__(problem.code)
        self.problem, self.succeeded = problem, succeeded


class MessageReader:
    """Reads the messages of one server. It sees every message to the server too, so it knows which answers are due.

    `changes` counts the events that make an earlier list of tools void, such as the server's notice of a change. With
    `of`, that reader recognizes the faults that this reader makes (`fault_of`).
    """

    def __init__(self, of: MessageReader | None = None) -> None:
        self.changes = 0
        self._token: str = of._token if of is not None else token_hex(16)
        self._due: dict[str, tuple[int | str, str]] = {}

    def sent(self, message: JSONRPCMessage) -> None:
        """Note that the answer to a request is due, or no longer due after the request was cancelled."""
        if isinstance(message, JSONRPCRequest):
            self._due[str(message.id)] = (message.id, message.method)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._due.pop(str((message.params or {}).get("requestId")), None)

    def read(self, raw: bytes) -> list[JSONRPCMessage]:
        """Return the messages for the SDK. An answer that cannot be used becomes an error of its request."""
        problem, said = _parsed(raw)
        if said is MISSING:
            return self.failed(raw[:SCANNED_BYTES], raw[-SCANNED_BYTES:], problem)
        if isinstance(said, list):
            problem = problem or Problem("", "batch", "the answer is in a batch, which MCP does not have")
        messages = list[JSONRPCMessage]()
        for one in said if isinstance(said, list) else [said]:
            self.changes += isinstance(one, dict) and one.get("method") == LIST_CHANGED
            due = self._take(one.get("id")) if isinstance(one, dict) and "method" not in one else None
            if due is not None and due[1] == _LIST and problem is not None and (listing := read_listing(raw)):
                messages.append(self._answer(*due, listing, None))
            elif due is not None:
                messages.append(self._answer(*due, one, problem))
            elif problem is None and isinstance(one, dict) and "method" in one:
                messages += _validated(one)
        return messages

    def failed(self, head: bytes, tail: bytes, problem: Problem | None) -> list[JSONRPCMessage]:
        """Return the error of the request that an unreadable line answers, by its begin and end; [] without an id."""
        due = self._take(_scanned_id(head, tail))
        return [self.fault(due[0], problem or _NO_ANSWER)] if due is not None else []

    def unanswered(self) -> list[JSONRPCMessage]:
        """Return an error for each request whose answer is still due, at the end of the messages."""
        return [self.fault(request_id, _UNANSWERED) for request_id, _ in self._due.values()]

    def fault_of(self, error: MCPError) -> UnreadableAnswer | None:
        """Return the fault from which this reader made an error; None for any other error."""
        said = error.data if isinstance(error.data, dict) else {}
        if said.get("reader") != self._token or "stated" in said:
            return None
        problem = Problem(said["pointer"], said["code"], said["detail"])
        return UnreadableAnswer(problem, succeeded=said["succeeded"])

    def is_stated(self, error: MCPError) -> bool:
        """Return whether the server itself sent this error of a call. The SDK makes errors too, if no answer comes."""
        return bool(error.data == {"reader": self._token, "stated": True})

    def _take(self, answered: Any) -> tuple[int | str, str] | None:
        """Return the id and the method of the request with this id, whose answer is then no longer due; else None."""
        known = isinstance(answered, int | str) and not isinstance(answered, bool)
        return self._due.pop(str(answered), None) if known else None

    def _answer(
        self, request_id: int | str, method: str, one: Mapping[str, Any], problem: Problem | None
    ) -> JSONRPCMessage:
        result = one.get("result")
        succeeded = "error" not in one and isinstance(result, dict) and is_success(result)
        if problem is None and "error" in one and "result" not in one:
            error = one["error"]
            if method in _CALLS and isinstance(error, dict):
                error = {**error, "data": {"reader": self._token, "stated": True}}
            stated = _validated({**one, "id": request_id, "error": error})
            return stated[0] if stated else self.fault(request_id, _NO_ANSWER)
        if problem is not None or "error" in one or one.get("jsonrpc") != "2.0" or not isinstance(result, dict):
            return self.fault(request_id, problem or _NO_ANSWER, succeeded=succeeded)
        wrapped = {**_EMPTY[method], "_meta": {"said": result}} if method in _EMPTY else result
        return JSONRPCResponse(jsonrpc="2.0", id=request_id, result=wrapped)

    def fault(self, request_id: int | str, problem: Problem, *, succeeded: bool = False) -> JSONRPCError:
        """Return the error of a request whose answer cannot be used."""
        said = {"code": problem.code, "detail": problem.detail, "pointer": problem.pointer}
        data = {"reader": self._token, "succeeded": succeeded, **said}
        error = ErrorData(code=PARSE_ERROR, message=problem.code, data=data)
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


TOO_LARGE: Final = Problem("", "too_large", f"the answer is larger than {MAX_MCP_BYTES} bytes")
_NO_ANSWER: Final = Problem("", "no_answer", "the answer is not one of JSON-RPC 2.0")
_UNANSWERED: Final = Problem("", "unanswered", "no answer came")


def is_success(result: Mapping[str, Any]) -> bool:
    """Return whether the result of a call says that the call was done. Its other members do not count."""
    return result.get("isError", False) is False and result.get("resultType", "complete") == "complete"


def _parsed(raw: bytes) -> tuple[Problem | None, Any]:
    """Return the reason why a text is not I-JSON within the limits, or None; and its value as far as it can be read, or
    `MISSING`.
    """
    try:
        return None, loads(raw, max_bytes=MAX_MCP_BYTES)
    except MalformedJson as malformed:
        problems = malformed.problems
    said = read_refused(raw)
    if isinstance(said, dict) and says_twice(problems, 2):
        # Only the id of the answer counts.
        said = {"id": said.get("id")}
    return problems[0], said


def _validated(one: Any) -> list[JSONRPCMessage]:
    try:
        return [jsonrpc_message_adapter.validate_python(one, by_name=False)]
    except ValidationError:
        return []


def _scanned_id(head: bytes, tail: bytes) -> str | None:
    """Return the `id` of the outermost object of an unreadable answer, near its begin or at its very end; else None."""
    depth, name, found = 0, b"", ""
    for text, bracket, number in _TOKEN.findall(head):
        if bracket:
            depth, name = depth + (1 if bracket in b"{[" else -1), b""
        elif depth == 1 and text == b"method":
            # The line is a request of the server, with an id of the server.
            return None
        elif depth == 1:
            found = found or ((text or number).decode("ascii", "replace") if name == b"id" else "")
            name = text
    last = _LAST_ID.search(tail)
    return found or ((last[1] or last[2]).decode("ascii", "replace") if last else None)
