"""Background sessions on the command line: received, listed, driven, compiled, and bounded by the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.cli.command_context import with_context
from contextos.contracts.journal import INDEX, Batch
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries import run_index
from contextos.errors import Unavailable
from contextos.store.sqlite.stores import SqliteStore
from contextos.workspace.engine.resume import drive_due_runs
from contextos_sim.memory.stores import MemoryStores
from tests.suites.store_suite import at_once, draft


@pytest.fixture
def long(shop: Any) -> str:
    """A `long_running` request that needs nobody."""
    body = json.loads((shop.path / "requests" / "small.json").read_text("utf-8"))
    body |= {"request_id": "req_long", "mode": "long_running", "session_id": "sess_long"}
    body["input"]["context"]["refund_amount"] = 700
    where = shop.path / "requests" / "long.json"
    where.write_text(json.dumps(body), "utf-8")
    return str(where)


@pytest.mark.requirement("R-MODES")
def test_a_long_running_request_is_received_and_driven_by_resume(shop: Any, long: str) -> None:
    paid = shop.refunds()
    received = shop.say("invoke", long)
    assert received.code == 5
    assert "waits for an engine" in received.out
    assert "next: leave it to a `contextos worker`" in received.out
    again = shop.say("invoke", long, "--json")
    assert (again.code, again.json["waiting"]) == (5, {"for": "engine"})
    assert shop.say("runs", "list", "--waiting", "--json").json["runs"] == [], "no person is asked"
    assert shop.refunds() == paid
    driven = shop.say("runs", "resume", "--json")
    assert [one["state"] for one in driven.json["driven"]] == ["completed"]
    assert shop.refunds() == [*paid, ("ord_881", 700)]
    assert shop.say("invoke", long).code == 0
    assert shop.say("replay", "req_long").code == 0


def test_sessions_are_listed_with_their_last_checkpoint_and_deadline(shop: Any, long: str) -> None:
    assert shop.say("runs", "sessions").out == "there are no sessions\n", "runs of other modes are none"
    run_id = shop.say("invoke", long, "--json").json["run_id"]
    (before,) = shop.say("runs", "sessions", "--json").json["sessions"]
    assert (before["run_id"], before["session_id"], before["request_id"]) == (run_id, "sess_long", "req_long")
    assert (before["state"], before["waits_for"], before["checkpoint"]) == ("received", "engine", None)
    shop.say("runs", "resume")
    (after,) = shop.say("runs", "sessions", "--json").json["sessions"]
    assert (after["state"], after["ended"], after["heartbeat_at_us"]) == ("completed", True, None)
    assert (after["checkpoint"]["checkpoint"], after["checkpoint"]["verdict"]) == (2, "accept")
    assert after["deadline_us"] == before["deadline_us"] == before["started_at_us"] + 14_400_000_000
    shown = shop.say("runs", "sessions").out
    assert run_id in shown
    assert "2 accept" in shown
    assert "sess_long, req_long" in shown
    assert shop.say("runs", "sessions", "--live").out == "there are no sessions\n"


def test_sessions_are_looked_for_in_pages_and_never_in_the_whole_index(
    shop: Any, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shop.say("invoke", long, "--json").json["run_id"]
    shop.say("runs", "resume")
    for number in range(3):
        body = json.loads(Path(long).read_text("utf-8")) | {"request_id": f"req_long_{number}"}
        Path(long).write_text(json.dumps(body | {"mode": "stream" if number < 2 else "long_running"}), "utf-8")
        shop.say("invoke", long)
    whole = shop.say("runs", "sessions", "--json").json
    assert [one["request_id"] for one in whole["sessions"]] == ["req_long_2", "req_long"]
    assert whole["next_after"] is None

    read: list[tuple[str, int | None]] = []
    real = SqliteStore.read

    async def noted(self: SqliteStore, stream: str, *, after: int = 0, limit: int | None = None) -> Any:
        read.append((stream, limit))
        return await real(self, stream, after=after, limit=limit)

    monkeypatch.setattr(SqliteStore, "read", noted)
    monkeypatch.setattr(run_index, "PAGE", 1)
    found: list[Any] = []
    after, pages = 0, 0
    while after is not None:
        read.clear()
        page = shop.say("runs", "sessions", "--limit", "1", "--after", str(after), "--json").json
        assert {limit for stream, limit in read if stream == "index"} == {1}
        found, after, pages = found + page["sessions"], page["next_after"], pages + 1
    assert (found, pages) == (whole["sessions"], 2), "a page for each session, however many other runs there are"
    assert "more: contextos runs sessions --after " in shop.say("runs", "sessions", "--limit", "1").out
    read.clear()
    assert [one["request_id"] for one in shop.say("runs", "sessions", "--live", "--json").json["sessions"]] == [
        "req_long_2"
    ]
    assert first not in {stream for stream, _ in read}, "what the index says has ended is not read"


@pytest.mark.parametrize("lines", range(9))
def test_the_end_of_an_index_is_found_whatever_its_length(lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "PAGE", 3)
    store = MemoryStores().tenant("acme")
    at_once(store.commit(Batch("run_a", shared=((INDEX, draft()),) * lines, wake_at_us=0)))

    async def seen(after: int) -> list[int]:
        return [line.seq async for line in run_index.newest_first(store, "acme", after)]

    assert at_once(seen(0)) == list(range(lines, 0, -1))
    assert at_once(seen(5)) == [number for number in range(4, 0, -1) if number <= lines]


def test_a_number_past_the_end_of_the_index_begins_at_its_end_and_one_that_is_none_is_refused(
    shop: Any, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.say("invoke", long)
    reads: list[int] = []
    real = SqliteStore.read

    async def counted(self: SqliteStore, stream: str, *, after: int = 0, limit: int | None = None) -> Any:
        reads.append(after)
        assert len(reads) < 100, "it walks down through numbers that no line has"
        return await real(self, stream, after=after, limit=limit)

    monkeypatch.setattr(SqliteStore, "read", counted)
    (listed,) = shop.say("runs", "sessions", "--after", str(2**62), "--json").json["sessions"]
    assert listed["request_id"] == "req_long"
    refused = shop.say("runs", "sessions", "--after", str(10**27))
    assert refused.code == 2
    assert "--after" in refused.err


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_a_session_past_the_limit_of_the_settings_ends_exhausted(shop: Any, long: str) -> None:
    settings = shop.path / "contextos.toml"
    limits = "\n[limits]\nmax_session_duration_ms = 1\n"
    settings.write_text(settings.read_text("utf-8") + limits, "utf-8")
    paid = shop.refunds()
    shop.say("invoke", long)
    assert [one["state"] for one in shop.say("runs", "resume", "--json").json["driven"]] == ["exhausted"]
    shown = shop.say("invoke", long)
    assert shown.code == 1
    assert "budget_exhausted" in shown.out
    assert shop.refunds() == paid


def test_a_long_running_request_is_compiled_like_any_other(shop: Any, long: str) -> None:
    compiled = shop.say("compile", long, "--json")
    assert compiled.code == 0
    assert compiled.json["context_ledger"]["tools"]
    assert shop.say("runs", "sessions").out == "there are no sessions\n", "and no run is made"


def test_a_long_running_request_that_is_too_large_to_compile_says_so(shop: Any, long: str) -> None:
    body = json.loads(Path(long).read_text("utf-8"))
    body["runtime"]["total_tokens"] = 1
    Path(long).write_text(json.dumps(body), "utf-8")
    refused = shop.say("compile", long, "--json")
    assert refused.code == 1
    assert refused.json["failures"][0]["code"] == "budget_exhausted"


def test_a_session_that_could_not_be_driven_is_said_to_be_held_up(
    shop: Any, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.say("invoke", long)

    async def away(*_: Any) -> None:
        raise Unavailable("graph", "it is away", retry_after_ms=60_000)

    monkeypatch.setattr(Deployment, "advance", away)
    (left,) = with_context(
        shop.path, None, lambda session: drive_due_runs(session.deployment, session.app.engine, patience_s=0.05)
    )
    assert left.state == "received"
    assert isinstance(left.error, Unavailable)
