"""The governed MCP server as its users start it: a workspace of the refund, server processes, the SDK's clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import contextos
from contextos.adapters.key_files import KeyFiles
from contextos.cli import run_command_line
from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import seal
from tests.issuer import ISSUER, token
from tests.processes import ended
from tests.sessions import chosen_by_agent
from tests.unit.adapters.test_signed_directory import KEEPER, write
from tests.world import public_key

ROOT = Path(__file__).resolve().parents[1]
LOOKUP, EVAL, REFUND = "adp_orders__lookup", "adp_policy__eval", "adp_payments__issue_refund"
ORDER = {"order_id": "ord_881"}
CHECK = {**ORDER, "amount_inr": 4200}
PAY = {**CHECK, "currency": "INR"}
TOKEN = "a-token-that-is-long-enough-to-be-one"
AGENT, USER, DELEGATION = "agt_support", "usr_771", "tok_usr_771"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def refund_workspace(path: Path) -> Path:
    """A workspace of the refund, whose pack lets an agent choose its calls."""
    made = make_workspace(path)
    pack = json.loads((ROOT / "examples" / "support_refund" / "pack.json").read_bytes())
    chosen_by_agent(pack)
    envelope = seal(PACK_TYPE, canonical(pack), KeyFiles(path / "keys", SystemClock()), "pack")
    (path / "packs" / "support.json").write_text(json.dumps(envelope))
    context = made.requests["large"]["input"]["context"]
    (path / "context.json").write_text(json.dumps(context))

    async def initialise() -> None:
        async with contextos.open(path) as app:
            await app.initialise(made.tenant_id, by=example_operator(path))
            await seed_graph(app, made)

    asyncio.run(initialise())
    return path


def serve_words(workspace: Path, session: str = "s1", *more: str) -> list[str]:
    """The words after `contextos` that start a server for the user of the example."""
    who = ["--agent", AGENT, "--user", USER, "--delegation", DELEGATION, "--session", session]
    stated = ["--intent", "support.refund", "--context", str(workspace / "context.json")]
    return ["mcp", "serve", "-w", str(workspace), *who, *stated, *more]


def stdio(workspace: Path, session: str = "s1") -> StdioServerParameters:
    words = ["-W", "error", "-m", "contextos.cli", *serve_words(workspace, session)]
    return StdioServerParameters(command=sys.executable, args=words, env=ENVIRONMENT)


@contextmanager
def served(words: list[str]) -> Iterator[str]:
    """Serve HTTP in a process of its own; yields the `HOST:PORT`. The process is killed at the end."""
    command = [sys.executable, "-W", "error", "-m", "contextos.cli", *words]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT)) as process:
        assert process.stdout is not None
        said = ""
        while not (found := re.search(r"(?:serving http://|listening on )([0-9.:]+)", said)):
            line = process.stdout.readline().decode()
            assert line, said
            said += line
        yield found[1]


@asynccontextmanager
async def http(url: str, token: str) -> AsyncIterator[Any]:
    """The SDK's transport to a server over HTTP, with a bearer token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


def with_client(server: Any, play: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
    """Play with one client of the SDK, from its connection to its end."""

    async def inside() -> Any:
        async with Client(server, **options) as client:
            return await play(client)

    return asyncio.run(inside())


def answer(workspace: Path, session: str = "s1", verdict: str = "approve", user: str = "") -> int:
    """What the finance lead types in another terminal, while the server runs or not."""
    named = f"{user}:{session}" if user else session
    shown = cli(workspace, "runs", "show", named, "--json")
    # A server that was killed a moment ago can still hold the store; the command says to try again.
    for _ in range(20):
        if '"unavailable"' not in shown.stdout:
            break
        time.sleep(0.2)
        shown = cli(workspace, "runs", "show", named, "--json")
    assert '"binding_digest"' in shown.stdout, (shown.returncode, shown.stdout, shown.stderr)
    binding = json.loads(shown.stdout)["waiting"]["binding_digest"]
    signer = ["--as", "user_finance_lead_77", "--key", str(workspace / "keys" / "user_finance_lead_77.key")]
    more = ["--reason", "paid before"] if verdict == "deny" else []
    return cli(workspace, "approvals", verdict, named, "--binding", binding, *signer, *more).returncode


def cli(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command, as in another terminal, while servers are processes of their own."""
    out, err = StringIO(), StringIO()
    # In a thread of its own, because the test's own can have an event loop that runs.
    with redirect_stdout(out), redirect_stderr(err), ThreadPoolExecutor(1) as other:
        code = other.submit(run_command_line, [*words, "-w", str(workspace)]).result()
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def refunds(workspace: Path) -> list[int]:
    """What the shop paid."""
    with sqlite3.connect(workspace / "shop.db") as shop:
        return [row[0] for row in shop.execute("SELECT amount_inr FROM refunds")]


def oauth_workspace(path: Path, jwks_url: str, port: int) -> Path:
    """The workspace of the refund whose users come from the issuer of `tests/issuer.py`, with a server at `port`."""
    refund_workspace(path)
    write(path / "directory.dsse.json", 1, json.loads((path / "directory.json").read_bytes()))
    settings = (path / "contextos.toml").read_text()
    settings = settings.replace('"unsafe_local_directory", ', "")
    directory = {
        "kind": "oidc",
        "path": "directory.dsse.json",
        "signers": [public_key(KEEPER).hex()],
        "issuer": ISSUER,
        "audience": f"http://127.0.0.1:{port}/mcp",
        "jwks_url": jwks_url,
        "scopes": ["orders.read", "payments.refund"],
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in directory.items()]
    roles = ["[directory.roles]", 'idp-support = "support_agent"']
    (path / "contextos.toml").write_text("\n".join([settings, "[directory]", *lines, *roles, ""]))
    return path


def access_token(port: int, kid: str = "ec-1", lives_s: int = 600, **changes: Any) -> str:
    """A token of the issuer for the server at `port`, valid now."""
    now_s = int(time.time())
    says = {"groups": ["idp-support"], "scope": "orders.read payments.refund", "auth_time": now_s}
    times = {"iat": now_s, "exp": now_s + lives_s}
    return token(kid, **{**says, **times, "aud": f"http://127.0.0.1:{port}/mcp", **changes})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve_tokens_words(workspace: Path, port: int) -> list[str]:
    """The words after `contextos` that start a server whose users sign in with access tokens."""
    stated = ["--intent", "support.refund", "--context", str(workspace / "context.json")]
    return ["mcp", "serve", "-w", str(workspace), "--agent", AGENT, *stated, "--http", f"127.0.0.1:{port}"]
