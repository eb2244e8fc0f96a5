"""A worker process of a contextos that knows only the semantics SEMANTICS; what its engine reports, it prints.

`python -m tests.e2e.version_worker WORKSPACE URL SEMANTICS`. It works until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from contextos.deployment.deployment import Deployment, wake_orphans
from contextos.runtime.environment import RunEnvironment
from contextos.store.postgres.claims import PostgresClaims
from contextos.store.shared.clock import SystemClock
from contextos.trust.journal import chain
from contextos.workspace.engine.shared import SharedEngine, SharedLimits
from tests.world import open_world


def report(_tenant: str, run_id: str, fault: BaseException) -> None:
    print(run_id, fault, flush=True)


@contextmanager
def knowing(semantics: int) -> Iterator[None]:
    """This process begins runs under these semantics, and knows no others."""
    environment = Deployment.environment

    def of_version(*given: Any) -> RunEnvironment:
        made = environment(*given)
        return replace(made, deployment=replace(made.deployment, semantics=semantics))

    with patch.object(chain, "KNOWN_SEMANTICS", (semantics,)), patch.object(Deployment, "environment", of_version):
        yield


async def work(workspace: Path, url: str) -> None:
    world = await open_world(workspace, stores=url, clock=SystemClock())
    limits = SharedLimits(sweep_interval_ms=100)
    claims = PostgresClaims(url, world.owner.id, world.clock, limits.claims)
    engine = SharedEngine(
        world.deployment.advance,
        world.stores,
        world.clock,
        claims,
        on_dead=world.owner.set_dead,
        wake_orphans=partial(wake_orphans, world.deployment),
        limits=limits,
        on_failure=report,
    )
    await engine.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with knowing(int(sys.argv[3])):
        asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
