"""A listing that is begun early is for one call, in one session, for some seconds; and it can only save time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.mcp import early_lists
from contextos.adapters.mcp.early_lists import MAX_EARLY, EarlyLists
from contextos.contracts.envelopes.tool import CallContext
from tests.servers.adapters import against, call_context

TEXT = {"text": "a"}


class Session:
    """A session that counts its listings; `fails` is how many of the next ones fail, and `hangs` how many hang."""

    def __init__(self, *, fails: int = 0, hangs: int = 0) -> None:
        self.count, self.fails, self.hangs, self.changes = 0, fails, hangs, 0

    async def list_tools(self, trace: Any = None) -> list[dict[str, Any]]:
        self.count += 1
        number = self.count
        if number <= self.hangs:
            await asyncio.Event().wait()
        if number <= self.fails:
            raise ConnectionError("it ended")
        return [{"number": number}]


def listed(session: Session, *expected: str, of: Session | None = None) -> tuple[int, int]:
    """The number of the listing that the call `tool_1` gets after these calls were expected, and how many began."""

    async def inside() -> tuple[int, int]:
        early = EarlyLists()
        for one in expected:
            early.begin(one, of or session)
        await asyncio.sleep(0)
        (tool,) = await early.listed("tool_1", session, {})
        return tool["number"], session.count

    return asyncio.run(inside())


def test_an_expected_call_lists_once_and_any_other_lists_anew() -> None:
    assert listed(Session(), "tool_1") == (1, 1)
    assert listed(Session(), "tool_1", "tool_1") == (1, 1)
    assert listed(Session()) == (1, 1)
    assert listed(Session(), "tool_2") == (2, 2)
    assert listed(Session(), "tool_1", of=Session()) == (1, 1)


def test_a_listing_is_used_for_one_attempt() -> None:
    async def twice() -> int:
        early, session = EarlyLists(), Session()
        early.begin("tool_1", session)
        for _ in range(2):
            await early.listed("tool_1", session, {})
        return session.count

    assert asyncio.run(twice()) == 2


def test_a_listing_is_not_used_after_the_server_said_that_its_list_changed() -> None:
    async def listed_after_a_change(*, while_it_lists: bool) -> tuple[int, int]:
        early, session = EarlyLists(), Session()
        early.begin("tool_1", session)
        if not while_it_lists:
            await asyncio.sleep(0)
        session.changes += 1
        (tool,) = await early.listed("tool_1", session, {})
        return tool["number"], session.count

    assert asyncio.run(listed_after_a_change(while_it_lists=False)) == (2, 2)
    assert asyncio.run(listed_after_a_change(while_it_lists=True)) == (2, 2)


def test_a_listing_that_fails_raises_nowhere_and_the_call_lists_anew() -> None:
    assert listed(Session(fails=1), "tool_1") == (2, 2)
    with pytest.raises(ConnectionError):
        listed(Session(fails=2), "tool_1")


def test_what_was_listed_too_long_ago_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_lists, "FRESH_S", -1.0)
    assert listed(Session(), "tool_1") == (2, 2)
    assert listed(Session(hangs=1), "tool_1") == (2, 2)
    # This one was begun in time, and does not end in time.
    monkeypatch.setattr(early_lists, "FRESH_S", 0.02)
    assert listed(Session(hangs=1), "tool_1") == (2, 2)


def test_listings_that_nobody_uses_are_bounded_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begun() -> tuple[int, int, int]:
        early, session = EarlyLists(), Session(hangs=10_000)
        for number in range(2 * MAX_EARLY):
            early.begin(f"tool_{number}", session)
        await asyncio.sleep(0)
        at_most = session.count
        monkeypatch.setattr(early_lists, "FRESH_S", -1.0)
        early.begin("tool_again", session)
        for _ in range(3):
            await asyncio.sleep(0)
        return at_most, session.count, len(asyncio.all_tasks())

    # What is left are this test and the last listing.
    assert asyncio.run(begun()) == (MAX_EARLY, MAX_EARLY + 1, 2)


def called(tool_call_id: str) -> CallContext:
    return replace(call_context(), tool_call_id=tool_call_id)


def lists(folder: Path) -> int:
    path = folder / "calls.lists"
    return len(path.read_text("utf-8").splitlines()) if path.exists() else 0


def test_a_call_of_a_server_uses_its_listing(tmp_path: Path) -> None:
    with against("flag", tmp_path, draft="plain") as adapter:
        for number, expected in enumerate(("tool_1", "tool_2", "tool_other"), start=1):
            adapter.expect_call("say", expected)
            assert asyncio.run(adapter.call("say", TEXT, called(f"tool_{number}"))).error is None
            # The first call opens the session, and nothing is asked before it.
            assert lists(tmp_path) == (number if number < 3 else 4)


def test_to_expect_a_call_connects_nothing(tmp_path: Path) -> None:
    with against("plain", tmp_path) as adapter:
        adapter.expect_call("say", "tool_1")
        adapter.expect_call("nothing", "tool_1")
        assert adapter._thread is None
    adapter.expect_call("say", "tool_1")


def test_a_call_with_a_token_of_its_own_lists_in_its_own_session(tmp_path: Path) -> None:
    with against("flag", tmp_path, draft="plain") as adapter:
        assert asyncio.run(adapter.call("say", TEXT, called("tool_1"))).error is None
        assert adapter._sessions is not None
        adapter._sessions._config = adapter._config.model_copy(update={"audience": "desk"})
        adapter.expect_call("say", "tool_2")
        assert adapter._thread is not None
        adapter._thread.submit(asyncio.sleep(0)).result()
        assert adapter._sessions.early._listings == {}
