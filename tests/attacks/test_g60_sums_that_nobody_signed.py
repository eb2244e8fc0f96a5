"""G60: a limit on a sum holds whatever a writer of the database does to the rows that it is added up from.

The attackers hold no key: the application's role, which no trigger lets pass, and the owner of the database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.journal import Document
from contextos.errors import ChainBroken, Integrity
from tests.attacks.conftest import DatabaseOwner
from tests.attacks.test_b10_many_small_effects import denied, limited, open_limited, refund
from tests.world import TENANT, TestWorld, open_world, run

ORDER = "ord_x1"
EARLIER = [1_000, 900]
"""Two refunds on one order; a third one of the first amount is above the limit of 3,000 together with them."""


async def paid(world: TestWorld) -> None:
    for number, amount in enumerate(EARLIER):
        assert not denied(await world.invoke(refund(number, amount, ORDER)))
    await verify(world)


async def verify(world: TestWorld) -> None:
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)


async def rows(world: TestWorld, collection: str) -> list[Document]:
    return list(await world.stores.tenant(TENANT).scan(collection))


async def one_more(world: TestWorld) -> str:
    """What the next refund comes to, which is above the limit."""
    before = len(world.refunds())
    try:
        view = await world.invoke(refund(7, 1_500, ORDER))
    except Integrity as error:
        said = str(error)
    else:
        said = "denied" if denied(view) else "paid"
    assert len(world.refunds()) == before + (said == "paid")
    return said


def at(collection: str, key: str) -> str:
    return f"WHERE tenant = '{TENANT}' AND collection = '{collection}' AND key = '{key}'"


def changed(**change: Any) -> Any:
    async def attack(world: TestWorld, owner: DatabaseOwner) -> None:
        row = (await rows(world, "counted_effects"))[0]
        await owner.rewrite("counted_effects", row.key, orjson.loads(row.body) | change)

    return attack


def statement(sql: str, collection: str = "counted_effects", which: int = 0) -> Any:
    async def attack(world: TestWorld, owner: DatabaseOwner) -> None:
        row = (await rows(world, collection))[which]
        await owner.execute(f"{sql} {at(collection, row.key)}")

    return attack


async def end_of_before(world: TestWorld, owner: DatabaseOwner) -> None:
    """The last effect is deleted, and the bucket says that it ends before it."""
    last = (await rows(world, "counted_effects"))[-1]
    (bucket,) = await rows(world, "history_buckets")
    await owner.execute(f"DELETE FROM {{documents}} {at('counted_effects', last.key)}")
    body = orjson.loads(bucket.body) | {"end": orjson.loads(last.body)["before"]}
    await owner.rewrite("history_buckets", bucket.key, body)
    await owner.execute(f"UPDATE {{documents}} SET version = 1 {at('history_buckets', bucket.key)}")


async def swapped_numbers(world: TestWorld, owner: DatabaseOwner) -> None:
    first, second = await rows(world, "counted_effects")
    one, two = orjson.loads(first.body), orjson.loads(second.body)
    await owner.rewrite("counted_effects", first.key, one | {"numbers": two["numbers"]})
    await owner.rewrite("counted_effects", second.key, two | {"numbers": one["numbers"]})


async def doubled(world: TestWorld, owner: DatabaseOwner) -> None:
    row = (await rows(world, "counted_effects"))[-1]
    body = orjson.loads(row.body)
    key = row.key.removesuffix(f"{body['number']:012d}") + f"{body['number'] + 1:012d}"
    await owner.execute(
        "INSERT INTO {documents} (tenant, collection, key, version, body) VALUES"
        f" ('{TENANT}', 'counted_effects', '{key}', 1, {owner.blob(row.body)})"
    )


ATTACKS = {
    "a number is zero": changed(numbers={"amount_inr": 0}),
    "a number is raised": changed(numbers={"amount_inr": 9_000_000}),
    "no number": changed(numbers={}),
    "another operation": changed(operation="adp_payments.issue_refund/ik_mine"),
    "an earlier time": changed(at_us=1),
    "numbers are swapped": swapped_numbers,
    "an effect stands twice": doubled,
    "the first effect is gone": statement("DELETE FROM {documents}"),
    "the last effect is gone": statement("DELETE FROM {documents}", which=-1),
    "an effect has another key": statement("UPDATE {documents} SET key = key || 'x'"),
    "an effect is in another collection": statement("UPDATE {documents} SET collection = 'other'"),
    "an effect is of another tenant": statement("UPDATE {documents} SET tenant = 'tenant_other'"),
    "an effect is of long ago": statement("UPDATE {documents} SET key = replace(key, '/0', '/-')"),
    "the bucket is gone": statement("DELETE FROM {documents}", "history_buckets"),
    "the bucket has another version": statement("UPDATE {documents} SET version = version + 1", "history_buckets"),
    "the bucket ends before": end_of_before,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_sum_is_read_from_what_is_signed(name: str, stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_limited(tmp_path, stores)
        try:
            await paid(world)
            await ATTACKS[name](world, owner)
            assert "history bucket" in await one_more(world), "it says which rows do not hold"
            with pytest.raises(ChainBroken, match=r"counted effect|history bucket|counted_effects"):
                await verify(world)
        finally:
            await world.aclose()

    run(attack())


def test_a_bucket_that_was_put_back_as_a_whole_is_found_by_verify(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def attack() -> None:
        world = await open_limited(tmp_path, stores)
        try:
            assert not denied(await world.invoke(refund(0, EARLIER[0], ORDER)))
            (before,) = await rows(world, "history_buckets")
            assert not denied(await world.invoke(refund(1, EARLIER[1], ORDER)))
            last = (await rows(world, "counted_effects"))[-1]
            await owner.execute(f"DELETE FROM {{documents}} {at('counted_effects', last.key)}")
            await owner.rewrite("history_buckets", before.key, orjson.loads(before.body))
            await owner.execute(f"UPDATE {{documents}} SET version = 1 {at('history_buckets', before.key)}")
            with pytest.raises(ChainBroken, match="counted_effects"):
                await verify(world)
        finally:
            await world.aclose()

    run(attack())


def test_the_role_of_the_application_cannot_write_an_effect_again(stores: str, attacker: Any, tmp_path: Path) -> None:
    async def before() -> None:
        world = await open_limited(tmp_path, stores)
        try:
            await paid(world)
        finally:
            await world.aclose()

    async def after() -> None:
        world = await open_world(tmp_path, stores=stores, pack=limited)
        try:
            assert await one_more(world) == "denied"
        finally:
            await world.aclose()

    run(before())
    said = (
        f"UPDATE {{documents}} SET version = version + 1 WHERE tenant = '{TENANT}' AND collection = 'counted_effects'"
    )
    with pytest.raises(Exception, match="next version"):
        attacker.application(said)
    run(after())
