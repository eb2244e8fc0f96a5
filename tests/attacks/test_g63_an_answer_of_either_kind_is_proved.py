"""G63: an answer counts only if its person gave it, also one that denies, and one that does not count is nobody's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.documents.operations import DENIALS, Denial, bound_denial
from contextos.deployment import operator
from contextos.deployment.queries.timeline import story_document, tell_story
from contextos.deployment.why.explaining import explain
from contextos.errors import ApprovalRefused, ChainBroken, Integrity, InvalidInput
from contextos.telemetry.ended_run import ended_parts
from contextos.telemetry.events import run_events
from contextos.telemetry.measurements import run_measurements
from contextos.trust.approvals.assertion import approval_statement, sign_approval
from contextos.trust.approvals.gate_approvals import RunApprovals
from contextos.trust.seal import kid_of
from tests.attacks.attackers import Attacker
from tests.attacks.conftest import DatabaseOwner
from tests.e2e.test_approvals import edge, edge_id, forge
from tests.world import APPROVER, APPROVER_KEY, TENANT, TestWorld, open_world, public_key, request, run

Change = Callable[[dict[str, Any], dict[str, Any]], None]
STRANGER = b"s" * 32


def signed_with(seed: bytes, verdict: str = "denied") -> Change:
    def change(given: dict[str, Any], asked: dict[str, Any]) -> None:
        said = approval_statement(asked, APPROVER, verdict, "test")
        given["assertion"] = {"kind": "jws", "token": sign_approval(seed, kid_of(public_key(seed)), said)}

    return change


FORGED: dict[str, Change] = {
    "three letters": lambda given, asked: given.update(assertion={"kind": "jws", "token": "x.y.z"}),
    "a stranger's key": signed_with(STRANGER),
    "their approval": signed_with(APPROVER_KEY, "approved"),
    "nobody's": lambda given, asked: given.update(assertion={"kind": "unsafe_local"}),
    "an unknown person": lambda given, asked: given.update(approver="user_nobody"),
}


def denied(change: Change) -> Change:
    def both(given: dict[str, Any], asked: dict[str, Any]) -> None:
        given["verdict"] = "denied"
        change(given, asked)

    return both


async def waiting(world: TestWorld) -> str:
    return (await world.invoke(request(4200, "req_1"))).run_id


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_denial_is_void_as_a_forged_approval_is(name: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        run_id = await waiting(world)
        await forge(world, run_id, denied(FORGED[name]))
        await world.deployment.advance(TENANT, run_id)
        view = await world.deployment.view(TENANT, run_id)
        assert view.record is not None
        assert (view.state, view.record["rationale"]["failures"][0]["code"]) == ("escalated", "approval_void")
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await replay(world.deployment, TENANT, run_id)
        world.close()

    run(go())


def test_a_forged_denial_is_found_before_the_run_looks_at_it(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        run_id = await waiting(world)
        await forge(world, run_id, denied(FORGED["three letters"]))
        with pytest.raises(ChainBroken, match=APPROVER):
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())


@pytest.mark.parametrize("name", sorted(set(FORGED) - {"nobody's", "an unknown person"}))
def test_a_run_that_took_a_forged_denial_is_found(
    name: str, stores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a runtime that looks at no signature would leave it."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        run_id = await waiting(world)
        await forge(world, run_id, denied(FORGED[name]))
        with monkeypatch.context() as blind:
            blind.setattr(RunApprovals, "_unproved", staticmethod(lambda *_: None))
            await world.deployment.advance(TENANT, run_id)
            assert (await world.deployment.view(TENANT, run_id)).state == "rejected"
        with pytest.raises(ChainBroken, match=APPROVER):
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        with pytest.raises(ChainBroken, match=APPROVER):
            await replay(world.deployment, TENANT, run_id)
        await world.aclose()

    run(go())


def test_an_honest_denial_counts_also_when_the_run_goes_on_after_the_deadline(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        run_id = await waiting(world)
        await world.answer(run_id, "denied")
        world.clock.at_us += 30 * 86_400_000_000
        await world.deployment.advance(TENANT, run_id)
        assert (await world.deployment.view(TENANT, run_id)).state == "rejected"
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await replay(world.deployment, TENANT, run_id)
        world.close()

    run(go())


async def told(world: TestWorld, run_id: str) -> dict[str, str]:
    """What each reader says of the run, as text."""
    entries = await world.stores.tenant(TENANT).read(run_id)
    runs = world.runs()
    one = await runs.get(TENANT, run_id)
    record = (await world.deployment.view(TENANT, run_id)).record or {}
    *_, log = ended_parts(entries)
    return {
        "record": json.dumps(record["approvals"]),
        "story": json.dumps(story_document(tell_story(entries))),
        "why": repr(explain(entries)),
        "events": repr([dict(one.attributes) for one in run_events(log) if one.name == "contextos.approval.answered"]),
        "measurements": repr([one for one in run_measurements(log) if one.name == "contextos.approval.wait"]),
        "timeline": repr(await runs.timeline(one)),
    }


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_an_answer_that_was_found_void_is_nobodys_for_every_reader(verdict: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        run_id = await waiting(world)
        forged = FORGED["three letters"]
        await forge(world, run_id, forged if verdict == "approved" else denied(forged))
        await world.deployment.advance(TENANT, run_id)
        for reader, whole in (await told(world, run_id)).items():
            said = whole.replace("Who approved", "")
            assert not [one for one in (APPROVER, verdict, "jws", "signed with") if one in said], (reader, said)
            assert [one for one in ("void", "does not count", "did not hold") if one in said], (reader, said)
        world.close()

    run(go())


def test_a_fact_that_another_source_states_alike_voids_the_approval(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        run_id = await waiting(world)
        old = await edge_id(world, "identity_verified")
        alike = edge("identity_verified", "check:idv_cus_77", value=True, retracts=old)
        await world.put_facts([{**alike, "evidence_ref": "artifact:somebody_else#rev_1"}])
        with pytest.raises(ApprovalRefused, match="is void"):
            await world.answer(run_id)
        await forge(world, run_id, lambda given, asked: None)
        await world.deployment.advance(TENANT, run_id)
        view = await world.deployment.view(TENANT, run_id)
        assert view.record is not None
        assert (view.state, view.record["rationale"]["failures"][0]["code"]) == ("escalated", "approval_void")
        assert world.refunds() == []
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await replay(world.deployment, TENANT, run_id)
        await world.aclose()

    run(go())


async def denial_key_of(world: TestWorld, run_id: str) -> str:
    entries = await world.stores.tenant(TENANT).read(run_id)
    (asked,) = [orjson.loads(one.body or b"") for one in entries if one.kind == "approval.asked"]
    return bound_denial(asked["binding"])


async def verified(world: TestWorld) -> None:
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)


def made_up(key: str, run_id: str, stores: str) -> str:
    """The row of a denial, as the application role can insert it."""
    raw = DENIALS.encode(Denial(run_id, APPROVER)).hex()
    body = f"x'{raw}'" if stores == "sqlite" else f"decode('{raw}', 'hex')"
    columns = "(tenant, collection, key, version, body)"
    return f"INSERT INTO {{documents}} {columns} VALUES ('{TENANT}', 'denials', '{key}', 1, {body})"


@pytest.mark.parametrize("gone_on", [True, False])
def test_a_denial_that_nobody_gave_denies_nothing(
    gone_on: bool, stores: str, attacker: Attacker, tmp_path: Path
) -> None:
    """The application role appends an answer that nobody signed, and inserts the row that it would have had."""

    async def before() -> tuple[str, str]:
        world = await open_world(tmp_path, stores=stores)
        run_id = await waiting(world)
        key = await denial_key_of(world, run_id)
        await forge(world, run_id, denied(FORGED["three letters"]))
        if gone_on:
            await world.deployment.advance(TENANT, run_id)
            await verified(world)
        await world.aclose()
        return run_id, key

    async def after() -> None:
        world = await open_world(tmp_path, stores=stores)
        with pytest.raises(ChainBroken, match="the denial `" if gone_on else APPROVER):
            await verified(world)
        again = await world.invoke(request(4200, "req_2"))
        assert again.waiting is not None, "it is asked again"
        assert (await world.approve(again.run_id)).state == "completed"
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        await world.aclose()

    run_id, key = run(before())
    attacker.application(made_up(key, run_id, stores))
    run(after())


def test_a_denial_whose_approver_lost_the_role_before_the_run_went_on_is_no_denial(stores: str, tmp_path: Path) -> None:
    """Its row stays, and the next honest denial takes its place."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        run_id = await waiting(world)
        await world.answer(run_id, "denied")
        kept: list[dict[str, Any]] = []

        def without(tenant: dict[str, Any]) -> None:
            kept.extend(one for one in tenant["approvers"] if one["approver_id"] == APPROVER)
            tenant["approvers"] = [one for one in tenant["approvers"] if one["approver_id"] != APPROVER]

        world.edit_directory(without)
        await world.deployment.advance(TENANT, run_id)
        assert (await world.deployment.view(TENANT, run_id)).state == "escalated"
        await verified(world)
        world.edit_directory(lambda tenant: tenant["approvers"].extend(kept))
        again = await world.invoke(request(4200, "req_2"))
        assert again.waiting is not None, "it is asked again"
        await world.answer(again.run_id, "denied")
        await world.deployment.advance(TENANT, again.run_id)
        await verified(world)
        final = await world.invoke(request(4200, "req_3"))
        assert (final.state, world.refunds()) == ("rejected", [])
        await verified(world)
        await world.aclose()

    run(go())


def test_a_denial_is_final_also_before_its_run_goes_on_and_after_somebody_appended_another_one(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        run_id = await waiting(world)
        await world.answer(run_id, "denied")
        assert (await world.invoke(request(4200, "req_2"))).state == "rejected"
        await forge(world, run_id, denied(FORGED["a stranger's key"]))
        assert (await world.invoke(request(4200, "req_3"))).state == "rejected"
        assert world.refunds() == []
        world.close()

    run(go())


def test_a_denial_whose_run_was_altered_stops_the_call(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        run_id = await waiting(world)
        await world.approve(run_id, "denied")
        await owner.execute(f"UPDATE {{heads}} SET kid = 'x' WHERE tenant = '{TENANT}' AND stream = '{run_id}'")
        with pytest.raises(Integrity, match="nothing is sent"):
            await world.invoke(request(4200, "req_2"))
        assert world.refunds() == []
        await world.aclose()

    run(go())


ERASED = [["approval.answered"], ["approval.asked"], ["approval.asked", "approval.answered"]]


async def erased_denial(world: TestWorld, kinds: list[str]) -> tuple[str, str]:
    run_id = await waiting(world)
    key = await denial_key_of(world, run_id)
    await world.approve(run_id, "denied")
    for kind in kinds:
        entries = await world.stores.tenant(TENANT).read(run_id)
        seq = next(one.seq for one in entries if one.kind == kind)
        await operator.erase_entry(world.deployment, TENANT, run_id, seq, by=world.actor(), reason="law")
    return run_id, key


@pytest.fixture
def erasing(stores: str, request: pytest.FixtureRequest) -> str:
    """The stores for a role that can erase."""
    return str(request.getfixturevalue("database").eraser) if stores != "sqlite" else stores


@pytest.mark.parametrize("kinds", ERASED)
def test_an_erased_denial_verifies_and_is_final(kinds: list[str], erasing: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=erasing)
        await erased_denial(world, kinds)
        await verified(world)
        again = await world.invoke(request(4200, "req_2"))
        assert (again.state, world.refunds()) == ("rejected", [])
        await verified(world)
        await world.aclose()

    run(go())


@pytest.mark.parametrize("kinds", ERASED)
def test_an_erased_denial_proves_no_other_one(
    kinds: list[str], stores: str, erasing: str, attacker: Attacker, tmp_path: Path
) -> None:
    async def before() -> tuple[str, str]:
        world = await open_world(tmp_path, stores=erasing)
        found = await erased_denial(world, kinds)
        await verified(world)
        await world.aclose()
        return found

    async def after() -> None:
        world = await open_world(tmp_path, stores=stores)
        with pytest.raises(ChainBroken, match="the denial `"):
            await verified(world)
        await world.aclose()

    run_id, key = run(before())
    attacker.application(made_up(f"{key}x", run_id, stores))
    run(after())


def test_whatever_is_erased_of_a_run_that_a_person_denied_the_tenant_verifies(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        run_id = await waiting(world)
        await world.approve(run_id, "denied")
        store = world.stores.tenant(TENANT)
        erased = set()
        for entry in await store.read(run_id):
            try:
                await operator.erase_entry(world.deployment, TENANT, run_id, entry.seq, by=world.actor(), reason="law")
            except InvalidInput:
                continue
            erased.add(entry.kind)
            await verified(world)
        assert {"approval.asked", "approval.answered", "run.received"} <= erased
        assert (await world.invoke(request(4200, "req_2"))).state == "rejected"
        world.close()

    run(go())
