"""D23: a run that another run's operation blocks is listed with that run, and goes on when it is settled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line
from contextos.deployment import operator
from tests.attacks.shop import Shop
from tests.world import TENANT, TestWorld, open_world, request, run


class Lost:
    """Payments whose replies are lost while `lost` is true."""

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.lost = adapter, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    async def call(self, capability: str, args: object, context: object) -> object:
        if self.lost:
            raise SystemExit(0)
        return await self.adapter.call(capability, args, context)


async def listed(world: TestWorld) -> dict[str, tuple[str | None, str | None]]:
    """What each listed run waits for, and which run blocks it."""
    page = await world.runs().list(TENANT, waiting=True)
    return {one.run_id: (one.waits_for, one.blocked_by) for one in page.items}


def test_a_blocked_run_is_listed_with_the_run_that_blocks_it_until_that_is_settled(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, payments="none", stores=stores)
        lost = Lost(world.adapters["adp_payments"])
        world.adapters["adp_payments"] = lost  # type: ignore[assignment]
        first = await world.invoke(request(900, "req_1"))
        second = await world.invoke(request(900, "req_2"))
        assert await listed(world) == {first.run_id: ("settlement", None), second.run_id: ("operation", first.run_id)}
        everything = await world.runs().list(TENANT)
        assert [(one.waits_for, one.blocked_by) for one in everything.items] == [
            ("operation", first.run_id),
            ("settlement", None),
        ]
        world.clock.at_us += 400_000_000
        await world.deployment.advance(TENANT, second.run_id)
        assert (await listed(world))[second.run_id] == ("operation", first.run_id), "it looked again in vain"
        lost.lost = False
        told = operator.SettlementInput(
            happened=False, by="user_operator_5", evidence_ref="kg:order:ord_881#snapshot_kg_1"
        )
        await world.settle(first.run_id, told)
        assert second.run_id not in await listed(world), "nothing blocks it any more; an engine drives it on"
        world.clock.at_us += 400_000_000
        due = [one async for one in world.stores.due(world.clock.at_us)]
        assert (TENANT, second.run_id) in due
        await world.deployment.advance(TENANT, second.run_id)
        assert (await world.deployment.view(TENANT, second.run_id)).state == "completed"
        assert await listed(world) == {}
        assert len(world.refunds()) == 1
        await world.aclose()

    run(act())


def test_a_cancelled_run_is_no_longer_listed(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, payments="none", stores=stores)
        world.adapters["adp_payments"] = Lost(world.adapters["adp_payments"])  # type: ignore[assignment]
        await world.invoke(request(900, "req_1"))
        second = await world.invoke(request(900, "req_2"))
        await operator.request_cancel(world.deployment, TENANT, second.run_id, by=world.actor(), reason="not wanted")
        await world.deployment.advance(TENANT, second.run_id)
        assert second.run_id not in await listed(world)
        await world.aclose()

    run(act())


def test_show_names_the_run_that_blocks(
    initialised: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_PAYMENTS", "none")
    monkeypatch.setenv("SHOP_FAILPOINT", "lose_reply")
    asked = json.loads(initialised.request("small").read_text())
    for name in ("req_first", "req_second"):
        path = initialised.path / f"{name}.json"
        path.write_text(json.dumps(asked | {"request_id": name}))
        initialised.say("invoke", str(path))
    first, second = (initialised.say("runs", "show", name) for name in ("req_first", "req_second"))
    assert first.json["waiting"]["for"] == "settlement"
    assert (first.json["blocked_by"], second.json["blocked_by"]) == (None, first.json["run_id"])
    assert run_command_line(["runs", "show", "req_second"]) == 0
    assert f"waits for an operation of {first.json['run_id']}" in capsys.readouterr().out
