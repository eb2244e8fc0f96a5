"""G131: a person acts on a role from their own other name, or ends and remembers their own run under it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.errors import ApprovalRefused
from tests.attacks.test_a03_operators_are_proved import ACTS, target
from tests.attacks.test_g86_one_person_under_two_names import link
from tests.world import APPROVER, OPERATOR, open_world, request, run

ALONE = "usr_alone"
"""A second name of a person who has nothing to do with the runs."""


def grant_oneself(tenant: dict[str, Any]) -> None:
    for one in tenant["approvers"]:
        one["user_ids"] = [f"{ALONE}_{one['approver_id']}"]
        one["granted_by"] = dict.fromkeys(one["granted_by"], f"{ALONE}_{one['approver_id']}")


def test_nobody_approves_by_a_role_from_their_own_other_name(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.edit_directory(grant_oneself)
        waiting = await world.invoke(request(4200, "req_self"))
        with pytest.raises(ApprovalRefused) as refused:
            await world.approve(waiting.run_id)
        assert (refused.value.reason, world.refunds()) == ("self_granted", [])
        await world.aclose()

    run(go())


def test_nobody_acts_by_a_role_from_their_own_other_name(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        at = await target(tmp_path, stores)
        at.world.edit_directory(grant_oneself)
        done = [kind for kind, act in ACTS.items() if await reason_of(at, act) != "self_granted"]
        assert done == []
        await at.world.aclose()

    run(go())


@pytest.mark.parametrize("kind", ["decision.resolved", "decision.closed", "run.reopened", "memory.reviewed"])
def test_nobody_ends_or_remembers_their_own_run_under_a_name_that_is_linked_later(
    kind: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        at = await target(tmp_path, stores)
        link(at.world, OPERATOR, "usr_771")
        assert await reason_of(at, ACTS[kind]) == ("self_review" if kind == "memory.reviewed" else "self_settlement")
        await at.world.aclose()

    run(go())


async def reason_of(at: Any, act: Any) -> str:
    with pytest.raises(ApprovalRefused) as refused:
        await act(at, at.world.actor())
    return refused.value.reason


def twin(tenant: dict[str, Any], of: str, **more: Any) -> None:
    """List the person `of` a second time, as `usr_twin`, whom only a name that they share links to the first."""
    for one in tenant["approvers"]:
        if one["approver_id"] == of:
            one |= {"user_ids": ["usr_shared"], **more}
    tenant["approvers"].append({"approver_id": "usr_twin", "user_ids": ["usr_shared", "usr_771"]})


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"granted_by": {"finance_lead": "usr_twin"}}, "self_granted"), ({}, "self_approval")],
    ids=["grants", "requests"],
)
def test_two_approvers_who_share_a_name_are_one_person(
    more: dict[str, Any], reason: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_twin"))
        world.edit_directory(lambda tenant: twin(tenant, APPROVER, **more))
        if more:
            world.edit_directory(lambda tenant: tenant["approvers"][-1].update(user_ids=["usr_shared"]))
        with pytest.raises(ApprovalRefused) as refused:
            await world.approve(waiting.run_id)
        assert (refused.value.reason, world.refunds()) == (reason, [])
        await world.aclose()

    run(go())
