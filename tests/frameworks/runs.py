"""Runs the agents of `examples/frameworks` and their twins without ContextOS, each in a process of its own, and kills
them.

`python -m tests.frameworks.runs MODULE DIR [approve]` runs the `main` of a module. With `DESK_DIES=waiting` the process
kills itself where the agent says that it waits, and with `DESK_DIES=after_effect` right after the effect.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contextos
from contextos.cli.demo.workspace import example_operator, make_workspace
from examples.frameworks import desk
from tests.processes import whole_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = "examples.frameworks"
TENANT = "tenant_acme_prod"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended, and what it said last."""

    exit: int
    said: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What an agent that was killed left: effects where it waited and right after the effect, and who approved on
    record.
    """

    waiting: int
    after_effect: int
    approved_by: str

    def row(self, name: str) -> str:
        return f"| {name} | {self.waiting} | {self.after_effect} | {self.approved_by} |"


def step(module: str, directory: Path, *words: str, dies: str = "") -> Ended:
    """Run one process to its end."""
    environment = {**os.environ, "DESK_BOOKS": str(directory / "books.log"), "DESK_DIES": dies}
    command = [sys.executable, "-W", "error", "-m", "tests.frameworks.runs", module, str(directory), *words]
    ended = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return Ended(ended.returncode, ended.stdout.strip())


def effects(directory: Path) -> list[str]:
    """What really happened: one line for each rollback."""
    books = directory / "books.log"
    return [line.rpartition(" ")[0] for line in whole_lines(books)]


def workspace(path: Path) -> Path:
    """A workspace as `contextos demo --keep` leaves it, without its runs."""

    async def initialise() -> None:
        async with contextos.open(path) as app:
            await app.initialise(TENANT, by=example_operator(path))

    make_workspace(path)
    asyncio.run(initialise())
    return path


def in_a_session(directory: Path, deploy: contextos.FunctionAdapter, play: Any) -> None:
    """Play with the application and the gate of a session of the desk."""

    async def inside() -> None:
        async with contextos.open(directory, adapters=[deploy]) as app:
            await play(app, await desk.session(app, deploy, directory, "thread_1"))

    asyncio.run(inside())


def audited(directory: Path, deploy: contextos.FunctionAdapter) -> dict[str, Any]:
    """The only record of the workspace; its replay is equal."""

    async def look() -> dict[str, Any]:
        async with contextos.open(directory, adapters=[deploy]) as app:
            index = await app.stores.tenant(TENANT).read("index")
            (run_id,) = {entry.key for entry in index}
            view = await app.deployment.view(TENANT, run_id)
            assert view.record is not None
            replayed = await contextos.replay(app.deployment, TENANT, run_id)
            assert replayed.record_hash == view.record["record_hash"]
            return dict(view.record)

    return asyncio.run(look())


def killed(module: str, directory: Path, dies: str) -> list[Ended]:
    """Begin, and go on in another process after a person said yes; killed at one of the two places."""
    if dies == "waiting":
        return [step(module, directory, dies=dies), step(module, directory, "approve")]
    first = step(module, directory)
    return [first, step(module, directory, "approve", dies=dies), step(module, directory, "again")]


def measured_twin(module: str, path: Path) -> Measured:
    """The agent without ContextOS, with its framework's own approval and its own persistence."""
    counted = []
    for dies in ("waiting", "after_effect"):
        directory = path / dies
        directory.mkdir()
        said = killed(module, directory, dies)
        assert said[-1] == Ended(0, "finished"), said
        assert -signal.SIGKILL in [one.exit for one in said]
        counted.append(len(effects(directory)))
    return Measured(*counted, "nobody")


def measured_governed(module: str, path: Path) -> Measured:
    """The agent of the example: one run, one record that names the approver, a replay that is equal."""
    deploy, counted, approvers = importlib.import_module(f"{EXAMPLES}.{module}").tools(), [], set()
    for dies in ("waiting", "after_effect"):
        directory = workspace(path / dies)
        said = killed(f"{EXAMPLES}.{module}", directory, dies)
        assert said[-1].said.startswith("finished completed run_"), said
        assert -signal.SIGKILL in [one.exit for one in said]
        record = audited(directory, deploy)
        assert record["status"] == "DECIDED"
        assert [one["state"] for one in record["effects"]] == ["happened"]
        counted.append(len(effects(directory)))
        approvers |= {one["approver"] for one in record["approvals"]}
    return Measured(*counted, ", ".join(f"`{one}`, signed" for one in sorted(approvers)))


def in_the_docs(row: str) -> bool:
    """Whether the page shows exactly what was measured."""
    return row in (ROOT / "docs" / "frameworks.md").read_text("utf-8").splitlines()


def main(module: str, directory: str, *words: str) -> None:
    def say(*what: Any) -> None:
        builtins.print(*what, flush=True)
        if what[0] == "waiting" and os.environ["DESK_DIES"] == "waiting":
            os.kill(os.getpid(), signal.SIGKILL)

    agent: Any = importlib.import_module(module)
    agent.print = say
    asyncio.run(agent.main(Path(directory), approved="approve" in words))


if __name__ == "__main__":
    main(*sys.argv[1:])
