"""The governed refund by stock MCP clients: killed while it waits, and finished by a new client process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_face import (
    CHECK,
    ENVIRONMENT,
    EVAL,
    LOOKUP,
    ORDER,
    PAY,
    REFUND,
    ROOT,
    TOKEN,
    answer,
    cli,
    http,
    refund_workspace,
    refunds,
    serve_words,
    served,
    stdio,
    with_client,
)
from tests.npm import node_environment, npm_folder

pytestmark = pytest.mark.slow


def http_words(workspace: Path) -> list[str]:
    (workspace / "token").touch(0o600)
    (workspace / "token").write_text(TOKEN)
    return serve_words(workspace, "s1", "--http", "127.0.0.1:0", "--token-file", str(workspace / "token"))


def until_it_waits(workspace: Path, *url: str) -> None:
    """A client process asks for the refund. It, and a server that it started, are killed while it waits."""
    command = [sys.executable, "-m", "tests.e2e.mcp_driver", str(workspace), *url]
    with subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as client:
        assert client.stdout is not None
        said = client.stdout.readline()
        os.killpg(client.pid, signal.SIGKILL)
    assert said == "waiting\n"


async def goes_on(client: Any) -> list[Any]:
    paid = await client.call_tool(REFUND, PAY)
    assert not paid.is_error, paid.content
    return [paid.structured_content, (await client.call_tool("finish_session", {"outcome": "approved"}))]


def one_refund(workspace: Path) -> None:
    """One run, one refund, a replay that is equal, and a store that verifies."""
    assert refunds(workspace) == [4200]
    (run,) = json.loads(cli(workspace, "runs", "list", "--json").stdout)["runs"]
    assert run["state"] == "completed"
    replayed = cli(workspace, "replay", "s1")
    assert (replayed.returncode, " equal: " in replayed.stdout) == (0, True), replayed.stderr
    verified = cli(workspace, "verify")
    assert (verified.returncode, "all verify" in verified.stdout) == (0, True), verified.stderr


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_client_that_is_killed_while_it_waits_is_followed_by_another(tmp_path: Path, transport: str) -> None:
    workspace = refund_workspace(tmp_path / "shop")
    # `served` kills its server with SIGKILL when the block ends: the server dies while the session waits too.
    with ExitStack() as first:
        url = [f"http://{first.enter_context(served(http_words(workspace)))}/mcp"] if transport == "http" else []
        until_it_waits(workspace, *url)
    assert answer(workspace) == 5
    with ExitStack() as second:
        server: Any = stdio(workspace)
        if transport == "http":
            server = http(f"http://{second.enter_context(served(http_words(workspace)))}/mcp", TOKEN)
        ended = with_client(server, goes_on)[1]
    assert ended.structured_content["outcome"] == "approved"
    one_refund(workspace)


def inspector(folder: Path, target: list[str], *words: str) -> Any:
    """One call of the inspector's command line, in a process of its own."""
    command = [str(folder / "node_modules" / ".bin" / "mcp-inspector"), "--cli", *target, *words]
    done = subprocess.run(command, env=node_environment(folder), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def inspect_call(folder: Path, target: list[str], name: str, args: dict[str, Any]) -> Any:
    said = [word for key, value in args.items() for word in ("--tool-arg", f"{key}={value}")]
    return inspector(folder, target, "--method", "tools/call", "--tool-name", name, *said)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_completes_the_refund_with_a_process_for_each_call(tmp_path: Path, transport: str) -> None:
    folder, workspace = npm_folder(), refund_workspace(tmp_path / "shop")
    with ExitStack() as running:
        if transport == "http":
            url = f"http://{running.enter_context(served(http_words(workspace)))}/mcp"
            target = [url, "--header", f"Authorization: Bearer {TOKEN}"]
        else:
            page = ["--link", "https://approve.acme.example/{run}"]
            target = [sys.executable, "-m", "contextos.cli", *serve_words(workspace, "s1", *page)]
        listed = inspector(folder, target, "--method", "tools/list")
        assert {one["name"] for one in listed["tools"]} == {LOOKUP, EVAL, REFUND, "finish_session"}
        inspect_call(folder, target, LOOKUP, ORDER)
        inspect_call(folder, target, EVAL, CHECK)
        waits = inspect_call(folder, target, REFUND, PAY)
        waiting = waits["structuredContent"]
        assert waiting["status"] == "waiting"
        link = f"https://approve.acme.example/{waiting['run']}" if transport == "stdio" else None
        assert waiting.get("link") == link
        assert answer(workspace) == 5
        paid = inspect_call(folder, target, REFUND, PAY)
        assert not paid.get("isError"), paid
        ended = inspect_call(folder, target, "finish_session", {"outcome": "approved"})
        assert ended["structuredContent"]["outcome"] == "approved"
    one_refund(workspace)
