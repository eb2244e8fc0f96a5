"""G80: what is acknowledged is at the witness about a second later, so that little can be cut after a kill."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.contracts.journal import INDEX
from tests.attacks.shop import Shop
from tests.world import TENANT, request

WITHIN_S = 5.0
"""Longer than a second, for a machine that is busy; it was up to 30 s."""


@pytest.fixture
def witness(fresh: Shop, tmp_path: Path) -> Path:
    fresh.settings(f'witness = "{tmp_path / "heads.jsonl"}"\n')
    return tmp_path / "heads.jsonl"


def witnessed(file: Path) -> int:
    """How many entries of the index the witness knows of."""
    heads = [json.loads(line) for line in file.read_text().splitlines()]
    return max((head["seq"] for head in heads if head["stream"] == INDEX), default=0)


def written(file: Path) -> int:
    return len(file.read_text().splitlines())


def test_a_run_is_witnessed_while_its_process_goes_on(witness: Path, initialised: Shop) -> None:
    async def go() -> None:
        async with contextos.open(initialised.path) as app:
            for number in range(3):
                view: Any = await app.deployment.invoke(request(900 + number, f"req_{number}"))
                assert view.state == "completed"
                length = await app.stores.tenant(TENANT).length(INDEX)
                until = time.monotonic() + WITHIN_S
                while witnessed(witness) < length and time.monotonic() < until:  # noqa: ASYNC110 - another writes it
                    await asyncio.sleep(0.05)
                assert witnessed(witness) == length

    asyncio.run(go())


def test_an_idle_tenant_adds_no_line(witness: Path, initialised: Shop) -> None:
    async def go() -> None:
        async with contextos.open(initialised.path) as app:
            await app.deployment.invoke(request(900, "req_1"))
            length = await app.stores.tenant(TENANT).length(INDEX)
            while witnessed(witness) < length:  # noqa: ASYNC110 - another writes it
                await asyncio.sleep(0.05)
            lines = written(witness)
            await asyncio.sleep(2.5)
            # What was put is on record once, as the beginning of the witness in `control`.
            assert written(witness) <= lines + 1

    asyncio.run(go())


def test_what_is_cut_after_a_kill_is_missed(witness: Path, initialised: Shop, stores: str) -> None:
    if stores != "sqlite":
        pytest.skip("the cut of a file; tests/e2e/test_restore.py cuts a database")

    async def go() -> None:
        opening = contextos.open(initialised.path)
        app = await opening.__aenter__()
        await app.deployment.invoke(request(900, "req_1"))
        length = await app.stores.tenant(TENANT).length(INDEX)
        while witnessed(witness) < length:  # noqa: ASYNC110 - another writes it
            await asyncio.sleep(0.05)
        # As after a kill: nothing is published on leaving.
        app.witness_publisher = None
        await opening.__aexit__(None, None, None)

    asyncio.run(go())
    with closing(sqlite3.connect(initialised.path / "contextos.db")) as store, store:
        for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            store.execute(f"DROP TRIGGER {name}")
        (run,) = store.execute("SELECT key FROM journal WHERE run = 'index' ORDER BY seq DESC LIMIT 1").fetchone()
        store.execute("DELETE FROM journal WHERE run = 'index' AND key = ?", (run,))
    assert initialised.say("verify").code == 3
