"""A fact is written only by a person who proves it with their key and holds the role, in the tenant that they name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.deployment.acts.act import Actor, unsafe_local_assertion
from contextos.errors import ApprovalRefused, Integrity
from contextos.service.facts import Facts
from tests.attacks.attackers import sql_in_file
from tests.world import APPROVER, APPROVER_KEY, OPERATOR, OPERATOR_KEY, TENANT, TestWorld, open_world, run

OTHER = "tenant_other_prod"
WHO = ("customer:cus_77", "identity_verified")
KNOWN: dict[str, Any] = {"source": "artifact:kyc_1#rev_1", "integrity": "trusted", "classification": "CONFIDENTIAL"}

ACTORS: dict[str, tuple[Callable[[TestWorld], Actor], str]] = {
    "without the role": (lambda world: world.actor(APPROVER, APPROVER_KEY), "not_allowed"),
    "with the key of another": (lambda world: world.actor(OPERATOR, APPROVER_KEY), "assertion_invalid"),
    "who is only named": (lambda world: Actor(OPERATOR, unsafe_local_assertion), "unsafe_not_allowed"),
    "whom nobody knows": (lambda world: world.actor("user_nobody", OPERATOR_KEY), "unknown_actor"),
}


@pytest.mark.parametrize("who", sorted(ACTORS))
@pytest.mark.parametrize("act_name", ["set", "replace", "retract"])
def test_nobody_writes_a_fact_without_the_role_and_the_key(tmp_path: Path, who: str, act_name: str) -> None:
    make, reason = ACTORS[who]

    async def act() -> None:
        world = await open_world(tmp_path)
        facts, by = Facts(world.deployment), make(world)
        before = await facts.get(TENANT, *WHO), await world.stores.graph(TENANT).head()
        writing = {
            "set": lambda: facts.set(TENANT, "customer:cus_new", "tier", "gold", **KNOWN, by=by),
            "replace": lambda: facts.replace(TENANT, *WHO, False, **KNOWN, by=by),
            "retract": lambda: facts.retract(TENANT, *WHO, source="artifact:kyc_1#rev_1", by=by),
        }
        with pytest.raises(ApprovalRefused) as refused:
            await writing[act_name]()
        assert refused.value.reason == reason
        assert (await facts.get(TENANT, *WHO), await world.stores.graph(TENANT).head()) == before

    run(act())


def test_a_writer_of_one_tenant_writes_nothing_in_another(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        where = tmp_path / "directory.json"
        directory = json.loads(where.read_text("utf-8"))
        people = [one for one in directory[TENANT]["approvers"] if one["approver_id"] != OPERATOR]
        where.write_text(json.dumps({**directory, OTHER: directory[TENANT] | {"approvers": people}}), "utf-8")
        with pytest.raises(ApprovalRefused) as refused:
            await Facts(world.deployment).set(OTHER, *WHO, True, **KNOWN, by=world.actor())
        assert refused.value.reason == "unknown_actor"
        assert await Facts(world.deployment).get(OTHER, *WHO) == ()

    run(act())


def test_a_value_that_the_database_owner_changed_is_not_shown(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        facts = Facts(world.deployment)
        await facts.set(TENANT, "customer:cus_new", "tier", "silver", **KNOWN, by=world.actor())
        sql_in_file(
            tmp_path / "contextos.db",
            ("UPDATE edges SET body = CAST(REPLACE(body, 'silver', 'golden') AS BLOB) WHERE predicate = 'tier'",),
            owner=True,
        )
        with pytest.raises(Integrity):
            await facts.get(TENANT, "customer:cus_new", "tier")

    run(act())
