"""The sessions of one server: names in a URL, and how many are kept open."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import contextos
from contextos.contracts.entries.reading import read_body
from contextos.errors import InvalidInput
from contextos.server.mcp import sessions as mcp_sessions
from contextos.server.mcp.sessions import Client, ServedSessions, check_link, session_of
from tests.mcp_face import AGENT, DELEGATION, USER, refund_workspace


def test_a_session_is_named_by_its_user_and_the_name_in_the_url() -> None:
    assert session_of("ana", "s1.2_3-4") == "ana:s1.2_3-4"


def test_a_user_whose_id_reads_like_a_digest_has_other_sessions() -> None:
    victims = session_of("auth0|7f", "s1")
    user, _, _ = victims.rpartition(":")
    assert user.startswith("oidc:")
    assert session_of(user, "s1") != victims
    assert session_of("oidc:ana", "s1") != "oidc:ana:s1"


@pytest.mark.parametrize("name", [None, "", "a:b", ".a", "a b", "a/b", "a" * 65, "ä"])
def test_what_is_no_name_is_refused(name: str | None) -> None:
    with pytest.raises(InvalidInput, match="names no session"):
        session_of("ana", name)


@pytest.mark.parametrize(
    "link",
    [
        "approve/{run}",
        "http://approve.acme.example/{run}",
        "javascript:alert({run})",
        "https://{run}.acme.example/",
        "https://user@acme.example/{run}",
        "https://acme.example/",
        "https://acme.example/{run}/{run}",
        "https://acme.example/{run} and more",
        "https://acme.example/{run}\u202e",
        "https://[acme/{run}",
    ],
)
def test_a_link_that_shows_no_run_or_leads_elsewhere_is_refused(link: str) -> None:
    with pytest.raises(InvalidInput, match="the link"):
        check_link(link)


@pytest.mark.parametrize("link", ["https://acme.example/a?run={run}#{x}", "http://127.0.0.1:8000/runs/{run}"])
def test_a_page_about_one_run_is_a_link(link: str) -> None:
    check_link(link)


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


@pytest.mark.parametrize("traces_from", ["callers", "workloads"])
def test_the_trace_of_a_session_is_the_one_that_its_first_request_names_or_links_to_it(
    traces_from: str, tmp_path: Path
) -> None:
    workspace = refund_workspace(tmp_path / "shop")
    trace_id, span_id = "12345678901234567890123456789012", "1234567890123456"
    named = {"traceparent": f"00-{trace_id}-{span_id}-01", "tracestate": "evil=1", "baggage": "role=operator"}

    async def inside() -> None:
        async with contextos.open(workspace) as app:
            app.settings = replace(app.settings, traces_from=traces_from)
            [tenant] = app.tenants()
            sessions = ServedSessions(app, tenant, AGENT)
            malformed = {"traceparent": 5, "tracestate": ["a"], "progress_token": 1}
            for session, meta, link in (
                ("s1", named, {"trace_id": trace_id, "span_id": span_id}),
                ("s2", malformed, None),
                ("s3", None, None),
            ):
                calls = await sessions.calls(Client(USER, DELEGATION, session), meta)
                [received] = await app.stores.tenant(tenant).read(calls.gate.run_id, limit=1)
                trace = read_body(received)["request"]["trace"]
                goes_on = link is not None and traces_from == "callers"
                assert (trace["trace_id"] == trace_id) is goes_on
                assert trace.get("link") == (None if goes_on else link)
                assert not {"tracestate", "baggage"} & trace.keys()

    asyncio.run(inside())
