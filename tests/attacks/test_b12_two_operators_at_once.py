"""B12: of two operators who act on one ended run at once, one wins; what a reopened run uses is not too old.

The attacker is haste: one operator pays by hand and resolves, another one reopens the run, which pays too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.journal import CONTROL, INDEX
from contextos.deployment.acts import act as acting
from contextos.deployment.acts import ended_runs
from contextos.deployment.acts.ended_runs import close_decision, reopen_run, resolve_escalation
from contextos.deployment.queries.checked_run import read_checked
from contextos.errors import Conflict
from tests.attacks.test_b12_an_escalated_run_has_a_way_on import (
    REASON,
    bounded,
    exhausted,
    is_sound,
    on_world,
    reopened,
    status,
)
from tests.world import TENANT, TestWorld

Act = Callable[[TestWorld, str], Awaitable[None]]


async def resolve(world: TestWorld, run_id: str) -> None:
    await resolve_escalation(world.deployment, TENANT, run_id, "DECIDED", by=world.actor(), reason=REASON)


async def reject(world: TestWorld, run_id: str) -> None:
    await resolve_escalation(world.deployment, TENANT, run_id, "REJECTED", by=world.actor(), reason=REASON)


async def close(world: TestWorld, run_id: str) -> None:
    await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON)


async def reopen(world: TestWorld, run_id: str) -> None:
    await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON, to=9)


STATUS = {resolve: "DECIDED", reject: "REJECTED", close: "CLOSED", reopen: "IN_FLIGHT"}


@pytest.mark.parametrize(
    ("late", "soon"),
    [(resolve, reject), (close, resolve), (resolve, reopen), (close, reopen), (reopen, resolve), (reopen, close)],
    ids=lambda one: one.__name__,
)
def test_of_two_acts_on_one_decision_the_second_changes_nothing(
    late: Act, soon: Act, stores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def attack(world: TestWorld) -> None:
        run_id = (await exhausted(world)).run_id
        propose = acting.propose_act

        def slow(*args: Any, **kwargs: Any) -> Any:
            """Once the first operator has signed, the second one acts."""

            async def write(control: Any) -> Any:
                monkeypatch.undo()
                await soon(world, run_id)
                return await args[-1](control)

            return propose(*args[:-1], write, **kwargs)

        for module in (acting, ended_runs):
            monkeypatch.setattr(module, "propose_act", slow)
        with pytest.raises(Conflict):
            await late(world, run_id)
        assert await status(world, run_id) == STATUS[soon]
        kinds = [entry.kind for entry in await world.stores.tenant(TENANT).lines(CONTROL, run_id)]
        assert len(kinds) == 1, kinds
        await is_sound(world, await world.deployment.view(TENANT, run_id))

    on_world(tmp_path, stores, attack)


def test_a_reopened_run_uses_no_evidence_that_became_too_old(stores: str, tmp_path: Path) -> None:
    week_s = 7 * 24 * 3_600

    def fresh(pack: dict[str, Any]) -> None:
        pack["intelligence_refs"]["retrieval"]["evidence"][0]["max_age_s"] = 365 * 24 * 3_600

    async def attack(world: TestWorld) -> None:
        view = await world.invoke(bounded(900, "req_short", max_tool_calls=2))
        assert view.state == "exhausted"
        world.clock.at_us += 60 * week_s * 1_000_000
        view = await reopened(world, view.run_id, 9)
        assert (view.state, world.refunds()) == ("escalated", [])
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "missing_evidence"
        await is_sound(world, view)

    on_world(tmp_path, stores, attack, pack=fresh)


class ReopenedMeanwhile:
    """A store in which an operator reopens the run right after the index was read."""

    def __init__(self, world: TestWorld, run_id: str) -> None:
        self._world, self._run_id, self._waits = world, run_id, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.stores.tenant(TENANT), name)

    async def read(self, stream: str, **how: Any) -> Any:
        found = await self._world.stores.tenant(TENANT).read(stream, **how)
        return await self._then(found) if stream == INDEX else found

    async def lines(self, stream: str, *keys: str) -> Any:
        found = await self._world.stores.tenant(TENANT).lines(stream, *keys)
        return await self._then(found) if stream == INDEX else found

    async def _then(self, found: Any) -> Any:
        if self._waits:
            self._waits = False
            await reopen(self._world, self._run_id)
        return found


def test_a_run_that_is_reopened_while_it_is_read_is_no_broken_run(stores: str, tmp_path: Path) -> None:
    async def attack(world: TestWorld) -> None:
        run_id = (await exhausted(world)).run_id
        await verify_tenant(ReopenedMeanwhile(world, run_id), TENANT, world.keys)  # type: ignore[arg-type]
        await world.deployment.advance(TENANT, run_id)
        other = (await world.invoke(bounded(901, "req_other", max_tool_calls=2))).run_id
        store: Any = ReopenedMeanwhile(world, other)
        assert (await read_checked(store, TENANT, world.keys, other)).fault is None
        await is_sound(world, await world.deployment.view(TENANT, other))

    on_world(tmp_path, stores, attack)
