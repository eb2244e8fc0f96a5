"""A deployment over PostgreSQL with the refund's pack in force."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import outside, refund_pack
from contextos.deployment.deployment import Deployment
from contextos.store.postgres.stores import PostgresStores
from contextos.workspace.engine.lease_owner import LeasedOwner

AMOUNT_INR = 900


def new_folder(path: Path, name: str) -> Path:
    """Make a new folder in `path`."""
    (path / name).mkdir()
    return path / name


def deployed(
    url: str, path: Path, tools: refund_pack.Tools | None = None, *, tenants: Sequence[str] = ()
) -> Deployment:
    """Return a deployment over the database at `url`. Without `tools`, the adapters are stubs that cost nothing."""
    adapters = outside.Stubs() if tools is None else tools
    return refund_pack.deploy(path, adapters, PostgresStores(url), LeasedOwner(), tenants=tenants)


async def opened(url: str, path: Path, tools: refund_pack.Tools | None = None) -> Deployment:
    """Return a deployment over a new database, with the pack in force."""
    deployment = deployed(url, path, tools)
    await refund_pack.publish(deployment, 0)
    return deployment


async def timed(deployment: Deployment, number: int) -> float:
    """Run one refund and return its milliseconds."""
    start = time.perf_counter()
    view = await deployment.invoke(outside.request(number, AMOUNT_INR))
    taken = (time.perf_counter() - start) * 1e3
    assert view.state == "completed", view
    return taken


async def closed(deployment: Deployment) -> None:
    """Close the database connections of a deployment."""
    stores: Any = deployment.ports.stores
    await stores.aclose()
