"""An MCP server that changes a tool after it was published gets no call, and its new text goes nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.mcp import early_lists
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput
from tests.servers.adapters import against, call_context, calls, drafted, hostile, opened

CHANGED = ["description", "schema", "annotations", "title", "output_schema", "gone", "twice"]
HIDDEN = ["\u200b", "\u202e", "\U000e0041", "\x1b[8m", "\u2066", "\ufeff", "\x07", "\u00ad", "\ufe0f"]


@pytest.mark.parametrize("mode", CHANGED)
def test_a_tool_that_changed_between_two_calls_gets_no_second_one(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with against(mode, tmp_path) as adapter:
        first = asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
        second = asyncio.run(adapter.call("say", {"text": "b"}, call_context()))
    assert (first.output, second.output) == ({"texts": ["a"], "omitted": 0}, None)
    assert second.error is not None
    assert (second.error.code, second.error.retryable, second.mutations) == ("definition_drift", False, ())
    assert "adapters add" in str(second.error.remedy)
    assert calls(tmp_path) == ['{"text": "a"}']
    assert "IGNORE" not in caplog.text + json.dumps(second.to_json())


def test_every_call_is_compared_anew(tmp_path: Path) -> None:
    """The mode `once` lists another description the second time only. The quarantine is the gateway's (D44)."""
    with against("once", tmp_path) as adapter:
        codes = []
        for _ in range(3):
            reply = asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
            codes.append(reply.error.code if reply.error else "ok")
        assert codes == ["ok", "definition_drift", "ok"]
        assert asyncio.run(adapter.drifted()) == frozenset()
    assert len(calls(tmp_path)) == 2


def test_what_is_no_tool_in_a_list_costs_the_others_nothing(tmp_path: Path) -> None:
    with against("bad_tool", tmp_path) as adapter:
        for _ in range(2):
            assert asyncio.run(adapter.call("say", {"text": "a"}, call_context())).output is not None
        assert len(calls(tmp_path)) == 2


def test_a_list_that_is_none_sends_nothing(tmp_path: Path) -> None:
    from contextos.errors import Unavailable

    with against("bad_list", tmp_path) as adapter:
        asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
        with pytest.raises(Unavailable):
            asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
        assert len(calls(tmp_path)) == 1


@pytest.mark.parametrize("hidden", HIDDEN, ids=[f"U+{ord(one[0]):04X}" for one in HIDDEN])
def test_text_that_a_reader_does_not_see_is_refused_wherever_it_is(hidden: str, tmp_path: Path) -> None:
    file = asyncio.run(drafted(hostile("plain", tmp_path), tmp_path))
    said = json.dumps(file)
    for visible in ("Says a text.", '"string"', '"say"', "hostile.py"):
        assert visible in said
        swapped = visible.replace("s", f"s{json.dumps(hidden)[1:-1]}", 1)
        with pytest.raises(InvalidInput) as error:
            read_adapter_file(canonical(json.loads(said.replace(visible, swapped, 1))))
        assert all(ord(character) < 128 for character in str(error.value))


def test_what_a_server_says_of_itself_raises_and_never_lowers() -> None:
    def drafted_as(annotations: dict[str, bool], *, read: bool) -> tuple[str, str]:
        tool = {"name": "t", "inputSchema": {"type": "object"}, "annotations": annotations}
        named = McpConnection(kind="mcp", command=("x",))
        _, [row] = draft_adapter("lab", named, [tool], Stated(reads=["t"] if read else [], local=True))
        return row.kind, row.mode

    harmless = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    assert drafted_as(harmless, read=False) == ("write", "destructive")
    assert drafted_as(harmless, read=True) == ("read", "read_only")
    assert drafted_as({"readOnlyHint": False}, read=True) == ("write", "destructive")
    assert drafted_as({"destructiveHint": True}, read=True) == ("write", "destructive")
    assert drafted_as({"openWorldHint": True}, read=True) == ("read", "network")


def test_a_published_file_is_what_counts_and_not_what_the_server_lists(tmp_path: Path) -> None:
    """A reviewer's own description is what models see; the server's is only compared."""
    file = asyncio.run(drafted(hostile("plain", tmp_path), tmp_path))
    file["definition"]["capabilities"][0]["description"] = "Reviewed."
    with opened(file, tmp_path) as adapter:
        assert adapter.describe().capabilities[0].description == "Reviewed."
        reply = asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
    assert reply.error is None


def test_a_tool_that_changed_after_a_call_was_expected_and_waited_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing that was begun for a call is used for some seconds only: a person may have been asked meanwhile."""
    with against("description", tmp_path) as adapter:
        asyncio.run(adapter.call("say", {"text": "a"}, replace(call_context(), tool_call_id="tool_0")))
        adapter.expect_call("say", "tool_1")
        drift = asyncio.run(adapter.call("say", {"text": "b"}, call_context()))
    assert drift.error is not None
    assert drift.error.code == "definition_drift"
    with against("flag", tmp_path) as adapter:
        asyncio.run(adapter.call("say", {"text": "a"}, replace(call_context(), tool_call_id="tool_0")))
        adapter.expect_call("say", "tool_1")
        assert asyncio.run(adapter.drifted()) == frozenset()
        (tmp_path / "calls.changed").touch()
        monkeypatch.setattr(early_lists, "FRESH_S", -1.0)
        drift = asyncio.run(adapter.call("say", {"text": "b"}, call_context()))
    assert drift.error is not None
    assert drift.error.code == "definition_drift"
    assert calls(tmp_path) == ['{"text": "a"}'] * 2
