"""Three workers of a web server over one store, with the router of the docs: 200 equal requests are one run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.workspace import open_unchecked
from contextos.workspace.settings import Settings
from tests.postgres import Database
from tests.world import TENANT, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = 200
WORKERS = 3


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's workspace, initialised, over a file or a database, with the docs' router as `router.py`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = make_workspace(tmp_path / "w")
    toml = made.path / "contextos.toml"
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("database")
        toml.write_text(f'store = "{database.app}"\n' + toml.read_text("utf-8"), "utf-8")

    async def begin() -> None:
        app = await open_unchecked(Settings.read(made.path))
        await app.initialise(TENANT, by=example_operator(made.path))
        await seed_graph(app, made)
        app.close()

    run(begin())
    block = re.search(
        r"## Behind a web server\n.*?```python\n(.*?)```",
        (ROOT / "docs" / "embedding.md").read_text("utf-8"),
        re.DOTALL,
    )
    assert block is not None
    (made.path / "router.py").write_text(block.group(1), "utf-8")
    return made.path


@pytest.fixture
def address(workspace: Path) -> Iterator[str]:
    """Where three workers of one server listen."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "router:router", "--workers", str(WORKERS), "--port", str(port)]
    server = subprocess.Popen(command, cwd=workspace, env=dict(os.environ), start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}/decisions"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        os.killpg(server.pid, signal.SIGKILL) if server.poll() is None else None


def test_200_equal_requests_at_three_workers_are_one_run(workspace: Path, address: str) -> None:
    body = json.loads((workspace / "requests" / "small.json").read_text("utf-8"))

    async def ask(client: httpx.AsyncClient) -> tuple[int, dict[str, Any]]:
        for _ in range(200):
            try:
                answer = await client.post(address, json=body)
            except httpx.TransportError:
                # The server is not up yet.
                await asyncio.sleep(0.2)
                continue
            if answer.status_code in (429, 503):
                await asyncio.sleep(float(answer.headers["retry-after"]) / 10)
                continue
            return answer.status_code, answer.json()
        raise AssertionError("no worker answered")

    async def ask_all() -> list[tuple[int, dict[str, Any]]]:
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=40)) as client:
            await ask(client)
            return await asyncio.gather(*(ask(client) for _ in range(REQUESTS)))

    answers = run(ask_all())
    assert Counter(status for status, _ in answers) == {200: REQUESTS}
    assert {(one["run_id"], one["state"]) for _, one in answers} == {(answers[0][1]["run_id"], "completed")}
    assert len({one["record"]["record_hash"] for _, one in answers}) == 1
    with sqlite3.connect(workspace / "shop.db") as shop:
        assert shop.execute("SELECT count(*) FROM refunds").fetchone() == (1,)
