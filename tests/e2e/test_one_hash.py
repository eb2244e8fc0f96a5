"""The same request a hundred times, over processes, hash seeds, locales, time zones and directories: one hash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.world import TENANT, ManualClock, open_world, request, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RUNS = 20
ENVIRONMENTS = (
    {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "TZ": "Asia/Kolkata"},
    {"PYTHONHASHSEED": "2", "LC_ALL": "tr_TR.UTF-8", "TZ": "America/St_Johns"},
    {"PYTHONHASHSEED": "4294967295", "LC_ALL": "POSIX", "TZ": "Pacific/Apia"},
    {"PYTHONHASHSEED": "random", "LC_ALL": "hi_IN.UTF-8", "TZ": "Antarctica/Troll"},
)


def lines(folder: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Every run of one process, which has its own working directory."""
    folder.mkdir()
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.run(
        [sys.executable, "-m", "tests.e2e.compile_driver", str(folder / "runs"), str(RUNS)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PYTHONPATH": paths, "PATH": os.environ.get("PATH", "")} | environment,
    )
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


@pytest.mark.requirement("C-DETERMINISTIC")
def test_a_hundred_runs_of_one_request_compile_to_one_hash_and_leave_one_journal(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(ENVIRONMENTS))]
    with ThreadPoolExecutor(2) as several:
        results = [one for part in several.map(lines, folders, ENVIRONMENTS) for one in part]
    assert len(results) == RUNS * len(ENVIRONMENTS) == 100
    assert (results[0]["state"], len(results[0]["compiled"])) == ("completed", 1)
    # Not the compiled context alone: with the same chance and time the whole chain has the same head.
    assert all(one == results[0] for one in results)


@pytest.mark.requirement("C-DETERMINISTIC")
def test_the_hash_is_that_of_the_input_and_not_of_the_run_or_the_time(tmp_path: Path) -> None:
    async def ledger(name: str, amount: int, later_us: int) -> str:
        (tmp_path / name).mkdir()
        world = await open_world(tmp_path / name, clock=ManualClock(1_793_000_000_000_000 + later_us))
        view = await world.invoke(request(amount, "req_same"))
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        world.close()
        found = [json.loads(entry.body or b"") for entry in entries if entry.kind == "context.compiled"]
        return str(found[0]["context_ledger"]["compiled_context_hash"])

    first = run(ledger("first", 900, 0))
    assert run(ledger("again", 900, 86_400_000_000)) == first
    assert run(ledger("other", 901, 0)) != first
