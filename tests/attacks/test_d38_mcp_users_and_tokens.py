"""D38: access tokens that are not for this server, and sessions that are not the caller's, over HTTP."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError

from tests.issuer import AUDIENCE, ISSUER, issuer, mac_with
from tests.mcp_face import (
    CHECK,
    EVAL,
    LOOKUP,
    ORDER,
    PAY,
    REFUND,
    TOKEN,
    access_token,
    answer,
    cli,
    free_port,
    http,
    oauth_workspace,
    refund_workspace,
    refunds,
    serve_tokens_words,
    serve_words,
    served,
    with_client,
)
from tests.unit.server.mcp.test_serving import Polling, ask_about

pytestmark = pytest.mark.slow


class Place:
    """A server whose users sign in with tokens."""

    def __init__(self, path: Path, port: int) -> None:
        self.path, self.port = path, port
        self.url = f"http://127.0.0.1:{port}/mcp"

    def client(self, play: Any, session: str = "s1", **changes: Any) -> Any:
        return with_client(http(f"{self.url}?session={session}", access_token(self.port, **changes)), play)


@contextmanager
def opened(path: Path) -> Iterator[Place]:
    port = free_port()
    with issuer() as made:
        workspace = oauth_workspace(path, made.url, port)
        with served(serve_tokens_words(workspace, port)):
            yield Place(workspace, port)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with opened(tmp_path / "shop") as made:
        yield made


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place for tests that leave no session in it."""
    with opened(tmp_path_factory.mktemp("quiet") / "shop") as made:
        yield made


def ask(place: Place, headers: dict[str, str]) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepted = {"Accept": "application/json, text/event-stream"}
    return httpx2.post(place.url, json=body, headers={**accepted, **headers}, timeout=60)


async def lists(client: Client) -> set[str]:
    return {one.name for one in (await client.list_tools()).tools}


async def reads(client: Client) -> None:
    for name, args in ((LOOKUP, ORDER), (EVAL, CHECK)):
        result = await client.call_tool(name, args)
        assert not result.is_error, result.content


def test_a_request_without_a_token_learns_where_to_get_one(quiet: Place) -> None:
    for headers in ({}, {"Authorization": "Basic abc"}, {"Authorization": f"Bearer {TOKEN}"}):
        refused = ask(quiet, headers)
        assert refused.status_code == 401
        assert "resource_metadata=" in refused.headers["www-authenticate"]
    metadata = httpx2.get(f"http://127.0.0.1:{quiet.port}/.well-known/oauth-protected-resource/mcp").json()
    assert (metadata["resource"], metadata["authorization_servers"]) == (quiet.url, [ISSUER])
    assert metadata["bearer_methods_supported"] == ["header"]
    assert LOOKUP in quiet.client(lists), "the test can fail"


OTHERS: dict[str, Any] = {
    "for another service": {"aud": AUDIENCE},
    "for this server and another": {"aud": None},
    "of another issuer": {"iss": "https://login.other.example"},
    "for another path": {"aud": "http://127.0.0.1/mcp"},
    "for nobody with a role": {"groups": ["idp-guests"]},
    "that has ended": {"iat": 1_700_000_000, "exp": 1_700_000_300},
    "of a weak key": {"kid": "weak", "alg": "RS256"},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_a_token_that_was_not_made_for_this_server_opens_nothing(quiet: Place, changes: dict[str, Any]) -> None:
    token = access_token(quiet.port, **changes)
    assert ask(quiet, {"Authorization": f"Bearer {token}"}).status_code == 401
    assert json.loads(cli(quiet.path, "runs", "list", "--json").stdout)["runs"] == []


def test_an_issuer_that_is_down_costs_nobody_their_token(tmp_path: Path) -> None:
    """A client throws its token away after a 401, so that is said only of a token that was checked."""
    port = free_port()
    with issuer() as made:
        workspace = oauth_workspace(tmp_path / "shop", made.url, port)
        place = Place(workspace, port)
        with served(serve_tokens_words(workspace, port)):
            good = {"Authorization": f"Bearer {access_token(port)}"}
            works, made.answer = made.answer, lambda: (500, b"", {})
            for _ in range(2):
                refused = ask(place, good)
                assert (refused.status_code, refused.content) == (503, b"")
                assert int(refused.headers["retry-after"]) >= 1
            assert ask(place, {}).status_code == 401
            made.answer = works
            time.sleep(int(refused.headers["retry-after"]))
            assert LOOKUP in place.client(lists)
            assert ask(place, good).status_code != 503


def test_a_token_in_the_url_or_of_a_shared_secret_opens_nothing(quiet: Place) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    good = access_token(quiet.port)
    assert httpx2.post(f"{quiet.url}?access_token={good}", json=body, timeout=60).status_code == 401
    assert ask(quiet, {"Authorization": f"Bearer {mac_with(b'secret')}"}).status_code == 401


def test_a_name_of_a_session_is_no_permission(place: Place) -> None:
    async def asks(client: Client) -> Any:
        await reads(client)
        return await client.call_tool(REFUND, PAY)

    mine = place.client(asks).structured_content
    theirs = place.client(asks, sub="user_9042").structured_content
    assert (mine["status"], theirs["status"]) == ("waiting", "waiting")
    assert mine["run"] != theirs["run"], "the same name of another user is another session"
    assert answer(place.path, user="user_9041") == 5

    async def again(client: Client) -> Any:
        return await client.call_tool(REFUND, PAY)

    assert place.client(again, sub="user_9042").structured_content["status"] == "waiting"
    # A later token of the same user goes on with the session.
    paid = place.client(again, kid="ec-2")
    assert not paid.is_error, paid.content
    assert refunds(place.path) == [4200]


def test_a_token_of_fewer_scopes_gets_nothing_out_of_the_session_of_a_newer_one(place: Place) -> None:
    async def looks(client: Client) -> Any:
        return await client.call_tool(LOOKUP, ORDER)

    narrow = access_token(place.port, iat=int(time.time()) - 60, scope="orders.read")

    def looks_narrowly() -> Any:
        return with_client(http(f"{place.url}?session=s1", narrow), looks)

    assert not looks_narrowly().is_error, "the session is its own"
    place.client(looks)
    assert "insufficient_scope" in str(looks_narrowly()), "though it is verified and kept"
    assert not place.client(looks, session="s2").is_error


def stored(workspace: Path) -> dict[str, int]:
    """How many rows each table of the store has."""
    with closing(sqlite3.connect(workspace / "contextos.db")) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {one: database.execute(f'SELECT count(*) FROM "{one}"').fetchone()[0] for one in tables}


async def asks_for_a_task(client: Client) -> None:
    with pytest.raises(MCPError, match="no call `mcp_1`"):
        await ask_about(client, "tasks/get", "mcp_1")


@pytest.mark.requirement("R-LISTING")
def test_a_client_that_lists_under_many_names_opens_no_session_and_leaves_nothing(place: Place) -> None:
    token = access_token(place.port)  # who signs in with it is kept, once

    def under(name: str, play: Any) -> Any:
        return with_client(http(f"{place.url}?session={name}", token), play, extensions=[Polling()])

    shown = under("first", lists)
    before = stored(place.path)
    for number in range(20):
        assert under(f"name_{number}", lists) == shown
        under(f"task_{number}", asks_for_a_task)
    assert stored(place.path) == before
    assert json.loads(cli(place.path, "runs", "list", "--json").stdout)["runs"] == []
    place.client(reads, "name_1")
    assert len(json.loads(cli(place.path, "runs", "list", "--json").stdout)["runs"]) == 1
    assert place.client(lists, "name_1") == shown, "the session has the tools that were listed before it"
    assert stored(place.path) != before, "the test can fail"


@pytest.mark.parametrize("query", ["", "?session=", "?session=user_9042:s1", "?session=../s1", "?session=" + "s" * 65])
def test_a_url_that_names_no_session_learns_how_to(quiet: Place, query: str) -> None:
    async def play(client: Client) -> None:
        with pytest.raises(MCPError, match=r"add `\?session=NAME`"):
            await client.list_tools()
        result = await client.call_tool(LOOKUP, ORDER)
        assert result.structured_content["reasons"][0]["code"] == "no_session_name"

    with_client(http(quiet.url + query, access_token(quiet.port)), play)


def test_a_session_of_another_user_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    workspace = refund_workspace(tmp_path / "shop")
    mine = serve_words(workspace)
    assert subprocess_of(mine).returncode == 0
    other = [word.replace("usr_771", "usr_772") for word in mine]
    refused = subprocess_of(other)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert refused.stdout == "", "stdout is the protocol's"


def subprocess_of(words: list[str]) -> Any:
    import subprocess
    import sys

    from tests.mcp_face import ENVIRONMENT

    command = [sys.executable, "-m", "contextos.cli", *words]
    return subprocess.run(
        command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_a_server_whose_tokens_are_for_no_mcp_server_does_not_start(tmp_path: Path) -> None:
    with issuer() as made:
        workspace = oauth_workspace(tmp_path / "shop", made.url, 8000)
    settings = workspace / "contextos.toml"
    settings.write_text(settings.read_text().replace("http://127.0.0.1:8000/mcp", "contextos"))
    refused = subprocess_of(serve_tokens_words(workspace, 0))
    assert refused.returncode == 2
    assert "is not the URL of an MCP server" in refused.stderr
    plain = refund_workspace(tmp_path / "plain")
    assert "the directory takes no tokens" in subprocess_of(serve_tokens_words(plain, 0)).stderr
    assert json.loads(cli(plain, "runs", "list", "--json").stdout)["runs"] == []
