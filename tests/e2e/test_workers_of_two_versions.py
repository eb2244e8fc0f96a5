"""Worker processes of two versions on one backlog: each says in one sentence what it leaves, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import SEMANTICS
from contextos.deployment.dead_letters import list_dead_letters
from contextos.store.shared.clock import SystemClock
from tests.e2e.version_worker import knowing
from tests.postgres import Database, Server, own_server
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
OTHER = SEMANTICS + 5
UNKNOWN = f"the run has semantics {OTHER}, this runtime knows {SEMANTICS}; replay it with the runtime that made it"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_server() as made:
        yield made


@dataclass
class Worker:
    """A worker process, and the file of what it says."""

    process: subprocess.Popen[bytes]
    said: Path

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        while not await condition():
            assert self.process.poll() is None, self.said.read_text()
            await asyncio.sleep(0.05)

    async def says(self, words: list[str]) -> bool:
        text = await asyncio.to_thread(self.said.read_text)
        return all(word in text for word in words)


@contextmanager
def worker(world: TestWorld, url: str, semantics: int) -> Iterator[Worker]:
    """It is killed at the end."""
    said = world.path / f"said_{semantics}"
    line = [sys.executable, "-m", "tests.e2e.version_worker", str(world.path), url, str(semantics)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with said.open("ab") as file:
        process = subprocess.Popen(line, cwd=ROOT, env=environment, stdout=file, stderr=file)
    try:
        yield Worker(process, said)
    finally:
        process.kill()
        process.wait()


async def received(world: TestWorld, amount: int, request_id: str) -> str:
    order_id = f"ord_{request_id}"
    await world.stock(order_id)
    body = request(amount, request_id, order_id=order_id) | {"mode": "long_running"}
    return (await world.invoke(body)).run_id


def all_asked(world: TestWorld, runs: list[str]) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return all(["approval.asked" in await world.kinds(run_id) for run_id in runs])

    return asked


def all_ended(world: TestWorld, runs: list[str]) -> Callable[[], Awaitable[bool]]:
    async def ended() -> bool:
        return all([(await world.deployment.view(TENANT, run_id)).ended for run_id in runs])

    return ended


async def semantics_of(world: TestWorld, runs: list[str]) -> list[int]:
    tapes = [await world.stores.tenant(TENANT).read(run_id) for run_id in runs]
    return [read_body(entry)["semantics"] for tape in tapes for entry in tape if entry.kind == "run.pinned"]


@pytest.mark.requirement("E-DUE", "E-DEAD-LETTERS")
def test_a_worker_leaves_the_runs_of_another_version_to_its_workers_and_says_so_once(
    server: Server, tmp_path: Path
) -> None:
    database = server.database()

    async def scenario() -> None:
        world = await open_world(tmp_path, stores=database.app, clock=SystemClock())
        with knowing(OTHER):
            theirs = [await received(world, 4200, f"theirs_{number}") for number in range(3)]
        ours = [await received(world, 4200, f"ours_{number}") for number in range(3)]
        with worker(world, database.app, SEMANTICS) as older:
            await older.until(all_asked(world, ours))
            await older.until(lambda: older.says(theirs))
            assert [await world.kinds(run_id) for run_id in theirs] == [["run.received"]] * 3
            with worker(world, database.app, OTHER) as newer:
                await newer.until(all_asked(world, theirs))
                for run_id in theirs + ours:
                    await world.answer(run_id)
                await newer.until(all_ended(world, theirs + ours))
        lines = older.said.read_text().splitlines()
        assert sorted(lines) == sorted(f"{run_id} {UNKNOWN}" for run_id in theirs), "each run once, one sentence"
        assert not await list_dead_letters(world.stores.tenant(TENANT))
        assert len(world.refunds()) == len(theirs + ours)
        assert await semantics_of(world, theirs) == [OTHER] * 3
        assert await semantics_of(world, ours) == [SEMANTICS] * 3
        await world.aclose()

    run(scenario())


@pytest.mark.requirement("J-START")
@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0999", r"its schema `0999` is newer than `\d+`; run a newer contextos"),
        ("0000", "its schema `0000` is not a version of contextos; restore the database, or name an empty one"),
    ],
)
def test_a_worker_of_another_schema_begins_nothing_and_the_one_that_fits_loses_nothing(
    server: Server, tmp_path: Path, version: str, says: str
) -> None:
    database = server.database()

    async def scenario() -> None:
        world = await open_world(tmp_path, stores=database.app, clock=SystemClock())
        runs = [await received(world, 900, f"req_{number}") for number in range(3)]
        right = await version_of(database)
        await database.fetch(f"UPDATE contextos.schema_version SET version_num = '{version}'")
        with worker(world, database.app, SEMANTICS) as refused:
            await asyncio.to_thread(refused.process.wait)
        assert re.search(says + "$", refused.said.read_text().strip())
        assert [await world.kinds(run_id) for run_id in runs] == [["run.received"]] * 3
        await database.fetch(f"UPDATE contextos.schema_version SET version_num = '{right}'")
        with worker(world, database.app, SEMANTICS) as fitting:
            await fitting.until(all_ended(world, runs))
        assert len(world.refunds()) == 3
        await world.aclose()

    run(scenario())


async def version_of(database: Database) -> str:
    return str((await database.fetch("SELECT version_num FROM contextos.schema_version"))[0][0])
