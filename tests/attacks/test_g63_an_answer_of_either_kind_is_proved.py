"""G63: an answer counts only if its person gave it, also one that denies, and one that does not count is nobody's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.errors import ApprovalRefused, ChainBroken
from contextos.queries.timeline import story_document, tell_story
from contextos.queries.why.explaining import explain
from contextos.telemetry.ended_run import ended_run
from contextos.telemetry.events import run_events
from contextos.telemetry.measurements import run_measurements
from contextos.trust.approvals.assertion import approval_statement, sign_approval
from contextos.trust.approvals.gate_approvals import RunApprovals
from contextos.trust.seal import kid_of
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
    log = ended_run(entries)
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
