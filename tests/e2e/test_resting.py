"""A run that waits for a person keeps its loop. That saves work and decides nothing: in any doubt it is derived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos import audit, deployment
from contextos.contracts.journal import Batch
from contextos.errors import ChainBroken, Unavailable
from contextos.resting import MAX_RESTING, RestingLoops
from contextos.store.memory import MemoryStore
from contextos.trust.chain import append, verify_chain
from tests.world import TENANT, TestWorld, open_world, request, run


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The run of every loop that was begun: one that goes on from its rest does not stand here a second time."""
    begun: list[str] = []
    loop = deployment.invoke_agent

    def counted(given: Any, mark: str, world: Any) -> Any:
        begun.append(world.journal.run_id)
        return loop(given, mark, world)

    monkeypatch.setattr(deployment, "invoke_agent", counted)
    return begun


def forget(world: TestWorld) -> None:
    """What a restart does to the loops that are kept."""
    world.deployment._resting = RestingLoops()


@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_a_kept_loop_and_a_derived_one_leave_the_same_journal(tmp_path: Path, derived: list[str], stores: str) -> None:
    world = run(open_world(tmp_path, stores=stores))
    kinds = []
    for number, keep in enumerate((True, False)):
        view = run(world.invoke(request(4200 + number, f"req_rest_{number}")))
        assert view.state == "waiting"
        if not keep:
            forget(world)
        # On an event loop of its own, as an operator's thread would drive it.
        view = run(world.approve(view.run_id))
        assert view.state == "completed"
        assert derived.count(view.run_id) == (1 if keep else 2)
        kinds.append(run(world.kinds(view.run_id)))
        derived_again = run(audit.replay(world.deployment, TENANT, view.run_id))
        assert derived_again.record_hash == view.record["record_hash"]
    assert kinds[0] == kinds[1]
    assert "run.resumed" in kinds[0]
    assert [one["amount_inr"] for one in world.refunds()] == [4200, 4201]
    world.close()


def test_what_was_changed_in_the_store_meanwhile_is_found_and_nothing_moves(tmp_path: Path, derived: list[str]) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_tampered")))
    run(world.answer(view.run_id))
    store = world.stores.tenant(TENANT)
    assert isinstance(store, MemoryStore)
    stream = store._kept.streams[view.run_id]
    place = next(at for at, entry in enumerate(stream) if entry.kind == "approval.asked")
    stream[place] = stream[place]._replace(body=(stream[place].body or b"").replace(b"4200", b"2400"))
    with pytest.raises(ChainBroken):
        run(world.deployment.advance(TENANT, view.run_id))
    assert world.refunds() == []


@pytest.mark.requirement("J-HEAD-FIRST")
def test_a_removed_head_is_missed_although_the_loop_was_kept(tmp_path: Path, derived: list[str]) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_beheaded")))
    run(world.answer(view.run_id))
    world.stores.tenant(TENANT)._kept.signed[view.run_id].clear()
    with pytest.raises(ChainBroken, match="no signed head"):
        run(world.deployment.advance(TENANT, view.run_id))
    assert world.refunds() == []


@pytest.mark.requirement("J-HEAD-FIRST")
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", ["evidence.rechecked", "tool.returned", "run.resumed"])
def test_words_put_into_the_loops_mouth_stand_under_no_head_and_stop_the_run(
    tmp_path: Path, kept: bool, kind: str
) -> None:
    """Whoever writes the store can continue a chain so that it fits; only the runtime's key signs a head over it."""
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_words")))
    run(world.answer(view.run_id))
    store = world.stores.tenant(TENANT)
    entries = list(run(store.read(view.run_id)))
    forged = append(entries, kind, "x", by="runtime", answer={"outcome": "returned"}, at_us=0, salt=bytes(16))
    run(store.commit(Batch(run=view.run_id, entries=(forged,))))
    verify_chain(TENANT, view.run_id, [*entries, forged])
    if not kept:
        forget(world)
    with pytest.raises(ChainBroken, match="no signed head") as broken:
        run(world.deployment.advance(TENANT, view.run_id))
    assert broken.value.seq == forged.seq
    assert world.refunds() == []


def test_a_deployment_that_is_another_now_derives_the_run_again(tmp_path: Path, derived: list[str]) -> None:
    world = run(open_world(tmp_path, unsafe=("unsafe_local_approvals",)))
    view = run(world.invoke(request(4200, "req_moved")))
    world.deployment.unsafe = ()
    view = run(world.approve(view.run_id))
    assert view.state == "completed"
    assert derived == [view.run_id] * 2


def test_a_deadline_that_passes_at_rest_ends_the_run_from_where_it_rests(tmp_path: Path, derived: list[str]) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_late")))
    run(world.deployment.advance(TENANT, view.run_id))  # too early: it looks, and rests again
    world.clock.at_us = view.waiting["deadline_us"] + 1_000_000
    run(world.deployment.advance(TENANT, view.run_id))
    view = run(world.deployment.view(TENANT, view.run_id))
    assert (view.state, derived) == ("escalated", [view.run_id])
    assert run(audit.replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
    assert world.refunds() == []


def test_a_loop_that_failed_after_its_rest_is_derived_and_pays_once(
    tmp_path: Path, derived: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(request(4200, "req_failing")))
    run(world.answer(view.run_id))
    commit, left = MemoryStore.commit, [1]

    async def failing(self: MemoryStore, batch: Batch) -> None:
        if batch.run == view.run_id and left and left.pop():
            raise Unavailable("store", "the disk is full")
        await commit(self, batch)

    monkeypatch.setattr(MemoryStore, "commit", failing)
    with pytest.raises(Unavailable):
        run(world.deployment.advance(TENANT, view.run_id))
    run(world.deployment.advance(TENANT, view.run_id))
    assert derived == [view.run_id] * 2
    assert [one["amount_inr"] for one in world.refunds()] == [4200]


def test_no_more_than_so_many_loops_are_kept() -> None:
    loops, resting = RestingLoops(), object()
    for number in range(MAX_RESTING + 5):
        loops.keep((TENANT, f"run_{number}"), resting)  # type: ignore[arg-type]
    kept = [number for number in range(MAX_RESTING + 5) if loops.take((TENANT, f"run_{number}")) is resting]
    assert kept == list(range(5, MAX_RESTING + 5))
