"""Entries of real runs, for tests of what is computed from them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.reading import logged
from contextos.contracts.journal import Entry
from contextos.deployment.acts.ended_runs import reopen_run
from contextos.telemetry.ended_run import EndedRunEntries, ended_run
from tests.modelled import FALLING_BACK, OF_THREE, modelled
from tests.world import TENANT, TestWorld, open_world, request


def recorded(drive: Callable[[TestWorld], Awaitable[str]], **how: Any) -> list[Entry]:
    """The entries of the run that `drive` makes in a fresh world. It returns the id of the run."""

    async def go(path: Path) -> list[Entry]:
        world = await open_world(path, **how)
        run_id = await drive(world)
        return list(await world.stores.tenant(TENANT).read(run_id))

    with TemporaryDirectory() as path:
        return asyncio.run(go(Path(path)))


async def _small(world: TestWorld) -> str:
    return (await world.invoke(request(900, "req_small"))).run_id


async def _approved(world: TestWorld) -> str:
    run_id = (await world.invoke(request(4200, "req_large"))).run_id
    world.clock.at_us += 90_000_000
    await world.approve(run_id)
    return run_id


async def _denied(world: TestWorld) -> str:
    run_id = (await world.invoke(request(4200, "req_denied"))).run_id
    await world.approve(run_id, "denied")
    return run_id


async def _reopened(world: TestWorld) -> str:
    body = request(900, "req_short")
    body["runtime"]["max_tool_calls"] = 2
    run_id = (await world.invoke(body)).run_id
    await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason="ticket", to=3)
    await world.deployment.advance(TENANT, run_id)
    return run_id


_DRIVES = {"small": _small, "approved": _approved, "denied": _denied, "reopened": _reopened}


@cache
def entries(name: str) -> tuple[Entry, ...]:
    """The entries of a refund: `small`, `approved`, `denied`, `reopened` after a limit was exhausted, or `planned` by
    models.
    """
    return _planned() if name == "planned" else tuple(recorded(_DRIVES[name]))


def _planned() -> tuple[Entry, ...]:
    with modelled(artifacts=OF_THREE, script=FALLING_BACK) as world:
        return tuple(world.journal(world.run()))


def account(name: str) -> tuple[str, RunAccount]:
    """The tenant and the account of such a run, as its driver hands them on."""
    return account_from(entries(name))


def account_from(found: Sequence[Entry]) -> tuple[str, RunAccount]:
    return TENANT, account_of(found[0].run if found else "", logged(found))


def read(found: Sequence[Entry]) -> EndedRunEntries:
    return ended_run(*account_from(found))


def ended(name: str) -> EndedRunEntries:
    return read(entries(name))


def first_segment(name: str) -> EndedRunEntries:
    """The run up to its first end."""
    found = entries(name)
    end = next(at for at, one in enumerate(found, 1) if one.kind == "run.ended")
    return read(found[:end])
