"""A deployment over PostgreSQL with the refund's pack in force."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks import outside, refund_pack
from contextos.engine.lease_owner import LeasedOwner
from contextos.operations.deployment import Deployment
from contextos.store.postgres.stores import PostgresStores

AMOUNT_INR = 900


def made(path: Path, name: str) -> Path:
    """A new folder in `path`."""
    (path / name).mkdir()
    return path / name


def deployed(url: str, path: Path, tools: refund_pack.Tools | None = None) -> Deployment:
    """A deployment over the database at `url`; without `tools` what is outside costs nothing."""
    outside_world = outside.Stubs() if tools is None else tools
    return refund_pack.deploy(path, outside_world, PostgresStores(url), LeasedOwner())


async def opened(url: str, path: Path, tools: refund_pack.Tools | None = None) -> Deployment:
    """The same over a new database: the pack is put in force."""
    deployment = deployed(url, path, tools)
    await refund_pack.publish(deployment, 0)
    return deployment


async def timed(deployment: Deployment, number: int) -> float:
    """Milliseconds of one refund."""
    start = time.perf_counter()
    view = await deployment.invoke(outside.request(number, AMOUNT_INR))
    taken = (time.perf_counter() - start) * 1e3
    assert view.state == "completed", view
    return taken


async def closed(deployment: Deployment) -> None:
    """Let go of its database."""
    stores: Any = deployment.ports.stores
    await stores.aclose()
