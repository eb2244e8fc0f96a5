"""C17: a memory that no sealed act covers is not recalled, and a proposal that no run made is not reviewed.

The attacker is the owner of the database: no trigger and no grant stops them, and they hold no key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.memories import promoted_key
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.evidence import fact_digest
from contextos.contracts.envelopes.memory import MemoryProposal
from contextos.contracts.journal import CONTROL
from contextos.deployment.acts.act import propose_commit
from contextos.deployment.acts.memories import review_memory
from contextos.errors import ChainBroken, Integrity
from contextos.intelligence.memory import list_candidates, review_proposal
from contextos.trust.seal import KeyRing
from tests.attacks.conftest import DatabaseOwner
from tests.world import OPERATOR, TENANT, TestWorld, open_world, request, run

CUSTOMER, PREDICATE = "customer:cus_77", "was_refunded"
PLACE = promoted_key(CUSTOMER, PREDICATE)
PROMOTED = {"verdict": "promote"}


@asynccontextmanager
async def opened(path: Path, stores: str) -> AsyncIterator[tuple[TestWorld, list[MemoryProposal]]]:
    """A world in which two runs proposed to remember something different about the same customer."""
    world = await open_world(path, stores=stores)
    try:
        for amount, order in ((900, "ord_881"), (800, "ord_882")):
            await world.invoke(request(amount, f"req_{order}", order_id=order))
        found = await list_candidates(world.stores.tenant(TENANT))
        made = sorted((one for one in found if one.candidate.predicate == PREDICATE), key=lambda one: one.run_id)
        assert [one.candidate.entity_ceid for one in made] == [CUSTOMER, CUSTOMER]
        yield world, made
    finally:
        await world.aclose()


async def review(world: TestWorld, proposal: MemoryProposal, verdict: Any = "promote", **how: Any) -> dict[str, Any]:
    done = await review_memory(world.deployment, TENANT, proposal.proposal_id, verdict, by=world.actor(), **how)
    assert isinstance(done, dict), done
    return done


async def stored(world: TestWorld, collection: str, key: str) -> dict[str, Any]:
    [found] = await world.stores.tenant(TENANT).scan(collection, key=key)
    body: dict[str, Any] = orjson.loads(found.body)
    return body


async def insert(owner: DatabaseOwner, collection: str, key: str, body: Any) -> None:
    await owner.execute(
        "INSERT INTO {documents} (tenant, collection, key, version, body)"
        f" VALUES ('{TENANT}', '{collection}', '{key}', 1, {owner.blob(orjson.dumps(body))})"
    )


async def recalled(world: TestWorld) -> list[Any]:
    """What a further run about this customer recalls; its record refers to it."""
    view = await world.invoke(request(700, "req_honest", order_id="ord_883"))
    entries = await world.stores.tenant(TENANT).read(view.run_id)
    [answer] = [orjson.loads(one.body or b"")["answer"] for one in entries if one.kind == "memory.recalled"]
    refs = [item["evidence_ref"] for item in answer]
    assert view.record is not None
    assert [one for one in view.record["evidence_refs"] if one.startswith("memory:")] == refs
    return refs


async def refused(world: TestWorld) -> tuple[str, str]:
    """What a run about this customer, which recalls nothing and pays nothing, and `verify` say: integrity errors."""
    before = world.refunds()
    with pytest.raises(Integrity) as run_says:
        await world.invoke(request(700, "req_attack", order_id="ord_883"))
    assert world.refunds() == before
    return str(run_says.value), await found(world)


async def found(world: TestWorld) -> str:
    with pytest.raises(ChainBroken) as verify_says:
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    return str(verify_says.value)


def test_what_a_reviewer_promoted_is_recalled_and_verifies(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, second]):
            await review(world, first)
            await review(world, second, supersede=True)
            assert await recalled(world) == [f"memory:{second.proposal_id}"]
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)

    run(act())


@pytest.mark.parametrize("rejected", [False, True])
def test_a_memory_that_nobody_promoted_is_not_recalled(
    rejected: bool, stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, _]):
            said = {
                "proposal_id": first.proposal_id,
                "reviewer": OPERATOR,
                "reason": "",
                "at_us": first.proposed_at_us,
                "integrity": "trusted",
                "fact_digest": content_address("mine"),
                "proposal_digest": content_address(first.to_json()),
            }
            if rejected:
                said = await review(world, first, "reject")
            await insert(owner, "memory_promoted", PLACE, {"proposal": first.to_json(), "review": said | PROMOTED})
            run_says, verify_says = await refused(world)
            assert f"`{first.proposal_id}` is not what a sealed act of a reviewer promoted" in run_says
            assert f"`{first.proposal_id}`" in verify_says

    run(act())


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("candidate", {"value": {"transaction_id": "txn_mine"}}),
        ("proposal", {"ttl_s": 999_999_999}),
        ("review", {"integrity": "trusted"}),
    ],
)
def test_a_memory_that_was_altered_is_not_recalled(
    part: str, change: dict[str, Any], stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, _]):
            await review(world, first)
            body = await stored(world, "memory_promoted", PLACE)
            (body["proposal"]["candidate"] if part == "candidate" else body[part]).update(change)
            if part != "review":
                body["review"]["proposal_digest"] = content_address(body["proposal"])
            await owner.rewrite("memory_promoted", PLACE, body)
            run_says, verify_says = await refused(world)
            assert f"`{first.proposal_id}` is not what a sealed act of a reviewer promoted" in run_says
            assert f"`{first.proposal_id}`" in verify_says

    run(act())


def test_a_memory_about_another_subject_is_not_recalled(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, _]):
            await review(world, first)
            body = await stored(world, "memory_promoted", PLACE)
            await insert(owner, "memory_promoted", promoted_key("order:ord_883", PREDICATE), body)
            run_says, verify_says = await refused(world)
            assert f"`{first.proposal_id}` is stored under another subject or predicate" in run_says
            assert f"`{first.proposal_id}`" in verify_says

    run(act())


def test_a_memory_that_was_superseded_does_not_come_back(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, second]):
            await review(world, first)
            body = await stored(world, "memory_promoted", PLACE)
            await review(world, second, supersede=True)
            await owner.rewrite("memory_promoted", PLACE, body)
            run_says, verify_says = await refused(world)
            assert f"`{first.proposal_id}` was superseded" in run_says
            assert f"`{first.proposal_id}`" in verify_says

    run(act())


def test_an_act_that_the_runtime_did_not_seal_promotes_nothing(stores: str, tmp_path: Path) -> None:
    """The owner of the database makes memory and act through a runtime of their own."""

    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, _]):
            store = world.stores.tenant(TENANT)
            act = await review_proposal(
                store, first.proposal_id, "promote", reviewer=OPERATOR, at_us=world.clock.now_us()
            )
            assert isinstance(act, ProposedAct)
            own = replace(world.deployment.ports, keys=KeyRing.from_seed(b"o" * 32))
            await propose_commit(own, world.deployment.config, TENANT, act, world.actor()).signed()
            before = world.refunds()
            with pytest.raises(ChainBroken, match="the runtime did not seal it"):
                await world.invoke(request(700, "req_attack", order_id="ord_883"))
            assert world.refunds() == before

    run(act())


def test_a_memory_that_is_gone_is_found_by_verify(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, _]):
            await review(world, first)
            await owner.execute(
                f"DELETE FROM {{documents}} WHERE tenant = '{TENANT}' AND collection = 'memory_promoted'"
            )
            assert f"`{first.proposal_id}`" in await found(world)

    run(act())


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("candidate", {"value": {"transaction_id": "txn_mine"}}),
        ("proposal", {"run_id": "run_0123456789abcdef"}),
        ("proposal", {"run_id": "another"}),
    ],
)
def test_a_proposal_that_its_run_did_not_make_is_not_reviewed(
    part: str, change: dict[str, Any], stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, second]):
            body = await stored(world, "memory_candidates", first.proposal_id)
            (body["proposal"]["candidate"] if part == "candidate" else body["proposal"]).update(change)
            if change == {"run_id": "another"}:
                body["proposal"]["run_id"] = second.run_id
            await owner.rewrite("memory_candidates", first.proposal_id, body)
            before = len(await world.stores.tenant(TENANT).read(CONTROL))
            for verdict in ("promote", "reject"):
                with pytest.raises(Integrity, match=f"`{first.proposal_id}` is not what a signed entry"):
                    await review(world, first, verdict, supersede=True)
            assert len(await world.stores.tenant(TENANT).read(CONTROL)) == before
            assert await world.stores.tenant(TENANT).scan("memory_promoted") == []

    run(act())


def test_a_proposal_is_not_made_reviewable_again(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, _]):
            await review(world, first, "reject")
            body = await stored(world, "memory_candidates", first.proposal_id)
            await owner.rewrite("memory_candidates", first.proposal_id, body | {"review": None})
            with pytest.raises(Integrity, match=f"`{first.proposal_id}` was reviewed"):
                await review(world, first, supersede=True)

    run(act())


def test_a_made_up_memory_is_not_replaced_as_if_it_had_been_promoted(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, second]):
            said = await review(world, first, "reject")
            await insert(owner, "memory_promoted", PLACE, {"proposal": first.to_json(), "review": said | PROMOTED})
            with pytest.raises(Integrity, match=f"`{first.proposal_id}`"):
                await review(world, second, supersede=True)

    run(act())


def test_a_rejection_that_nobody_made_hides_a_proposal_until_verify_finds_it(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    """The documented limit: the list reads the row alone. A proposal that is named can still be reviewed."""

    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, second]):
            done = await review(world, first, "reject")
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
            statement = fact_digest(CUSTOMER, PREDICATE, second.candidate.value)
            await insert(owner, "memory_rejected", statement, {**done, "fact_digest": statement})
            assert second not in await list_candidates(world.stores.tenant(TENANT))
            assert f"no sealed act of a reviewer states the rejection `{statement}`" in await found(world)
            await review(world, second, supersede=True)

    run(act())


def test_a_rejection_that_was_removed_is_found_by_verify(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as (world, [first, _]):
            statement = (await review(world, first, "reject"))["fact_digest"]
            await owner.execute(
                f"DELETE FROM {{documents}} WHERE tenant = '{TENANT}' AND collection = 'memory_rejected'"
            )
            assert f"the rejection `{statement}` is gone" in await found(world)

    run(act())
