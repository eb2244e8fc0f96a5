"""Several worker processes over one PostgreSQL: killed, stopped, doubled and cut off, they lose and double nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import Database
from tests.unit.engine.durable import durable_worker

ROOT = Path(__file__).resolve().parents[4]
PATIENCE_S = 180


class Fleet:
    """Worker processes, the file of their runs, and what they did."""

    def __init__(self, url: str, path: Path) -> None:
        self.url, self.path = url, path
        self.file = durable_worker.opened(str(path))
        self.file.executescript(durable_worker.SCHEMA)
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """A worker that has started."""
        ready = self.count("workers")
        worker = subprocess.Popen(
            [sys.executable, durable_worker.__file__, self.url, str(self.path)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stderr=subprocess.DEVNULL,
        )
        self.workers.append(worker)
        until(lambda: self.count("workers") > ready or worker.poll() is not None)
        assert worker.poll() is None
        return worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def add(self, *runs: str, left: int = 1, endless: int = 0) -> None:
        rows = [("acme", run, left, endless) for run in runs]
        self.file.executemany("INSERT INTO runs VALUES (?, ?, 1, ?, ?)", rows)

    def count(self, table: str, where: str = "1") -> int:
        return int(self.file.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0])

    def until_all_ended(self) -> None:
        until(lambda: self.count("runs", "left > 0") == 0)

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                self.kill(worker)
        self.file.close()


def until(condition: Callable[[], Any]) -> None:
    for _ in range(PATIENCE_S * 50):
        try:
            if condition():
                return
        except sqlite3.OperationalError:  # busy
            pass
        time.sleep(0.02)
    raise AssertionError("it did not come to pass")


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(url, tmp_path / "runs.sqlite")
    yield fleet
    fleet.close()


def live(queue: Database) -> int:
    [[number]] = queue.execute(
        "SELECT count(*) FROM dbos.workflow_status WHERE name = 'contextos.drive'"
        " AND status IN ('ENQUEUED', 'PENDING', 'DELAYED')"
    )
    assert isinstance(number, int)
    return number


@pytest.mark.requirement("E-WORKER-DEATH")
def test_a_run_whose_worker_is_killed_is_finished_by_another(fleet: Fleet, queue: Database) -> None:
    first = fleet.start()
    fleet.add("run_endless", endless=1)
    until(lambda: fleet.count("driving") == 1)
    second = fleet.start()
    fleet.kill(first)
    until(lambda: fleet.count("driving", f"pid = {second.pid}") == 1)
    fleet.file.execute("UPDATE runs SET endless = 0")
    fleet.until_all_ended()
    until(lambda: live(queue) == 0)
    assert fleet.count("drives") == 2
    assert fleet.count("violations") == 0


def test_a_run_whose_only_worker_is_killed_is_finished_by_the_next_one(fleet: Fleet, queue: Database) -> None:
    first = fleet.start()
    fleet.add("run_endless", endless=1)
    until(lambda: fleet.count("driving") == 1)
    fleet.kill(first)
    fleet.file.execute("UPDATE runs SET endless = 0")
    fleet.start()
    fleet.until_all_ended()
    until(lambda: live(queue) == 0)
    assert fleet.count("drives") == 2


@pytest.mark.requirement("E-WORKER-DEATH")
def test_a_worker_that_is_stopped_loses_its_runs_and_goes_on_when_it_continues(fleet: Fleet, queue: Database) -> None:
    first = fleet.start()
    fleet.add("run_endless", endless=1)
    until(lambda: fleet.count("driving") == 1)
    second = fleet.start()
    first.send_signal(signal.SIGSTOP)
    until(lambda: fleet.count("driving", f"pid = {second.pid}") == 1)
    fleet.file.execute("UPDATE runs SET endless = 0")
    fleet.until_all_ended()
    first.send_signal(signal.SIGCONT)
    fleet.kill(second)
    fleet.add(*(f"run_{number}" for number in range(10)))
    fleet.until_all_ended()
    until(lambda: live(queue) == 0)
    assert fleet.count("drives", f"pid = {first.pid} AND run <> 'run_endless'") == 10, "the other one is dead"
    assert fleet.count("failures") == 0


@pytest.mark.requirement("E-ONCE")
def test_two_workers_drive_each_of_a_hundred_runs_to_its_end_once_at_a_time(fleet: Fleet, queue: Database) -> None:
    for _ in range(2):
        fleet.start()
    fleet.add(*(f"run_{number}" for number in range(100)), left=3)
    fleet.until_all_ended()
    until(lambda: live(queue) == 0)
    assert fleet.count("violations") == 0
    assert fleet.count("failures") == 0
    assert fleet.count("drives") >= 300
    assert len(fleet.file.execute("SELECT DISTINCT pid FROM drives").fetchall()) == 2


def test_a_database_that_is_restarted_in_the_middle_costs_no_run(fleet: Fleet, queue: Database) -> None:
    if queue.server.files is None:
        pytest.skip("the server is not ours to restart")
    for _ in range(2):
        fleet.start()
    fleet.add(*(f"run_{number}" for number in range(100)), left=3)
    for part in (75, 150, 225):
        until(lambda part=part: fleet.count("drives") > part)
        queue.server.restart()
    fleet.until_all_ended()
    until(lambda: live(queue) == 0)
    assert fleet.count("violations") == 0
    assert fleet.count("runs", "left > 0 OR wake_us > 0") == 0


@pytest.mark.soak
@pytest.mark.requirement("E-DEAD-LETTERS")
def test_a_run_that_kills_each_worker_ends_on_the_dead_letter_list_and_can_be_retried(
    fleet: Fleet, queue: Database
) -> None:
    worker = fleet.start()
    fleet.add("run_deadly")
    for _ in range(3):
        worker.wait()
        worker = fleet.start()
    worker.wait()
    worker = fleet.start()
    until(lambda: fleet.count("dead_letters", "CAST(body AS TEXT) LIKE '%worker_lost%'") == 1)
    fleet.add("run_fine")
    until(lambda: fleet.count("runs", "left > 0") == 1)
    assert fleet.count("drives", "run = 'run_deadly'") == 4, "twice among others, twice alone"
    assert worker.poll() is None
    assert queue.execute("SELECT FROM dbos.workflow_status WHERE status LIKE 'MAX%'") == []
    fleet.file.execute("DELETE FROM dead_letters")
    worker.wait()
    assert fleet.count("drives", "run = 'run_deadly'") == 5


@pytest.mark.soak
@pytest.mark.requirement("E-DEAD-LETTERS")
def test_a_run_that_kills_workers_takes_no_innocent_one_onto_the_list(fleet: Fleet, queue: Database) -> None:
    worker = fleet.start()
    fleet.add("run_endless_a", "run_endless_b", endless=1)
    until(lambda: fleet.count("driving") == 2)
    fleet.add("run_deadly")
    for _ in range(2):
        worker.wait()
        worker = fleet.start()
    # These are as suspect now as the deadly one, and driven alone before it, so they have to end; a third joins in.
    fleet.file.execute("UPDATE runs SET endless = 0")
    fleet.add("run_endless_c", endless=1)
    for _ in range(2):
        worker.wait()
        worker = fleet.start()
    until(lambda: fleet.count("dead_letters") == 1)
    fleet.file.execute("UPDATE runs SET endless = 0")
    until(lambda: fleet.count("runs", "left > 0") == 1)
    assert fleet.file.execute("SELECT run FROM dead_letters").fetchall() == [("run_deadly",)]
    assert fleet.count("drives", "run = 'run_deadly'") == 4
    for run in "abc":
        assert fleet.count("drives", f"run = 'run_endless_{run}'") >= 2, "it was lost with the deadly one"
    assert worker.poll() is None
