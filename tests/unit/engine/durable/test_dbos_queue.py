"""The queue holds hints: who can write to its database, drop it or stop it costs time, and nobody's run."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.engine.durable.engine import DurableLimits
from contextos.engine.durable.queue_connection import migrate_queue_tables
from contextos.engine.failure_tracker import SWEEP
from contextos.errors import InvalidSettings, Unavailable
from tests.postgres import Database, own_server
from tests.unit.engine.durable.test_engine import (
    HOUR_US,
    LIMITS,
    World,
    a_while,
    add,
    dead_letters,
    play,
    statuses,
    until,
)


async def insert(queue: Database, workflow_id: str, *args: Any, **columns: str) -> None:
    row = {
        "workflow_uuid": workflow_id,
        "status": "ENQUEUED",
        "name": "contextos.drive",
        "queue_name": "contextos-runs",
        "inputs": json.dumps({"positionalArgs": args, "namedArgs": {}}),
        "serialization": "portable_json",
        "queue_partition_key": "acme",
        "application_version": "drive-1",
        **columns,
    }
    values = ", ".join(f"'{value}'" for value in row.values())
    await queue.fetch(
        f"INSERT INTO dbos.workflow_status ({', '.join(row)}, priority, created_at, updated_at, recovery_attempts)"
        f" VALUES ({values}, 0, 1, 1, 0)"
    )


class Code:
    """Runs a command in the process that unpickles it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.requirement("E-JSON-QUEUE")
def test_a_row_that_says_it_is_a_pickle_runs_no_code_and_stops_no_worker(
    url: str, queue: Database, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"

    async def scenario(world: World) -> None:
        engine = world.engine()
        await engine.start()
        code = base64.b64encode(pickle.dumps(Code(f"touch {mark}"))).decode()
        for status in ("ENQUEUED", "PENDING"):
            await insert(queue, f"acme/run_x/{status}", inputs=code, serialization="py_pickle", status=status)
        await a_while()
        await world.wake("run_a")
        await until(lambda: "run_a" in world.drives)
        await engine.stop()

    play(url, scenario)
    assert not mark.exists()


ROWS = {
    "an id without a run": ("x", (), {"status": "ERROR"}),
    "no names": ("//", ("", ""), {}),
    "an empty tenant": ("/run_x/1", ("", "run_x"), {}),
    "things that are no names": ("acme/run_x/1", (["acme"], {"a": 1}), {}),
    "too many arguments": ("acme/run_x/1", ("acme", "run_x", "more"), {}),
    "a name with a slash": ("a/b/c", ("a/b", "../c"), {"status": "ERROR"}),
    "another workflow": ("acme/run_x/1", ("acme", "run_x"), {"name": "os.system"}),
}


@pytest.mark.parametrize("row", ROWS)
def test_no_row_stops_sweeps_drives_or_the_witness(url: str, queue: Database, row: str) -> None:
    workflow_id, args, columns = ROWS[row]
    published: list[int] = []

    async def witness() -> None:
        published.append(1)

    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, witness_interval_ms=1), witness=witness)
        await engine.start()
        await insert(queue, workflow_id, *args, **columns)
        await a_while()
        published.clear()
        await world.wake("run_a")
        await until(lambda: "run_a" in world.drives)
        await until(lambda: published)
        await engine.stop()
        assert world.drives.count("run_a") == 1
        assert await dead_letters(world) == []

    play(url, scenario)


@pytest.mark.requirement("E-DEAD-LETTERS")
def test_a_row_cannot_put_a_run_that_waits_on_the_list(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        deadline_us = world.clock.now_us() + HOUR_US
        await add(world.stores.tenant("acme"), "acme", "run_waits", "approval.asked", deadline_us)
        engine = world.engine()
        await engine.start()
        lost = {"status": "MAX_RECOVERY_ATTEMPTS_EXCEEDED", "name": "contextos.drive_alone"}
        await insert(queue, "acme/run_waits/1", "acme", "run_waits", **lost)
        await insert(queue, "acme/run_nobody/1", "acme", "run_nobody", **lost)
        while await statuses(queue, "contextos.drive_alone"):  # noqa: ASYNC110 - the engine deletes them
            await asyncio.sleep(0.005)
        await a_while()
        assert await dead_letters(world) == []
        assert [run async for run in world.stores.due(deadline_us)] == [("acme", "run_waits")]
        await engine.stop()

    play(url, scenario)


def test_a_run_to_be_driven_alone_is_driven_beside_no_other(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine()
        await engine.start()
        alone = {"status": "PENDING", "name": "contextos.drive_alone", "queue_name": "contextos-alone"}
        await insert(queue, "acme/run_a/1", "acme", "run_a", **alone, executor_id="elsewhere")
        await world.wake("run_a")
        engine.submit("acme", "run_a")
        await a_while()
        assert world.drives == []
        await queue.fetch("DELETE FROM dbos.workflow_status WHERE name = 'contextos.drive_alone'")
        await until(lambda: world.drives)
        await engine.stop()

    play(url, scenario)


def of_store(store: str) -> DurableLimits:
    return replace(LIMITS, queue=replace(LIMITS.queue, store=store))


@pytest.mark.requirement("E-WHOLE-START")
def test_a_queue_belongs_to_the_store_whose_worker_came_first_and_another_is_refused_at_the_start(
    url: str, queue: Database
) -> None:
    async def scenario(world: World) -> None:
        for _ in range(2):
            engine = world.engine(of_store("one"))
            await engine.start()
            await engine.stop()
        before = await queue.fetch("SELECT * FROM dbos.workflow_status")
        with pytest.raises(InvalidSettings, match="is the queue of another store; name another database in `queue`"):
            await world.engine(of_store("two")).start()
        assert len(asyncio.all_tasks()) == 1
        assert await queue.fetch("SELECT * FROM dbos.workflow_status") == before

    play(url, scenario)


def test_a_restored_store_takes_its_queue_over_once_the_owner_has_made_it_anew(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(of_store("lost"))
        await engine.start()
        await engine.stop()
        await queue.fetch("DROP SCHEMA dbos CASCADE")
        await asyncio.to_thread(migrate_queue_tables, url, None)
        engine = world.engine(of_store("restored"))
        await engine.start()
        await world.wake("run_a")
        await until(lambda: world.drives)
        await engine.stop()
        with pytest.raises(InvalidSettings, match="another store"):
            await world.engine(of_store("lost")).start()

    play(url, scenario)


@pytest.mark.soak
def test_a_worker_whose_queue_was_given_to_another_store_says_so(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine(of_store("lost"))
        await engine.start()
        await queue.fetch("DROP SCHEMA dbos CASCADE")
        await asyncio.to_thread(migrate_queue_tables, url, None)
        await queue.fetch("INSERT INTO dbos.contextos_store (store) VALUES ('restored')")
        await until(lambda: "another store" in str(engine.failures.get(SWEEP)))
        assert isinstance(engine.failures[SWEEP], Unavailable)
        await engine.stop()
        assert await queue.fetch("SELECT FROM dbos.queues") == []

    play(url, scenario)


@pytest.mark.soak
@pytest.mark.requirement("E-DUE")
def test_a_queue_that_was_dropped_and_made_again_is_used_again(url: str, queue: Database) -> None:
    async def scenario(world: World) -> None:
        engine = world.engine()
        await engine.start()
        await queue.fetch("DROP SCHEMA dbos CASCADE")
        await until(lambda: SWEEP in engine.failures)
        assert [fault.code for _, _, fault in world.reported] == ["unavailable"], "it is said, and once"
        await asyncio.to_thread(migrate_queue_tables, url, None)
        await world.wake("run_a")
        await until(lambda: world.drives)
        await until(lambda: SWEEP not in engine.failures)
        await engine.stop()

    play(url, scenario)


def test_a_queue_that_is_gone_is_reported_and_heads_are_published_all_the_same() -> None:
    published: list[int] = []

    async def witness() -> None:
        published.append(1)

    async def scenario(world: World) -> None:
        engine = world.engine(replace(LIMITS, witness_interval_ms=1), witness=witness)
        await engine.start()
        await asyncio.to_thread(server.crash)
        await world.wake("run_a")
        await until(lambda: SWEEP in engine.failures)
        assert isinstance(engine.failures[SWEEP], Unavailable)
        published.clear()
        await until(lambda: published)
        assert world.drives == []
        await asyncio.to_thread(server.start)
        await until(lambda: world.drives)
        await engine.stop()

    with own_server() as server:
        server.execute("CREATE DATABASE contextos_queue")
        migrate_queue_tables(server.named("contextos_queue"), None)
        play(server.named("contextos_queue"), scenario)
