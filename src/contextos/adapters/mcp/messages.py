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
"""The bytes at the start and at the end of a line that are searched for its id, if the line cannot be parsed."""
CUT_SHORT: Final = frozenset({"syntax", "unanswered"})
"""The codes of faults after which a read is worth another attempt."""
LIST_CHANGED: Final = "notifications/tools/list_changed"
_LIST: Final = "tools/list"
_CALLS: Final = frozenset({"tools/call", "resources/read"})
_EMPTY_RESULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "tools/call": {"content": [], "resultType": "complete"},
    _LIST: {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"},
}
"""By method, an empty result that the SDK accepts in every revision of MCP."""
_TOKEN: Final = re.compile(rb'"((?:[^"\\]|\\.)*+)"|([{}\[\]])|(-?[0-9]++)')
_LAST_ID: Final = re.compile(rb',\s*"id"\s*:\s*(?:"([^"\\]{1,64})"|([0-9]{1,18}))\s*\}\s*$')


class UnreadableAnswer(Exception):
    """An answer came and cannot be used. `problem` says why and where. `succeeded`: the answer still says that the
    request was done.
    """

    def __init__(self, problem: Problem, *, succeeded: bool) -> None:
        super().__init__(problem.code)
        self.problem, self.succeeded = problem, succeeded


class MessageReader:
    """Reads the messages of one server. The messages to the server tell the reader which answers are due (`sent`).

    `changes` counts the events that make an earlier list of tools void, such as the server's notice of a change. A
    reader marks its errors with a token. If it has a `parent`, the parent recognizes these errors too (`fault_of`).
    """

    def __init__(self, parent: MessageReader | None = None) -> None:
        self.changes = 0
        self._token: str = parent._token if parent is not None else token_hex(16)
        self._pending: dict[str, tuple[int | str, str]] = {}

    def sent(self, message: JSONRPCMessage) -> None:
        """Note that the answer to a request is due, or no longer due after the request was cancelled."""
        if isinstance(message, JSONRPCRequest):
            self._pending[str(message.id)] = (message.id, message.method)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._pending.pop(str((message.params or {}).get("requestId")), None)

    def read(self, raw: bytes) -> list[JSONRPCMessage]:
        """Return the messages for the SDK. An answer that cannot be used becomes an error of its request."""
        problem, value = _parse(raw)
        if value is MISSING:
            return self.failed(raw[:SCANNED_BYTES], raw[-SCANNED_BYTES:], problem)
        if isinstance(value, list):
            problem = problem or Problem("", "batch", "the answer is in a batch, which MCP does not have")
        messages = list[JSONRPCMessage]()
        for item in value if isinstance(value, list) else [value]:
            self.changes += isinstance(item, dict) and item.get("method") == LIST_CHANGED
            request = self._pop_request(item.get("id")) if isinstance(item, dict) and "method" not in item else None
            if request is not None and request[1] == _LIST and problem is not None and (listing := read_listing(raw)):
                messages.append(self._answer_message(*request, listing, None))
            elif request is not None:
                messages.append(self._answer_message(*request, item, problem))
            elif problem is None and isinstance(item, dict) and "method" in item:
                messages += _validate(item)
        return messages

    def failed(self, head: bytes, tail: bytes, problem: Problem | None) -> list[JSONRPCMessage]:
        """Return the error of the request that an unreadable line answers, by its head and tail; [] without an id."""
        request = self._pop_request(_scan_id(head, tail))
        return [self.fault(request[0], problem or _NO_ANSWER)] if request is not None else []

    def unanswered(self) -> list[JSONRPCMessage]:
        """Return an error for each request whose answer is still due, at the end of the messages."""
        return [self.fault(request_id, _UNANSWERED) for request_id, _ in self._pending.values()]

    def fault_of(self, error: MCPError) -> UnreadableAnswer | None:
        """Return the fault from which this reader made an error; None for any other error."""
        data = error.data if isinstance(error.data, dict) else {}
        if data.get("reader") != self._token or "stated" in data:
            return None
        problem = Problem(data["pointer"], data["code"], data["detail"])
        return UnreadableAnswer(problem, succeeded=data["succeeded"])

    def is_stated(self, error: MCPError) -> bool:
        """Return whether the server itself sent this error of a call. The SDK makes errors too, if no answer comes."""
        return bool(error.data == {"reader": self._token, "stated": True})

    def _pop_request(self, request_id: Any) -> tuple[int | str, str] | None:
        """Return the id and the method of the request with this id, whose answer is then no longer due; else None."""
        is_id = isinstance(request_id, int | str) and not isinstance(request_id, bool)
        return self._pending.pop(str(request_id), None) if is_id else None

    def _answer_message(
        self, request_id: int | str, method: str, answer: Mapping[str, Any], problem: Problem | None
    ) -> JSONRPCMessage:
        """Return an answer as the SDK reads it: the result, wrapped for a method of `_EMPTY_RESULTS`, or an error."""
        result = answer.get("result")
        succeeded = "error" not in answer and isinstance(result, dict) and is_success(result)
        if problem is None and "error" in answer and "result" not in answer:
            error = answer["error"]
            if method in _CALLS and isinstance(error, dict):
                error = {**error, "data": {"reader": self._token, "stated": True}}
            messages = _validate({**answer, "id": request_id, "error": error})
            return messages[0] if messages else self.fault(request_id, _NO_ANSWER)
        if problem is not None or "error" in answer or answer.get("jsonrpc") != "2.0" or not isinstance(result, dict):
            return self.fault(request_id, problem or _NO_ANSWER, succeeded=succeeded)
        wrapped = {**_EMPTY_RESULTS[method], "_meta": {"said": result}} if method in _EMPTY_RESULTS else result
        return JSONRPCResponse(jsonrpc="2.0", id=request_id, result=wrapped)

    def fault(self, request_id: int | str, problem: Problem, *, succeeded: bool = False) -> JSONRPCError:
        """Return the error of a request whose answer cannot be used."""
        fields = {"code": problem.code, "detail": problem.detail, "pointer": problem.pointer}
        data = {"reader": self._token, "succeeded": succeeded, **fields}
        error = ErrorData(code=PARSE_ERROR, message=problem.code, data=data)
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


TOO_LARGE: Final = Problem("", "too_large", f"the answer is larger than {MAX_MCP_BYTES} bytes")
_NO_ANSWER: Final = Problem("", "no_answer", "the answer is not one of JSON-RPC 2.0")
_UNANSWERED: Final = Problem("", "unanswered", "no answer came")


def is_success(result: Mapping[str, Any]) -> bool:
    """Return whether the result of a call says that the call was done. Its other members do not count."""
    return result.get("isError", False) is False and result.get("resultType", "complete") == "complete"


def _parse(raw: bytes) -> tuple[Problem | None, Any]:
    """Return why a text is not I-JSON within the limits (or None), and its value. The value of a refused text is what
    can still be read of it, or `MISSING`.
    """
    try:
        return None, loads(raw, max_bytes=MAX_MCP_BYTES)
    except MalformedJson as malformed:
        problems = malformed.problems
    value = read_refused(raw)
    if isinstance(value, dict) and says_twice(problems, 2):
        # Only the id of the answer counts.
        value = {"id": value.get("id")}
    return problems[0], value


def _validate(message: Any) -> list[JSONRPCMessage]:
    try:
        return [jsonrpc_message_adapter.validate_python(message, by_name=False)]
    except ValidationError:
        return []


def _scan_id(head: bytes, tail: bytes) -> str | None:
    """Return the `id` of the outermost object of an unreadable answer, near its start or at its very end; else None."""
    depth, name, request_id = 0, b"", ""
    for text, bracket, number in _TOKEN.findall(head):
        if bracket:
            depth, name = depth + (1 if bracket in b"{[" else -1), b""
        elif depth == 1 and text == b"method":
            # The line is a request of the server, with an id of the server.
            return None
        elif depth == 1:
            request_id = request_id or ((text or number).decode("ascii", "replace") if name == b"id" else "")
            name = text
    last = _LAST_ID.search(tail)
    return request_id or ((last[1] or last[2]).decode("ascii", "replace") if last else None)
