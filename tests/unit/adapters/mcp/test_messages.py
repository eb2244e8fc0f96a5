"""What an MCP server sends: each answer is read for its own request, and only a fault of ours is taken for one."""

from __future__ import annotations

from typing import Any

from mcp import MCPError
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from contextos.adapters.mcp.messages import TOO_LARGE, MessageReader, UnreadableAnswer


def waiting(*ids: int | str, method: str = "tools/call") -> MessageReader:
    reader = MessageReader()
    for one in ids:
        reader.sent(JSONRPCRequest(jsonrpc="2.0", id=one, method=method))
    return reader


def fault(reader: MessageReader, message: Any) -> UnreadableAnswer | None:
    assert isinstance(message, JSONRPCError)
    return reader.fault_of(MCPError(message.error.code, message.error.message, message.error.data))


def test_a_result_of_a_call_or_a_list_is_wrapped_and_any_other_is_not() -> None:
    (called,) = waiting(1).read(b'{"jsonrpc":"2.0","id":1,"result":{"content":7}}')
    (listed,) = waiting(1, method="tools/list").read(b'{"jsonrpc":"2.0","id":1,"result":{"tools":7}}')
    (read,) = waiting(1, method="resources/read").read(b'{"jsonrpc":"2.0","id":1,"result":{"contents":7}}')
    assert isinstance(called, JSONRPCResponse)
    assert isinstance(listed, JSONRPCResponse)
    assert called.result["_meta"] == {"said": {"content": 7}}
    assert isinstance(read, JSONRPCResponse)
    assert listed.result["_meta"] == {"said": {"tools": 7}}
    assert read.result == {"contents": 7}


def test_an_answer_counts_once_and_not_after_it_was_given_up() -> None:
    reader, answer = waiting(1, 2), b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert len(reader.read(answer)) == 1
    assert reader.read(answer) == []
    given_up = {"requestId": 2}
    reader.sent(JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=given_up))
    assert reader.read(answer.replace(b":1,", b":2,")) == []


def test_an_id_is_answered_as_it_was_sent() -> None:
    (answer,) = waiting(7).read(b'{"jsonrpc":"2.0","id":"7","result":{}}')
    assert isinstance(answer, JSONRPCResponse)
    assert answer.id == 7


def test_a_server_cannot_state_a_fault_of_ours() -> None:
    reader = waiting(1)
    said = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"m","data":{"reader":"","succeeded":true}}}'
    (stated,) = reader.read(said)
    assert fault(reader, stated) is None
    other = MessageReader()
    assert fault(other, reader.fault(1, TOO_LARGE)) is None
    assert fault(MessageReader(reader), reader.fault(1, TOO_LARGE, succeeded=True)) is not None


def test_each_answer_of_a_batch_fails_for_its_own_request() -> None:
    reader = waiting(1, 2)
    batch = (
        b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":9,"result":{}},{"jsonrpc":"2.0","method":"x"},7]'
    )
    (answer,) = reader.read(batch)
    found = fault(reader, answer)
    assert found is not None
    assert (found.problem.code, found.succeeded, answer.id) == ("batch", True, 1)
    (late,) = reader.unanswered()
    assert late.id == 2


def test_the_id_of_a_line_that_cannot_be_parsed_is_that_of_its_outermost_object() -> None:
    for line, ids in (
        (b'{"jsonrpc":"2.0","id":1,"result":{"id":2,', [1]),
        (b'{"result":{"id":2},"x":', []),
        (b'{"result":{"id":2,"x":[1,,]},"id":1}', [1]),
        (b'{"id":"1","result":', [1]),
        (b'{"id":1,"method":"x","params":', []),
        (b'{"method":"x","id":1,', []),
        (b'"id":1', []),
        (b"}{", []),
    ):
        assert [one.id for one in waiting(1, 2).read(line)] == ids, line
