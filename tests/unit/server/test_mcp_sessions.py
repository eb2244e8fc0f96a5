"""The sessions of one server: names in a URL, and how many are kept open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import contextos
from contextos.errors import InvalidInput
from contextos.server import mcp_sessions
from contextos.server.mcp_sessions import Client, ServedSessions, session_of
from tests.mcp_face import AGENT, DELEGATION, USER, refund_workspace


def test_a_session_is_named_by_its_user_and_the_name_in_the_url() -> None:
    assert session_of("ana", "s1.2_3-4") == "ana:s1.2_3-4"


@pytest.mark.parametrize("name", [None, "", "a:b", ".a", "a b", "a/b", "a" * 65, "ä"])
def test_what_is_no_name_is_refused(name: str | None) -> None:
    with pytest.raises(InvalidInput, match="names no session"):
        session_of("ana", name)


def test_the_least_recently_used_session_is_closed_and_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "MAX_OPEN_SESSIONS", 2)
    workspace = refund_workspace(tmp_path / "shop")

    async def inside() -> None:
        async with contextos.open(workspace) as app:
            [tenant] = app.tenants()
            sessions = ServedSessions(app, tenant, AGENT)
            first, second, third = (Client(USER, DELEGATION, name) for name in ("s1", "s2", "s3"))
            opened = await sessions.calls(first)
            assert await sessions.calls(first) is opened
            await sessions.calls(second)
            await sessions.calls(third)
            again = await sessions.calls(first)
            assert again is not opened
            assert again.gate.run_id == opened.gate.run_id

    asyncio.run(inside())
