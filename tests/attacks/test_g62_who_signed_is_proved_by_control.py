"""G62: who signed is proved by lines of `control` that the key of acts seals, and not by the record that they sign."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contextos.adapters.directory import FileDirectory
from contextos.audit.export import export_runs
from contextos.audit.exported import read_export, replay_export
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.acts import PackPin
from contextos.contracts.journal import CONTROL, PERSON_LISTED
from contextos.deployment import deployment
from contextos.deployment.acts.governance import pin_packs
from contextos.errors import ApprovalRefused, ChainBroken
from contextos.trust.approvals import people
from contextos.trust.seal import PURPOSES, KeyRing
from tests.e2e.test_settlements import HAPPENED, uncertain
from tests.world import (
    APPROVER,
    APPROVER_KEY,
    INTENT,
    OPERATOR,
    TENANT,
    TestWorld,
    open_world,
    public_key,
    request,
    run,
)

THIEFS_KEY = b"t" * 32


@contextmanager
def thief_of(world: TestWorld, folder: Path, *invented: str) -> Iterator[TestWorld]:
    """The same store with every key of the runtime but that of acts, and a directory that lists invented keys.

    Such a thief writes no line about these people, because their own seal would not count.
    """
    made = {one: hashlib.sha256(b"contextos " + one.encode() + b"\0" + b"k" * 32).digest() for one in PURPOSES}
    real = world.keys.public_key("act", world.keys.kids("act")[0])
    assert real is not None
    keys = KeyRing({**made, "act": b"o" * 32}, {"act": [real]})
    folder.mkdir()
    (folder / "directory.json").write_bytes((world.path / "directory.json").read_bytes())
    thief = replace(world, path=folder, keys=keys)
    for person in invented:
        thief.know(person, THIEFS_KEY)
    ports = replace(world.deployment.ports, keys=keys, directory=FileDirectory(folder / "directory.json"))
    thief.deployment = deployment.Deployment(ports, world.deployment.config)

    with patch.object(people, "state_person", unstated):
        yield thief


async def is_found(world: TestWorld, run_id: str, named: str) -> None:
    """`verify`, `replay` and an export refuse the run, and name the person."""
    found: list[Callable[[], Awaitable[object]]] = [
        lambda: verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys),
        lambda: replay(world.deployment, TENANT, run_id),
        lambda: export_runs(world.deployment, TENANT, [run_id], by=world.actor()),
    ]
    for look in found:
        with pytest.raises(ChainBroken, match=named):
            await look()


def test_a_run_that_an_invented_key_approved_is_found_by_verify_replay_and_export(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        honest = await world.invoke(request(4200, "req_0"))
        assert (await world.approve(honest.run_id)).state == "completed"
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        with thief_of(world, tmp_path / "thief", APPROVER) as thief:
            waiting = await thief.invoke(request(4300, "req_1"))
            assert (await thief.approve(waiting.run_id, seed=THIEFS_KEY)).state == "completed"
        await is_found(world, waiting.run_id, APPROVER)
        await world.aclose()

    run(go())


def test_with_every_key_of_the_runtime_only_keys_from_outside_show_an_invented_approver(
    stores: str, tmp_path: Path
) -> None:
    """H38: an auditor who has the approver's key from the approver finds it, and nobody else can."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.know(APPROVER, THIEFS_KEY)
        waiting = await world.invoke(request(4300, "req_1"))
        assert (await world.approve(waiting.run_id, seed=THIEFS_KEY)).state == "completed"
        raw = await export_runs(world.deployment, TENANT, [waiting.run_id], by=world.actor())
        export = read_export(raw, world.keys)
        assert APPROVER in export.signers
        await replay_export(export)
        with pytest.raises(ChainBroken, match=APPROVER):
            read_export(raw, world.keys, persons={APPROVER: {public_key(APPROVER_KEY).hex()}})
        read_export(raw, world.keys, persons={APPROVER: {public_key(THIEFS_KEY).hex()}})
        await world.aclose()

    run(go())


def test_an_operators_act_by_a_key_that_control_does_not_state_is_found(stores: str, tmp_path: Path) -> None:
    """Sealed by the runtime's own key, as a defect of the check before would leave it."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.know(OPERATOR, THIEFS_KEY)
        with patch.object(people, "state_person", unstated):
            pin = PackPin(refs=("ctxpack.support@5.2.0",), intents=(INTENT,), environment="dev")
            by = world.actor(OPERATOR, THIEFS_KEY)
            await pin_packs(world.deployment, TENANT, pin, expected=await world.active_version(), by=by)
        with pytest.raises(ChainBroken, match=f"`control` does not state that `{OPERATOR}`"):
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())


DAY_US = 86_400_000_000


async def answers(world: TestWorld) -> None:
    await world.approve((await world.invoke(request(4250, "req_s"))).run_id)


async def acts(world: TestWorld) -> None:
    pin = PackPin(refs=("ctxpack.support@5.2.0",), intents=(INTENT,), environment="dev")
    by = world.actor(APPROVER, APPROVER_KEY)
    await pin_packs(world.deployment, TENANT, pin, expected=await world.active_version(), by=by)


def removed(tenant: dict[str, Any]) -> None:
    tenant["approvers"] = [one for one in tenant["approvers"] if one["approver_id"] != APPROVER]


def without_role(tenant: dict[str, Any]) -> None:
    for one in tenant["approvers"]:
        one["roles"] = [role for role in one["roles"] if one["approver_id"] != APPROVER or role == "none"]


async def listings(world: TestWorld, person: str) -> list[Any]:
    lines = await world.stores.tenant(TENANT).lines(CONTROL, person)
    return [json.loads(line.body)["person"] for line in lines if line.kind == PERSON_LISTED]


@pytest.mark.parametrize("door", [answers, acts])
@pytest.mark.parametrize("change", [removed, without_role])
def test_a_person_who_was_removed_and_is_refused_is_out_of_force_for_a_thief_with_their_key(
    door: Callable[[TestWorld], Awaitable[None]], change: Callable[[dict[str, Any]], None], stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        honest = await world.invoke(request(4200, "req_0"))
        assert (await world.approve(honest.run_id)).state == "completed"
        earlier = (world.path / "directory.json").read_bytes()
        world.edit_directory(change)
        world.clock.at_us += DAY_US
        with pytest.raises(ApprovalRefused):
            await door(world)
        first, second = await listings(world, APPROVER)
        assert "finance_lead" in first["roles"]
        assert (second or {"roles": []})["roles"] == []
        world.clock.at_us += DAY_US
        with thief_of(world, tmp_path / "thief") as thief:
            (thief.path / "directory.json").write_bytes(earlier)
            waiting = await thief.invoke(request(4300, "req_1"))
            assert (await thief.approve(waiting.run_id)).state == "completed"
        await is_found(world, waiting.run_id, APPROVER)
        await world.aclose()

    run(go())


def test_an_operator_who_was_removed_and_is_refused_a_settlement_is_stated(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        world.edit_directory(lambda tenant: tenant.update(approvers=[]))
        with pytest.raises(ApprovalRefused):
            await world.settle(run_id, HAPPENED)
        assert (await listings(world, OPERATOR))[-1] is None
        await world.aclose()

    run(go())


def test_a_name_that_the_directory_never_listed_adds_no_line(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_0"))
        before = await world.stores.tenant(TENANT).length(CONTROL)
        for name in ("user_nobody", "", "runtime", PERSON_LISTED, "x" * 5_000):
            with pytest.raises(ApprovalRefused):
                await world.answer(waiting.run_id, approver=name, seed=THIEFS_KEY)
        assert await world.stores.tenant(TENANT).length(CONTROL) == before
        await world.aclose()

    run(go())


async def unstated(*_: object) -> None: ...
