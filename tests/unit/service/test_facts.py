"""`app.facts`: set, replace, retract and get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.audit.verify import verify_facts
from contextos.contracts.journal import CONTROL
from contextos.deployment.acts.facts import write_facts
from contextos.errors import Conflict, InvalidInput, NotFound
from contextos.service.facts import Facts
from tests.world import TENANT, TestWorld, open_world, request, run

CUSTOMER, VERIFIED = "customer:cus_77", "identity_verified"


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


def known(world: TestWorld, **more: Any) -> dict[str, Any]:
    """How a fact is known: its source, how far it is trusted, and who writes it."""
    return {
        "source": "artifact:kyc_1#rev_1",
        "integrity": "trusted",
        "classification": "CONFIDENTIAL",
        "by": world.actor(),
    } | more


def test_a_fact_is_set_replaced_and_retracted_and_its_history_stays(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        facts, who = Facts(world.deployment), ("customer:cus_new", "tier")
        assert await facts.get(TENANT, *who) == ()
        silver = await facts.set(TENANT, *who, "silver", **known(world))
        assert (silver.value, silver.source, silver.integrity) == ("silver", "artifact:kyc_1#rev_1", "trusted")
        assert await facts.get(TENANT, *who) == (silver,)
        gold = await facts.replace(TENANT, *who, {"name": "gold", "since": 2026}, **known(world))
        assert await facts.get(TENANT, *who) == (gold,)
        await facts.retract(TENANT, *who, source="artifact:kyc_2#rev_1", by=world.actor())
        assert await facts.get(TENANT, *who) == ()
        assert await facts.get(TENANT, *who, snapshot=silver.snapshot) == (silver,)
        assert await facts.get(TENANT, *who, snapshot=gold.snapshot) == (gold,)
        again = await facts.set(TENANT, *who, "silver", **known(world))
        assert again.value == "silver"
        assert again.fact_id != silver.fact_id
        await verify_facts(world.stores.graph(TENANT), world.stores.tenant(TENANT), world.keys)
        await world.aclose()

    run(act())


def test_all_facts_of_a_subject_are_listed_in_pages(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        facts, subject = Facts(world.deployment), "customer:cus_new"
        said = [await facts.set(TENANT, subject, f"says_{number}", number, **known(world)) for number in range(5)]
        await facts.set(TENANT, "customer:cus_other", "says_0", 9, **known(world))
        found, cursor = [], ""
        while True:
            page = await facts.list(TENANT, subject, limit=2, cursor=cursor)
            found += page.items
            if page.cursor is None:
                break
            cursor = page.cursor
        assert sorted(one.value for one in found) == [0, 1, 2, 3, 4]
        assert len({one.fact_id for one in found}) == 5
        assert (await facts.list(TENANT, subject, "says_3")).items == (said[3],)
        before = await facts.list(TENANT, subject, snapshot=said[1].snapshot)
        assert sorted(one.value for one in before.items) == [0, 1]
        for limit in (0, 1001):
            with pytest.raises(InvalidInput, match="a page has"):
                await facts.list(TENANT, subject, limit=limit)
        await world.aclose()

    run(act())


def test_the_same_call_again_writes_nothing(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        facts, who = Facts(world.deployment), ("customer:cus_new", "tier")
        fact = await facts.set(TENANT, *who, "silver", **known(world))
        acts = await world.stores.tenant(TENANT).length(CONTROL)
        assert await facts.set(TENANT, *who, "silver", **known(world)) == fact
        assert await facts.replace(TENANT, *who, "silver", **known(world)) == fact
        assert await world.stores.tenant(TENANT).length(CONTROL) == acts

    run(act())


def test_another_value_is_refused_with_the_way_on(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        facts, who = Facts(world.deployment), ("customer:cus_new", "tier")
        with pytest.raises(NotFound, match="set it"):
            await facts.replace(TENANT, *who, "gold", **known(world))
        with pytest.raises(NotFound, match="none can be retracted"):
            await facts.retract(TENANT, *who, source="artifact:kyc_2#rev_1", by=world.actor())
        await facts.set(TENANT, *who, "silver", **known(world))
        for change in ({"value": "gold"}, {"source": "artifact:kyc_2#rev_1"}):
            value = change.pop("value", "silver")
            with pytest.raises(InvalidInput, match="replace the fact"):
                await facts.set(TENANT, *who, value, **known(world, **change))

    run(act())


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"subject": "cus_77"}, "/subject"),
        ({"source": "a friend"}, "/source"),
        ({"integrity": "perhaps"}, "/integrity"),
        ({"classification": "secret"}, "/classification"),
        ({"observed_at_us": 2**60}, "/observed_at_us"),
        ({"value": float("nan")}, ""),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else None,
)
def test_a_malformed_fact_is_refused_and_nothing_is_written(
    tmp_path: Path, change: dict[str, Any], pointer: str
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        before = await world.stores.graph(TENANT).head()
        stated = {"subject": "customer:cus_new", "predicate": "tier", "value": "silver", **known(world)} | change
        with pytest.raises(InvalidInput) as refused:
            await Facts(world.deployment).set(TENANT, **stated)
        assert any(one.pointer.startswith(pointer) for one in refused.value.problems)
        assert await world.stores.graph(TENANT).head() == before

    run(act())


def test_of_two_writers_at_once_one_wins_and_no_second_value_stays(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        import asyncio

        world = await open_world(tmp_path, stores=stores)
        facts, who = Facts(world.deployment), ("customer:cus_new", "tier")
        done = await asyncio.gather(
            *(facts.set(TENANT, *who, value, **known(world)) for value in ("silver", "gold", "tin")),
            return_exceptions=True,
        )
        assert {type(one) for one in done if isinstance(one, BaseException)} <= {Conflict, InvalidInput}
        assert len(await facts.get(TENANT, *who)) == 1
        await world.aclose()

    run(act())


def test_what_was_written_meanwhile_is_not_left_beside_a_retraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        facts, who = Facts(world.deployment), ("customer:cus_new", "tier")
        await facts.set(TENANT, *who, "silver", **known(world))
        seen, other = facts._facts_now, Facts(world.deployment)
        stated: dict[str, Any] = {
            "evidence_ref": "artifact:kyc_1#rev_1",
            "integrity": "trusted",
            "classification": "CONFIDENTIAL",
        }
        stated |= {"observed_at": world.clock.at_us}

        async def overtaken(*about: str) -> Any:
            found = await seen(*about)
            edge = {"src": who[0], "predicate": who[1], "dst": who[0], "value": "gold", **stated}
            await write_facts(world.deployment, TENANT, [], [edge], by=world.actor())
            return found

        monkeypatch.setattr(facts, "_facts_now", overtaken)
        with pytest.raises(Conflict):
            await facts.retract(TENANT, *who, source="artifact:kyc_2#rev_1", by=world.actor())
        assert sorted(str(one.value) for one in await other.get(TENANT, *who)) == ["gold", "silver"]

    run(act())


def test_a_run_decides_by_the_fact_that_holds_when_it_begins(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        facts = Facts(world.deployment)
        assert (await world.invoke(request(900, "req_1"))).state == "completed"
        await facts.replace(TENANT, CUSTOMER, VERIFIED, False, **known(world))
        assert (await world.invoke(request(901, "req_2"))).state != "completed"
        await facts.replace(TENANT, CUSTOMER, VERIFIED, True, **known(world, source="artifact:kyc_3#rev_1"))
        assert (await world.invoke(request(902, "req_3"))).state == "completed"

    run(act())


def test_a_snapshot_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        for snapshot in ("kg_99", "99", "kg_-1", ""):
            with pytest.raises(NotFound, match="no snapshot"):
                await Facts(world.deployment).get(TENANT, CUSTOMER, VERIFIED, snapshot=snapshot)

    run(act())
