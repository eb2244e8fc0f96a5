"""A deployment over PostgreSQL with the refund's pack in force, and its shop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks import outside, refund_pack
from contextos.deployment import Deployment
from contextos.engine.owner import LeasedOwner
from contextos.store.postgres import PostgresStores

AMOUNT_INR = 900


def made(path: Path, name: str) -> Path:
    """A new folder in `path`."""
    (path / name).mkdir()
    return path / name


def deployed(url: str, path: Path) -> tuple[Deployment, outside.Shop]:
    """A deployment over the database at `url`, and its shop in `path`."""
    shop = outside.Shop(path, keyed=True)
    tools = refund_pack.Tools(shop, "", keyed=True)
    return refund_pack.deploy(path, tools, PostgresStores(url), LeasedOwner()), shop


async def opened(url: str, path: Path) -> tuple[Deployment, outside.Shop]:
    """The same over a new database: the pack is put in force."""
    deployment, shop = deployed(url, path)
    await refund_pack.publish(deployment, 0)
    return deployment, shop


async def timed(deployment: Deployment, number: int) -> float:
    """Milliseconds of one refund."""
    start = time.perf_counter()
    view = await deployment.invoke(outside.request(number, AMOUNT_INR))
    taken = (time.perf_counter() - start) * 1e3
    assert view.state == "completed", view
    return taken


async def closed(deployment: Deployment, shop: outside.Shop) -> None:
    """Let go of both."""
    stores: Any = deployment.ports.stores
    await stores.aclose()
    shop.close()
