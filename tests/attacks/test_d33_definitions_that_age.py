"""A read may be sent on a list that is some seconds old, where the adapter file says so; then nothing else may make the
list count for longer, or for a write, or in another session.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.mcp import connection
from contextos.adapters.mcp.adapter import McpAdapter, mcp_adapter
from contextos.adapters.mcp.definitions import MAX_AGE_S
from contextos.contracts.entries.reading import read_body
from contextos.contracts.ports.gates import Done, Waiting
from contextos.errors import InvalidInput, Unavailable
from contextos.testing import Person, in_memory
from tests.servers.adapters import call_context, calls, drafted, hostile, opened

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
AGE_S = 60
DIRECTORY = json.loads((EXAMPLES / "deploy_rollback" / "directory.json").read_text("utf-8"))


def file(folder: Path, age_s: Any = AGE_S, mode: str = "notifies") -> dict[str, Any]:
    """The file of a server with the read `say` and the write `act`; `say` may be sent on a list of this age."""
    made = asyncio.run(drafted(hostile(mode, folder), folder, reads=["say"]))
    if age_s is not None:
        made["operations"]["say"]["definition_max_age_s"] = age_s
    (folder / "calls.lists").unlink(missing_ok=True)
    return made


@contextmanager
def server(folder: Path, age_s: int | None = AGE_S) -> Iterator[McpAdapter]:
    with opened(file(folder, age_s), folder) as adapter:
        yield adapter


def say(adapter: McpAdapter, text: str = "a", tool: str = "say") -> tuple[str, int | None]:
    """Call a tool: the code of its error or "ok", and how old the list was on which it was sent."""
    reply = asyncio.run(adapter.call(tool, {"text": text}, call_context()))
    return reply.error.code if reply.error else "ok", reply.definition_age_ms


def lists(folder: Path) -> int:
    path = folder / "calls.lists"
    return len(path.read_text("utf-8").splitlines()) if path.exists() else 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Puts the monotonic clock and that of the wall forward by these seconds."""
    real, moved = connection._now_s, [0.0, 0.0]

    def forward(monotonic_s: float, wall_s: float) -> None:
        moved[0] += monotonic_s
        moved[1] += wall_s

    monkeypatch.setattr(connection, "_now_s", lambda: tuple(map(sum, zip(real(), moved, strict=True))))
    return forward


def test_a_change_that_nobody_says_is_found_by_every_write_and_by_a_read_when_the_age_is_over(
    tmp_path: Path, clock: Callable[[float, float], None]
) -> None:
    with server(tmp_path) as adapter:
        assert say(adapter) == ("ok", 0)
        (tmp_path / "calls.changed").touch()
        code, age_ms = say(adapter)
        assert (code, lists(tmp_path)) == ("ok", 1), "this is what the age gives up"
        assert age_ms is not None
        assert 0 < age_ms < 1000 * AGE_S
        clock(AGE_S, AGE_S)
        assert say(adapter) == ("definition_drift", 0)
        # A list that found a change is no reason to send, or to refuse, the next call.
        assert say(adapter) == ("definition_drift", 0)
        (tmp_path / "calls.changed").unlink()
        assert say(adapter) == ("ok", 0)
        assert (len(calls(tmp_path)), lists(tmp_path)) == (3, 4)


def test_no_write_is_sent_on_an_older_list(tmp_path: Path) -> None:
    with server(tmp_path) as adapter:
        for number in range(1, 4):
            assert say(adapter, tool="act") == ("ok", 0)
            assert lists(tmp_path) == number
        (tmp_path / "calls.changed").touch()
        assert say(adapter)[0] == "ok"
        assert say(adapter, tool="act") == ("definition_drift", 0)


def test_without_an_age_every_call_asks(tmp_path: Path) -> None:
    with server(tmp_path, None) as adapter:
        assert [say(adapter) for _ in range(3)] == [("ok", 0)] * 3
        assert lists(tmp_path) == 3
        assert adapter._sessions is not None
        assert adapter._sessions._current is not None
        assert adapter._sessions._current._newest_list is None


def test_a_word_of_the_server_ends_an_age_at_once(tmp_path: Path) -> None:
    with server(tmp_path) as adapter:
        assert say(adapter) == ("ok", 0)
        assert say(adapter, "change")[0] == "ok"
        assert say(adapter) == ("definition_drift", 0)
    assert calls(tmp_path) == ['{"text": "a"}', '{"text": "change"}']


@pytest.mark.parametrize("age_s", [None, AGE_S])
def test_a_word_of_the_server_while_it_lists_makes_that_list_void(age_s: int | None, tmp_path: Path) -> None:
    with server(tmp_path, age_s) as adapter:
        (tmp_path / "calls.change_while_listing").touch()
        assert say(adapter) == ("definition_drift", 0)
        assert (calls(tmp_path), lists(tmp_path)) == ([], 2)


def test_a_server_that_was_started_anew_is_asked(tmp_path: Path) -> None:
    with server(tmp_path) as adapter:
        assert say(adapter) == ("ok", 0)
        with pytest.raises(Unavailable):
            say(adapter, "exit")
        (tmp_path / "calls.changed").touch()
        assert say(adapter) == ("definition_drift", 0)


def test_two_sessions_share_no_list(tmp_path: Path) -> None:
    published = file(tmp_path)
    with opened(published, tmp_path) as one, opened(published, tmp_path) as other:
        assert say(one) == ("ok", 0)
        (tmp_path / "calls.changed").touch()
        assert say(other) == ("definition_drift", 0)
        assert say(one)[0] == "ok"


def test_after_an_error_the_server_is_asked(tmp_path: Path) -> None:
    """The tool may have become another one."""
    with server(tmp_path) as adapter:
        assert say(adapter) == ("ok", 0)
        (tmp_path / "calls.changed").touch()
        assert say(adapter, "error")[0] == "tool_error"
        assert say(adapter) == ("definition_drift", 0)


@pytest.mark.parametrize("mode", ["rpc_error", "structured"])
def test_after_a_call_without_a_good_output_the_server_is_asked(mode: str, tmp_path: Path) -> None:
    """It answers with a JSON-RPC error, or with content that does not fit the published schema."""
    made = file(tmp_path, mode=mode)
    (tmp_path / "calls.methods").unlink()
    with opened(made, tmp_path) as adapter:
        for number in range(1, 3):
            with suppress(Unavailable):
                say(adapter)
            asked = (tmp_path / "calls.methods").read_text("utf-8").split()
            assert (asked.count("tools/list"), asked.count("tools/call")) == (number, number)


def test_a_clock_that_is_set_back_or_stops_makes_nothing_younger(
    tmp_path: Path, clock: Callable[[float, float], None]
) -> None:
    with server(tmp_path) as adapter:
        assert say(adapter) == ("ok", 0)
        for monotonic_s, wall_s in ((AGE_S, -3600), (0, AGE_S + 3600)):
            clock(monotonic_s, wall_s)
            assert say(adapter) == ("ok", 0)


def refused(folder: Path, age_s: Any, tool: str = "say", **connection: Any) -> InvalidInput:
    made = file(folder)
    made["operations"][tool]["definition_max_age_s"] = age_s
    if connection:
        made["connection"] = {"kind": "mcp", **connection}
        made["definition"] |= {"external": True, "egress": ["desk.example:443"]}
    with pytest.raises(InvalidInput) as error:
        mcp_adapter(read_adapter_file(json.dumps(made).encode()), folder)
    return error.value


@pytest.mark.parametrize(
    "age_s",
    [0, -1, MAX_AGE_S + 1, 2**53, 10**30, 1.5, 60.0, 1e300, float("inf"), float("nan"), True, "60", [60], {}],
    ids=str,
)
def test_an_age_that_is_none_is_refused(age_s: Any, tmp_path: Path) -> None:
    refused(tmp_path, age_s)


def test_an_age_that_nothing_would_use_is_refused(tmp_path: Path) -> None:
    assert "before each write" in str(refused(tmp_path, AGE_S, "act"))
    with_tokens = refused(tmp_path, AGE_S, url="https://desk.example/mcp", audience="https://desk.example")
    assert "a token of its own" in str(with_tokens)


@pytest.mark.parametrize("said", [True, False], ids=["it says so", "it says nothing"])
def test_a_write_that_waited_for_a_person_is_compared_when_it_is_sent_and_the_record_has_every_age(
    said: bool, tmp_path: Path
) -> None:
    people = json.loads(json.dumps(DIRECTORY))
    for approver in people["acme"]["approvers"]:
        approver["keys"] = []
    with server(tmp_path) as adapter:
        pack = contextos.pack(
            "acme.lab", version="1.0.0", tenant="acme", tools=[adapter], who=["deployer"], approver="oncall"
        )
        with in_memory(packs=[pack], directory=people) as app:
            gate = app.gate(session="s", user="ana", token="tok_ana", agent="agt_deploy")
            for number in range(2):
                assert isinstance(gate.call("lab.say", {"text": "a"}, call_id=f"r{number}"), Done)
            assert isinstance(gate.call("lab.act", {"text": "b"}, call_id="w"), Waiting)
            if said:
                other = app.gate(session="t", user="ana", token="tok_ana", agent="agt_deploy")
                assert isinstance(other.call("lab.say", {"text": "change"}, call_id="r"), Done)
            (tmp_path / "calls.changed").touch()
            app.call(Person("olga").answer, app, gate.view())
            sent = gate.call("lab.act", {"text": "b"}, call_id="w")
            assert isinstance(sent, Done)
            assert sent.error is not None
            assert sent.error.code == "definition_drift"
            assert '{"text": "b"}' not in calls(tmp_path)
            entries = app.call(app.deployment.ports.stores.tenant("acme").read, gate.run_id)
    bodies = [read_body(one) or {} for one in entries if one.kind == "tool.returned"]
    asked, older, sent_write = [one["definition_age_ms"] for one in bodies]
    assert (asked, sent_write) == (0, 0)
    assert 0 < older < 1000 * AGE_S
    assert [one.get("drifted", False) for one in bodies] == [False, False, True]
