"""`McpAdapter` keeps the promises of the port: what surely did not happen, what may have, and what the server says."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import Any

import pytest

from contextos.action.foreign_code import ForeignCode, ignore_fault
from contextos.action.secret_redactor import SecretRedactor
from contextos.adapters.mcp.adapter import _resource_reply, _tool_reply
from contextos.adapters.mcp.connection import ResourceAnswer, ToolAnswer
from contextos.adapters.mcp.definitions import McpConnection, ToolOperation
from contextos.contracts.envelopes.tool import MAX_SAID_CHARS, CapabilityDefinition
from contextos.errors import LostReply, Overloaded, Unavailable
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from tests.servers.adapters import against, call_context, calls

TEXT = {"text": "hello"}


def test_a_tool_is_called_and_its_texts_are_the_output(tmp_path: Path) -> None:
    with against("plain", tmp_path) as adapter:
        for _ in range(2):
            reply = asyncio.run(adapter.call("say", TEXT, call_context()))
            assert (reply.output, reply.error) == ({"texts": ["hello"], "omitted": 0}, None)
    assert calls(tmp_path) == ['{"text": "hello"}'] * 2


@pytest.mark.parametrize("code", [-32700, -32603, -32601, -32001, -32000])
def test_an_error_of_json_rpc_keeps_its_code_and_text_whatever_its_code(code: int, tmp_path: Path) -> None:
    """A read is asked once, and a write can have had its effect. `-32000` is also what the SDK says of a lost server,
    and the process that others share goes on.
    """
    with against(f"rpc_{code}", tmp_path, read=True) as adapter:
        sessions = set()
        for _ in range(2):
            error = asyncio.run(adapter.call("say", TEXT, call_context())).error
            assert error is not None
            assert error.code == f"jsonrpc_{code}"
            assert error.message.startswith("no order ord_881")
            assert adapter._sessions is not None
            sessions.add(adapter._sessions.transport)
        assert len(sessions) == 1
    with against(f"rpc_{code}", tmp_path) as adapter, pytest.raises(LostReply, match=rf"{code}.*no order") as lost:
        asyncio.run(adapter.call("say", TEXT, call_context()))
    assert "IGNORE" not in str(lost.value)


def test_the_text_of_an_error_of_json_rpc_is_bounded(tmp_path: Path) -> None:
    for read in (True, False):
        with against("rpc_-32000_long", tmp_path, read=read) as adapter:
            try:
                error = asyncio.run(adapter.call("say", TEXT, call_context())).error
                assert error is not None
                assert len(error.message) == MAX_SAID_CHARS
            except LostReply as lost:
                assert not read
                assert MAX_SAID_CHARS < len(str(lost)) < 2 * MAX_SAID_CHARS


@pytest.mark.parametrize("mode", ["exits", "not_json", "deep", "wide", "wrong_id"])
def test_a_fault_after_a_write_was_sent_is_a_lost_reply_and_of_a_read_nothing_happened(
    mode: str, tmp_path: Path
) -> None:
    for read, expected in ((False, LostReply), (True, Unavailable)):
        with against(mode, tmp_path, read=read) as adapter, pytest.raises(expected) as error:
            asyncio.run(adapter.call("say", TEXT, call_context(2_000)))
        assert "IGNORE" not in str(error.value)
    assert len(calls(tmp_path)) == 2


def test_a_write_that_hangs_is_lost_when_its_time_is_over(tmp_path: Path) -> None:
    with against("hangs", tmp_path) as adapter, pytest.raises(LostReply, match="did not answer"):
        asyncio.run(adapter.call("say", TEXT, call_context(2_000)))
    assert len(calls(tmp_path)) == 1


@pytest.mark.parametrize("mode", ["exits_at_once", "lists_never", "handshakes_never"])
def test_nothing_happened_where_the_server_never_got_the_call(mode: str, tmp_path: Path) -> None:
    async def governed() -> None:
        """As the gateway calls it: what comes after the time limit and a grace may have happened."""
        foreign = ForeignCode(AsyncioConcurrency(), ignore_fault)
        context = call_context(2_000, key="key")
        await foreign.call("lab", "say", context, lambda: adapter.call("say", TEXT, context))

    with against(mode, tmp_path) as adapter, pytest.raises(Unavailable):
        asyncio.run(governed())
    assert calls(tmp_path) == []


def test_wrong_arguments_of_a_write_may_have_had_an_effect(tmp_path: Path) -> None:
    with against("refuses", tmp_path) as adapter, pytest.raises(LostReply):
        asyncio.run(adapter.call("say", TEXT, call_context()))


def test_a_list_that_is_cut_is_no_drift(tmp_path: Path) -> None:
    for mode in ("thousands", "endless"):
        with against(mode, tmp_path) as adapter, pytest.raises(Unavailable, match="it lists more than"):
            asyncio.run(adapter.call("say", TEXT, call_context()))


def test_a_program_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with against("plain", tmp_path) as adapter:
        adapter._config = adapter._config.model_copy(update={"command": ("/nonexistent",)})
        with pytest.raises(Unavailable, match="no such program; install it"):
            asyncio.run(adapter.call("say", TEXT, call_context()))


def test_a_variable_that_is_not_set_is_named_and_nothing_starts(tmp_path: Path) -> None:
    with against("plain", tmp_path) as adapter:
        adapter._config = adapter._config.model_copy(update={"env": ("NOBODY_SET_THIS",)})
        with pytest.raises(Unavailable, match="NOBODY_SET_THIS"):
            asyncio.run(adapter.call("say", TEXT, call_context()))


def test_after_an_exit_the_next_call_gets_a_new_process(tmp_path: Path) -> None:
    with against("exits", tmp_path) as adapter:
        for _ in range(2):
            with pytest.raises(LostReply):
                asyncio.run(adapter.call("say", TEXT, call_context()))
    assert len(calls(tmp_path)) == 2


@pytest.mark.parametrize(
    ("mode", "code", "message"), [("is_error", "tool_error", "hello"), ("refuses", "tool_refused", "no such text")]
)
def test_an_error_of_the_server_is_a_business_error(mode: str, code: str, message: str, tmp_path: Path) -> None:
    with against(mode, tmp_path, read=mode == "refuses") as adapter:
        reply = asyncio.run(adapter.call("say", TEXT, call_context()))
    assert reply.error is not None
    assert (reply.error.code, reply.error.message, reply.output) == (code, message, None)


def test_a_call_that_waited_too_long_is_not_sent(tmp_path: Path) -> None:
    with against("plain", tmp_path) as adapter:
        late = call_context()
        object.__setattr__(late, "is_late", lambda: True)
        with pytest.raises(Overloaded):
            asyncio.run(adapter.call("say", TEXT, late))
    assert calls(tmp_path) == []


def test_a_lookup_is_still_not_known(tmp_path: Path) -> None:
    with against("plain", tmp_path) as adapter, pytest.raises(LostReply):
        asyncio.run(adapter.lookup("say", "key", call_context()))


def test_calls_of_several_loops_and_at_the_same_time_share_one_server(tmp_path: Path) -> None:
    async def several() -> list[str]:
        told = [adapter.call("say", {"text": str(number)}, call_context()) for number in range(20)]
        return [reply.output["texts"][0] for reply in await asyncio.gather(*told) if reply.output]

    with against("plain", tmp_path) as adapter:
        for _ in range(2):
            assert asyncio.run(several()) == [str(number) for number in range(20)]


def test_a_change_is_logged_with_ids_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with against("description", tmp_path) as adapter:
        for _ in range(2):
            asyncio.run(adapter.call("say", TEXT, call_context()))
    [record] = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert (record.name, record.__dict__["capability"]) == ("contextos.adapters", "lab.say")
    assert "IGNORE" not in caplog.text


WRITES, READS = (
    CapabilityDefinition.model_validate(
        {
            "name": "say",
            "kind": kind,
            "risk_level": risk,
            "approval_mode": mode,
            "input_schema": {"type": "object"},
            "output_schema": {"type": "object"},
            "idempotency": {"strategy": "none"},
        }
    )
    for kind, risk, mode in (("write", "write_irreversible", "destructive"), ("read", "read", "read_only"))
)
SAY = ToolOperation.model_validate({"tool": "say", "digest": "sha256:" + "0" * 64, "output": "text"})
TOKEN = "sk_live_4711471147"


@pytest.mark.parametrize("kind", ["task", "input_required"])
def test_a_write_that_goes_on_after_its_answer_may_have_happened(kind: str) -> None:
    answer = ToolAnswer.model_validate({"resultType": kind})
    with pytest.raises(LostReply, match=kind):
        _tool_reply(answer, SAY, WRITES, lambda value: value)
    reply = _tool_reply(answer, SAY, READS, lambda value: value)
    assert reply.error is not None
    assert reply.error.code == "input_required"


def test_a_kind_of_answer_that_nobody_knows_is_not_quoted() -> None:
    with pytest.raises(LostReply) as lost:
        _tool_reply(ToolAnswer.model_validate({"resultType": TOKEN}), SAY, WRITES, lambda value: value)
    assert TOKEN not in str(lost.value)


def test_no_secret_of_the_connection_comes_back_in_an_answer() -> None:
    redact = SecretRedactor([TOKEN]).redact
    texts = [{"type": "text", "text": f"bad token={TOKEN}"}]
    for body in ({"content": texts}, {"content": texts, "isError": True}, {"structuredContent": {TOKEN: [TOKEN]}}):
        for operation in (SAY, SAY.model_copy(update={"output": "structured"})):
            assert TOKEN not in str(_tool_reply(ToolAnswer.model_validate(body), operation, WRITES, redact))
    halves = [{"type": "text", "text": TOKEN[:9]}, {"type": "text", "text": TOKEN[9:]}]
    for more in ({}, {"isError": True}):
        split = _tool_reply(ToolAnswer.model_validate({"content": halves} | more), SAY, WRITES, redact)
        assert TOKEN[:9] not in str(split)
        assert TOKEN[9:] not in str(split)
    found = ResourceAnswer.model_validate({"contents": [{"uri": f"x://{TOKEN}", "text": TOKEN}]})
    assert TOKEN not in str(_resource_reply(found, f"x://{TOKEN}", READS, redact))


def test_what_an_answer_embeds_is_an_artifact_and_a_link_embeds_nothing() -> None:
    redact, blob = SecretRedactor([TOKEN]).redact, base64.b64encode(b"\xff\x00").decode()
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "see"},
        {"type": "image", "data": blob, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a.md", "mimeType": "text/markdown", "text": f"# {TOKEN}"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": blob}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
        *({"type": "resource", "resource": odd} for odd in (None, [], {}, {"uri": 1, "text": 2})),
        {"type": "image", "data": 1},
    ]
    answer = {"content": parts, "structuredContent": {"a": 1}}
    for operation in (SAY, SAY.model_copy(update={"output": "structured"})):
        found = _tool_reply(ToolAnswer.model_validate(answer), operation, READS, redact).artifacts
        assert [(one.name, one.media_type, one.encoding) for one in found] == [
            ("image", "image/png", "base64"),
            ("file:///a.md", "text/markdown", None),
            ("file:///b", "application/octet-stream", "base64"),
        ]
        assert TOKEN not in str(found)
    assert _tool_reply(ToolAnswer.model_validate(answer | {"isError": True}), SAY, READS, redact).artifacts == ()


def test_the_bytes_of_a_resource_are_an_artifact_and_those_of_another_one_are_left_out() -> None:
    blob = base64.b64encode(b"\xff").decode()
    said = {"contents": [{"uri": "x://a", "blob": blob}, {"uri": "x://b", "blob": blob}, {"uri": "x://a", "text": "t"}]}
    reply = _resource_reply(ResourceAnswer.model_validate(said), "x://a", READS, lambda value: value)
    assert reply.output == {"contents": [{"uri": "x://a", "text": "t"}], "omitted": 2}
    assert [(one.name, one.content) for one in reply.artifacts] == [("x://a", blob)]


def test_the_secrets_of_a_connection_are_its_token_and_what_its_names_say_is_secret() -> None:
    environment = {"SHOP_TOKEN": "a", "HOME": "/root", "API_KEY": "b", "OTHER_KEY": "c"}
    local = McpConnection.model_validate({"kind": "mcp", "command": ["x"], "env": ["HOME", "API_KEY", "NO_KEY"]})
    remote = McpConnection.model_validate({"kind": "mcp", "url": "https://x.example", "token_env": "SHOP_TOKEN"})
    assert (local.secrets(environment), remote.secrets(environment)) == (["b"], ["a"])
