"""G86: the requester, or the owner of the agent, signs with the other name under which the directory lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.deployment.operator import SettlementInput
from contextos.errors import ApprovalRefused
from tests.e2e.test_sessions import losing_the_reply
from tests.world import APPROVER, OPERATOR, TestWorld, open_world, request, run


def link(world: TestWorld, approver: str, *users: str) -> None:
    def change(tenant: dict[str, Any]) -> None:
        [found] = [one for one in tenant["approvers"] if one["approver_id"] == approver]
        found["user_ids"] = list(users)

    world.edit_directory(change)


def owner_of(world: TestWorld) -> str:
    found: list[str] = []
    world.edit_directory(lambda tenant: found.extend(one["owner"] for one in tenant["agents"]))
    return found[0]


@pytest.mark.parametrize("who", ["user", "owner"])
def test_a_person_who_is_both_approves_nothing(who: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        link(world, APPROVER, "usr_another", "usr_771" if who == "user" else owner_of(world))
        waiting = await world.invoke(request(4200, "req_two_names"))
        assert (waiting.waiting or {}).get("for") == "approval"
        with pytest.raises(ApprovalRefused) as refused:
            await world.approve(waiting.run_id)
        assert refused.value.reason == "self_approval"
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_a_role_from_the_other_name_is_no_role(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite")

        def change(tenant: dict[str, Any]) -> None:
            grantor = {"approver_id": "boss", "roles": [], "granted_by": {}, "keys": [], "user_ids": ["usr_771"]}
            tenant["approvers"].append(grantor)
            for one in tenant["approvers"]:
                one["granted_by"] = dict.fromkeys(one["granted_by"], "boss")

        world.edit_directory(change)
        waiting = await world.invoke(request(4200, "req_granted"))
        with pytest.raises(ApprovalRefused) as refused:
            await world.approve(waiting.run_id)
        assert refused.value.reason == "self_granted"
        await world.aclose()

    run(go())


def test_a_link_that_is_found_later_counts(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_later"))
        link(world, APPROVER, "usr_771")
        with pytest.raises(ApprovalRefused) as refused:
            await world.approve(waiting.run_id)
        assert refused.value.reason == "self_approval"
        assert world.refunds() == []
        await world.aclose()

    run(go())


@pytest.mark.parametrize("linked", ["before", "later"])
def test_a_person_who_is_both_settles_nothing(linked: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, payments="none")
        if linked == "before":
            link(world, OPERATOR, "usr_771")
        with losing_the_reply(world):
            waiting = await world.invoke(request(900, "req_lost"))
        # Who was behind the run when it began stays so, and a link that is found later counts too.
        link(world, OPERATOR, *(["usr_771"] if linked == "later" else []))
        found = SettlementInput(False, OPERATOR, "kg:order:ord_881#snapshot_kg_1")
        with pytest.raises(ApprovalRefused) as refused:
            await world.settle(waiting.run_id, found)
        assert refused.value.reason == "self_settlement"
        await world.aclose()

    run(go())


def test_others_approve_as_before(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        link(world, APPROVER, "usr_another")
        waiting = await world.invoke(request(4200, "req_other"))
        assert (await world.approve(waiting.run_id)).state == "completed"
        await world.aclose()

    run(go())
