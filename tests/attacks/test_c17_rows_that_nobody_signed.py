"""C17: a row that no signed entry covers is not believed: facts, memories and the idempotency table.

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

from contextos.audit.verify import verify_facts, verify_tenant
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.tool import AdapterReply
from contextos.deployment.gate.opening import recorded_request
from contextos.deployment.operator import SettlementInput
from contextos.errors import ChainBroken, Integrity, LostReply
from contextos.runtime.admission import request_fingerprint
from contextos.trust.rows.edges import ProvedGraph
from contextos.trust.seal import KeyRing
from tests.attacks.attackers import REFUSED, Attacker
from tests.attacks.conftest import DatabaseOwner
from tests.world import OPERATOR, TENANT, TestWorld, open_world, request, run

PAYMENT = "adp_payments.issue_refund"


class Lost:
    """Payments whose reply is lost while `lost`; then nothing is paid, or something if `pays`."""

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.lost, self.pays = adapter, True, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    async def call(self, capability: str, args: Any, context: Any) -> AdapterReply:
        reply: AdapterReply | None = None
        if self.pays or not self.lost:
            reply = await self.adapter.call(capability, args, context)
        if self.lost or reply is None:
            raise LostReply("the reply was lost")
        return reply


@asynccontextmanager
async def opened(path: Path, stores: str, **how: Any) -> AsyncIterator[TestWorld]:
    world = await open_world(path, stores=stores, **how)
    try:
        yield world
    finally:
        await world.aclose()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"output": {"transaction_id": "txn_mine", "status": "done"}}, "its output is not the one"),
        ({"state": "released", "output": None}, "it states `released`, and"),
        ({"state": "claimed", "output": None}, "it states `claimed`, and"),
        ({"run_id": "run_0123456789abcdef"}, "which has no signed entry"),
        ({"run_id": "run_0123456789abcdef", "state": "claimed", "output": None}, "which has no signed entry"),
        ({"run_id": "other"}, "no signed entry of"),
        ({"tool_call_id": "tc_mine"}, "no signed entry of"),
    ],
)
def test_a_row_that_says_what_its_run_does_not_is_not_believed(
    change: dict[str, Any], told: str, stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            paid = await world.invoke(request(900, "req_1"))
            other = await world.invoke(request(800, "req_2"))
            assert (paid.state, other.state, len(world.refunds())) == ("completed", "completed", 2)
            rows = await world.stores.tenant(TENANT).scan("keys")
            (row,) = [row for row in rows if orjson.loads(row.body)["run_id"] == paid.run_id]
            body = orjson.loads(row.body) | change
            if body["run_id"] == "other":
                body["run_id"] = other.run_id
            if body["output"] is None:
                del body["output"], body["mutations"]
            await owner.rewrite("keys", row.key, body)
            with pytest.raises(Integrity, match=told) as refused:
                await world.invoke(request(900, "req_3"))
            assert f"`keys/{row.key}`" in str(refused.value)
            assert len(world.refunds()) == 2

    run(act())


def test_a_run_goes_on_once_the_row_is_as_its_run_left_it(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            paid = await world.invoke(request(900, "req_1"))
            (row,) = await world.stores.tenant(TENANT).scan("keys")
            body = orjson.loads(row.body)
            await owner.rewrite("keys", row.key, {**body, "run_id": "run_ffffffffffffffff"})
            with pytest.raises(Integrity, match="which has no signed entry"):
                await world.invoke(request(900, "req_2"))
            await owner.rewrite("keys", row.key, body)
            again = await world.invoke(request(900, "req_2"))
            assert again.record is not None
            assert [one["made_by"] for one in again.record["effects"]] == [paid.run_id]

    run(act())


@pytest.mark.parametrize(
    ("state", "who"), [("completed", "application"), ("claimed", "application"), ("completed", "owner")]
)
def test_a_release_that_another_run_took_up_frees_nothing_once_its_row_is_put_back(
    state: str, who: str, stores: str, attacker: Attacker, tmp_path: Path
) -> None:
    """The application role writes the next version of the row: as a first run, which paid nothing, left it. The owner
    of the database puts back its version too, and only `verify` can find that.
    """

    async def before() -> tuple[str, bytes, int]:
        async with opened(tmp_path, stores, payments="none") as world:
            lost = Lost(world.adapters["adp_payments"])
            world.adapters["adp_payments"] = lost  # type: ignore[assignment]
            first = await world.invoke(request(900, "req_1"))
            told = SettlementInput(happened=False, by=OPERATOR, evidence_ref="kg:order:ord_881#snapshot_kg_1")
            await world.settle(first.run_id, told)
            (left,) = await world.stores.tenant(TENANT).scan("keys")
            assert orjson.loads(left.body)["state"] == "released"
            lost.lost, lost.pays = state == "claimed", True
            second = await world.invoke(request(900, "req_2"))
            (row,) = await world.stores.tenant(TENANT).scan("keys")
            assert (orjson.loads(row.body)["run_id"], orjson.loads(row.body)["state"]) == (second.run_id, state)
            assert len(world.refunds()) == 1
            return row.key, left.body, left.version

    async def after() -> None:
        async with opened(tmp_path, stores, payments="none") as world:
            if who == "application":
                with pytest.raises(Integrity, match="was taken up since"):
                    await world.invoke(request(900, "req_3"))
                assert len(world.refunds()) == 1
            with pytest.raises(ChainBroken, match=f"contradicts the document `keys/{PAYMENT}"):
                await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)

    key, body, left = run(before())
    literal = f"x'{body.hex()}'" if stores == "sqlite" else f"'\\x{body.hex()}'::bytea"
    version = "version + 1" if who == "application" else str(left)
    getattr(attacker, who)(
        f"UPDATE {{documents}} SET version = {version}, body = {literal}"
        f" WHERE tenant = '{TENANT}' AND collection = 'keys' AND key = '{key}'"
    )
    run(after())


FACT = {
    "src": "customer:cus_78",
    "predicate": "identity_verified",
    "dst": "check:idv_mine",
    "value": True,
    "evidence_ref": "artifact:idv_mine#rev_1",
    "observed_at": "2026-05-03T09:30:00Z",
    "integrity": "trusted",
    "classification": "CONFIDENTIAL",
}
ORDER = "ord_890"
"""An order of the customer whose identity is not verified."""


def inserted(owner: DatabaseOwner, edge_id: str, edge: dict[str, Any], commit: int) -> str:
    """An edge that the owner of the database adds past the runtime, valid from this commit on."""
    named = ", ".join(f"'{edge[name]}'" for name in ("src", "predicate", "dst", "evidence_ref"))
    return (
        "INSERT INTO {edges} (tenant, edge_id, src, predicate, dst, evidence_ref, body, valid_from)"
        f" VALUES ('{TENANT}', '{edge_id}', {named}, {owner.blob(canonical(edge))}, {commit})"
    )


async def edges_of(world: TestWorld, subject: str, predicate: str) -> list[dict[str, Any]]:
    graph = world.stores.graph(TENANT)
    return [dict(one) for one in await graph.step([subject], predicate, at=await graph.head(), limit=9)]


async def refused(world: TestWorld, order: str = ORDER) -> tuple[str, str]:
    """What a refund of this order, which is not paid, and `verify` say: integrity errors, both."""
    before = world.refunds()
    with pytest.raises(Integrity) as run_says:
        await world.invoke(request(900, "req_attack", order_id=order))
    assert world.refunds() == before
    with pytest.raises(ChainBroken) as verify_says:
        await verify_facts(world.stores.graph(TENANT), world.stores.tenant(TENANT), world.keys)
    return str(run_says.value), str(verify_says.value)


def test_an_edge_that_nobody_wrote_is_no_evidence(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            honest = await world.invoke(request(900, "req_honest", order_id=ORDER))
            assert (honest.state, world.refunds()) == ("escalated", [])
            assert await verify_facts(world.stores.graph(TENANT), world.stores.tenant(TENANT), world.keys) > 0
            commit = await world.stores.graph(TENANT).head()
            await owner.execute(inserted(owner, "edge_mine", FACT, commit))
            assert all("`edge_mine`" in one for one in await refused(world))

    run(act())


def test_an_edge_whose_statement_was_altered_is_no_evidence(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            await world.put_facts([{**FACT, "value": False}])
            [said] = [one for one in await edges_of(world, FACT["src"], FACT["predicate"]) if one["value"] is False]
            await owner.execute(
                f"UPDATE {{edges}} SET body = {owner.blob(canonical(FACT))}"
                f" WHERE tenant = '{TENANT}' AND edge_id = '{said['edge_id']}'"
            )
            assert all(f"`{said['edge_id']}`" in one for one in await refused(world))

    run(act())


def test_an_edge_that_is_stored_under_another_subject_is_no_evidence(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            [said] = await edges_of(world, "customer:cus_77", "identity_verified")
            await owner.execute(
                f"UPDATE {{edges}} SET src = '{FACT['src']}'"
                f" WHERE tenant = '{TENANT}' AND edge_id = '{said['edge_id']}'"
            )
            assert all(f"`{said['edge_id']}`" in one for one in await refused(world))

    run(act())


def test_an_edge_that_was_withdrawn_does_not_come_back(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            await world.put_facts([{**FACT, "edge_id": "edge_once"}])
            await world.put_facts([{"retracts": "edge_once", "evidence_ref": "artifact:recheck#rev_2"}])
            await owner.execute(
                "UPDATE {edges} SET valid_to = NULL, withdrawn_ref = NULL"
                f" WHERE tenant = '{TENANT}' AND edge_id = 'edge_once'"
            )
            assert all("`edge_once`" in one for one in await refused(world))

    run(act())


def test_a_snapshot_that_a_run_pinned_takes_no_new_edge(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    """Neither an invented edge nor a true one of a later commit counts in a snapshot of the past."""

    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            pinned = await world.stores.graph(TENANT).head()
            await world.put_facts([{**FACT, "edge_id": "edge_later"}])
            await owner.execute(
                f"UPDATE {{edges}} SET valid_from = {pinned} WHERE tenant = '{TENANT}' AND edge_id = 'edge_later'"
            )
            assert all("`edge_later`" in one for one in await refused(world))

    run(act())


def test_an_act_that_the_runtime_did_not_seal_makes_no_evidence(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    """The owner of the database writes edge and act, signed by a key of their own, through a runtime of their own."""

    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            keys = world.keys
            own = replace(world.deployment.ports, keys=KeyRing.from_seed(b"o" * 32))
            world.deployment.ports = own
            with pytest.MonkeyPatch.context() as theirs:
                theirs.setattr(ProvedGraph, "head", lambda graph: graph._graph.head())
                await world.put_facts([{**FACT, "edge_id": "edge_forged"}])
            world.deployment.ports = replace(own, keys=keys)
            before = world.refunds()
            with pytest.raises(Integrity, match="its newest commit is"):
                await world.invoke(request(900, "req_attack", order_id=ORDER))
            assert world.refunds() == before

    run(act())


def test_the_application_role_adds_no_edge_to_a_snapshot_of_the_past(
    stores: str, attacker: Attacker, tmp_path: Path
) -> None:
    async def act() -> int:
        async with opened(tmp_path, stores) as world:
            return await world.put_facts([{**FACT, "edge_id": "edge_true", "value": False}])

    newest = run(act())
    raw = canonical(FACT).hex()
    body = f"x'{raw}'" if stores == "sqlite" else f"decode('{raw}', 'hex')"
    named = ", ".join(f"'{FACT[name]}'" for name in ("src", "predicate", "dst", "evidence_ref"))
    for commit in (newest - 1, newest + 1):
        with pytest.raises(REFUSED, match="newest commit"):
            attacker.application(
                "INSERT INTO {edges} (tenant, edge_id, src, predicate, dst, evidence_ref, body, valid_from)"
                f" VALUES ('{TENANT}', 'edge_mine', {named}, {body}, {commit})"
            )
    with pytest.raises(REFUSED, match="append-only"):
        attacker.application(
            f"UPDATE {{edges}} SET valid_to = {newest + 7}, withdrawn_ref = 'artifact:mine#rev_1'"
            f" WHERE tenant = '{TENANT}' AND edge_id = 'edge_true'"
        )


def test_a_request_is_not_answered_with_the_run_of_another_one(stores: str, attacker: Attacker, tmp_path: Path) -> None:
    """The application role says first that a request was made, and its sender reads that it is paid."""
    asked = request(700, "req_2")

    async def before() -> str:
        async with opened(tmp_path, stores) as world:
            return (await world.invoke(request(900, "req_1"))).run_id

    async def after() -> None:
        async with opened(tmp_path, stores) as world:
            with pytest.raises(Integrity, match="`req_1` made that run"):
                await world.invoke(asked)
            with pytest.raises(Integrity, match="`req_1` made that run"):
                await recorded_request(world.deployment, TENANT, "req_2")

    fingerprint = request_fingerprint(parse(InvokeRequest, canonical(asked)).to_json())
    claim = orjson.dumps({"run_id": run(before()), "fingerprint": fingerprint}).hex()
    literal = f"x'{claim}'" if stores == "sqlite" else f"'\\x{claim}'::bytea"
    attacker.application(
        "INSERT INTO {documents} (tenant, collection, key, version, body)"
        f" VALUES ('{TENANT}', 'requests', 'req_2', 1, {literal})"
    )
    run(after())
