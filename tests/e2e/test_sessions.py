"""A `long_running` run is received, driven by an engine, checkpointed, bounded in time, and lost by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.replay import replay
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Batch
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.deployment import Deployment, due_runs
from contextos.deployment.operator import SettlementInput
from contextos.errors import ApprovalRefused, LostReply, Unavailable
from contextos.runtime.environment import RunLimits
from contextos.trust.seal import seal
from contextos.workspace.engine.local import LocalEngine
from contextos_sim.memory.stores import MemoryStore
from tests.e2e.test_interrupted_callers import ENOUGH, Faults, watched
from tests.world import OPERATOR, TENANT, TestWorld, example, open_world, request, run


def long(amount: int, request_id: str, **hints: Any) -> dict[str, Any]:
    body = request(amount, request_id)
    body["mode"] = "long_running"
    body["runtime"] = {**body["runtime"], **hints}
    return body


def engine(world: TestWorld) -> LocalEngine:
    return LocalEngine(world.deployment.advance, world.stores, world.clock, heartbeat=world.deployment.send_heartbeats)


async def driven_by_an_engine(world: TestWorld) -> None:
    """One engine finds what is due, as a process that just started does."""
    driver = engine(world)
    await driver.start()
    await driver.idle()
    await driver.stop()
    assert not driver.failures


@contextmanager
def losing_the_reply(world: TestWorld, after_us: int = 0) -> Iterator[None]:
    """The payment happens, and nobody hears of it for a while, or ever."""
    adapter: Any = world.adapters["adp_payments"]
    with pytest.MonkeyPatch.context() as patch:
        call = type(adapter).call

        async def lost(self: Any, capability: str, args: Any, context: Any) -> Any:
            reply = await call(self, capability, args, context)
            if capability == "issue_refund":
                world.clock.at_us += after_us
                raise LostReply("adp_payments", "the line is dead")
            return reply

        patch.setattr(type(adapter), "call", lost)
        yield


async def stopped_after(world: TestWorld, run_id: str, kind: str) -> None:
    """Drive until an entry of this kind is durable, and stop there as a process that dies does."""
    commit = MemoryStore.commit

    async def dying(self: MemoryStore, batch: Batch) -> None:
        await commit(self, batch)
        if any(entry.kind == kind for entry in batch.entries):
            raise Unavailable("process", "it died here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "commit", dying)
        await world.deployment.advance(TENANT, run_id)


def bodies(world: TestWorld, run_id: str, kind: str) -> list[dict[str, Any]]:
    entries = run(world.stores.tenant(TENANT).read(run_id))
    return [orjson.loads(entry.body) for entry in entries if entry.kind == kind]


@pytest.mark.requirement("R-MODES")
@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_a_long_running_request_is_received_and_an_engine_drives_it(tmp_path: Path, stores: str) -> None:
    world = run(open_world(tmp_path, stores=stores))
    view = run(world.invoke(long(900, "req_long")))
    again = run(world.invoke(long(900, "req_long")))
    assert (again.run_id, view.state, view.waiting) == (view.run_id, "received", {"for": "engine"})
    assert again.waiting == {"for": "engine"}
    assert run(world.kinds(view.run_id)) == ["run.received"]
    assert world.refunds() == []
    run(driven_by_an_engine(world))
    done = run(world.invoke(long(900, "req_long")))
    assert done.state == "completed"
    assert len(world.refunds()) == 1
    assert run(replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]
    world.close()


@pytest.mark.requirement("R-CHECKPOINT")
def test_every_verdict_of_the_critic_is_followed_by_a_durable_checkpoint(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(4200, "req_points")))
    run(driven_by_an_engine(world))
    waiting = run(world.deployment.view(TENANT, view.run_id))
    assert waiting.waiting["for"] == "approval"
    done = run(world.approve(view.run_id))
    assert done.state == "completed"
    entries = run(world.stores.tenant(TENANT).read(view.run_id))
    kinds = [entry.kind for entry in entries]
    verdicts = [at for at, kind in enumerate(kinds) if kind in ("plan.verified", "run.scored")]
    points = [at for at, kind in enumerate(kinds) if kind == "session.checkpointed"]
    assert points == [at + 1 for at in verdicts]
    signed = {head[0] for head in run(world.stores.tenant(TENANT).read_run(view.run_id)).heads}
    assert {entries[at].seq for at in points} <= signed, "each is a barrier"
    first, last = bodies(world, view.run_id, "session.checkpointed")
    assert (first["checkpoint"], first["verdict"], first["steps_done"]) == (1, "ok", [])
    assert (last["checkpoint"], last["verdict"], last["after"]) == (2, "accept", "run.scored")
    assert last["steps_done"] == ["s1", "s2", "s3"]
    assert last["pack_ref"] == "ctxpack.support@5.2.0"
    assert (first["run_id"], first["head"]) == (view.run_id, entries[verdicts[0]].hash)


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_a_session_that_waits_for_a_person_ends_at_its_deadline_and_dispatches_nothing_more(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(4200, "req_over", max_session_duration_ms=600_000)))
    began_us = run(world.stores.tenant(TENANT).read(view.run_id))[0].at_us
    run(driven_by_an_engine(world))
    waiting = run(world.deployment.view(TENANT, view.run_id))
    assert waiting.waiting["deadline_us"] == began_us + 600_000_000, "an answer counts while the session lasts"
    world.clock.at_us = began_us + 600_000_000
    run(driven_by_an_engine(world))
    done = run(world.deployment.view(TENANT, view.run_id))
    assert (done.state, done.record["status"]) == ("exhausted", "ESCALATED")
    assert [one["code"] for one in done.record["rationale"]["failures"]] == ["budget_exhausted"]
    last = bodies(world, view.run_id, "session.checkpointed")[-1]
    assert (last["verdict"], last["steps_done"]) == ("escalate", ["s1", "s2"])
    assert world.refunds() == []
    assert run(replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_session_whose_time_ran_out_while_nobody_drove_it_sends_nothing(tmp_path: Path, begun: bool) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(4200, "req_late")))
    if begun:
        with pytest.raises(Unavailable):
            run(stopped_after(world, view.run_id, "session.checkpointed"))
    world.clock.at_us += 14_400_000_001
    run(driven_by_an_engine(world))
    done = run(world.deployment.view(TENANT, view.run_id))
    assert done.state == "exhausted"
    assert not {"tool.dispatching", "approval.asked"} & set(run(world.kinds(view.run_id)))
    assert [one["verdict"] for one in bodies(world, view.run_id, "session.checkpointed")] == ["ok", "escalate"]


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_nobody_is_asked_once_a_read_took_all_the_time_that_a_session_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = run(open_world(tmp_path))
    adapter: Any = world.adapters["adp_policy"]
    call = type(adapter).call

    async def slow(self: Any, capability: str, args: Any, context: Any) -> Any:
        world.clock.at_us += 25_000_000 if self is adapter else 0
        return await call(self, capability, args, context)

    monkeypatch.setattr(type(adapter), "call", slow)
    view = run(world.invoke(long(4200, "req_slow_read", max_session_duration_ms=20_000)))
    run(driven_by_an_engine(world))
    done = run(world.deployment.view(TENANT, view.run_id))
    assert done.state == "exhausted"
    kinds = run(world.kinds(view.run_id))
    assert "tool.returned" in kinds
    assert "approval.asked" not in kinds


@pytest.mark.requirement("R-LIMITS-LOWEST")
@pytest.mark.parametrize(
    ("hint", "pack", "deployment", "lowest"),
    [
        (None, None, 14_400_000, 14_400_000),
        (500_000, None, 600_000, 500_000),
        (900_000, None, 600_000, 600_000),
        (900_000, 300_000, 600_000, 300_000),
        (900_000, 950_000, 14_400_000, 900_000),
    ],
)
def test_the_lowest_limit_of_a_session_counts_and_no_hint_raises_it(
    tmp_path: Path, hint: int | None, pack: int | None, deployment: int, lowest: int
) -> None:
    def state(body: dict[str, Any]) -> None:
        if pack:
            body["pack_meta"]["max_session_duration_ms"] = pack

    world = run(open_world(tmp_path, pack=state, limits=RunLimits(max_session_duration_ms=deployment)))
    asked = long(900, "req_lowest")
    asked["runtime"] |= {"max_session_duration_ms": hint} if hint else {}
    view = run(world.invoke(asked))
    began_us = run(world.stores.tenant(TENANT).read(view.run_id))[0].at_us
    run(driven_by_an_engine(world))
    for point in bodies(world, view.run_id, "session.checkpointed"):
        assert point["deadline_us"] == began_us + lowest * 1_000


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_an_answer_after_the_session_is_over_does_not_count(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(4200, "req_tardy", max_session_duration_ms=600_000)))
    run(driven_by_an_engine(world))
    world.clock.at_us += 600_000_000
    with pytest.raises(ApprovalRefused) as refused:
        run(world.answer(view.run_id))
    assert refused.value.reason == "expired"


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_an_approval_that_came_in_time_is_not_used_after_the_session_is_over(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(4200, "req_brink", max_session_duration_ms=600_000)))
    run(driven_by_an_engine(world))
    run(world.answer(view.run_id))
    world.clock.at_us += 600_000_000
    run(driven_by_an_engine(world))
    done = run(world.deployment.view(TENANT, view.run_id))
    assert done.state == "exhausted"
    assert [one["code"] for one in done.record["rationale"]["failures"]] == ["budget_exhausted"]
    assert world.refunds() == []


@pytest.mark.requirement("R-SESSION-LIMIT")
@pytest.mark.parametrize("down", ["the adapter of the evidence", "the directory"])
def test_a_session_with_an_answer_ends_at_its_deadline_although_a_port_to_recheck_is_down(
    tmp_path: Path, down: str
) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(4200, "req_down", max_session_duration_ms=600_000)))
    run(driven_by_an_engine(world))
    run(world.answer(view.run_id))

    async def away(*_: Any) -> Any:
        raise Unavailable(down, "it is away")

    owner, name = (
        (type(world.deployment.ports.directory), "resolve")
        if down == "the directory"
        else (type(world.adapters["adp_policy"]), "call")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, away)
        world.clock.at_us += 600_000_000
        run(world.deployment.advance(TENANT, view.run_id))
    done = run(world.deployment.view(TENANT, view.run_id))
    assert done.state == "exhausted"
    assert [one["code"] for one in done.record["rationale"]["failures"]] == ["budget_exhausted"]
    assert world.refunds() == []
    assert "evidence.rechecked" not in run(world.kinds(view.run_id))
    assert run(replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_a_session_that_waits_for_the_act_of_another_run_ends_at_its_deadline(tmp_path: Path) -> None:
    world = run(open_world(tmp_path, payments="none"))
    with losing_the_reply(world):
        first = run(world.invoke(request(900, "req_first")))
    assert first.waiting["for"] == "settlement"
    view = run(world.invoke(long(900, "req_second", max_session_duration_ms=600_000)))
    advance = run(world.deployment.advance(TENANT, view.run_id))
    assert advance.wake_at_us, "it looks again later"
    world.clock.at_us += 590_000_000
    advance = run(world.deployment.advance(TENANT, view.run_id))
    began_us = run(world.stores.tenant(TENANT).read(view.run_id))[0].at_us
    assert advance.wake_at_us == began_us + 600_000_000, "and at its deadline at the latest"
    world.clock.at_us += 10_000_000
    run(world.deployment.advance(TENANT, view.run_id))
    done = run(world.deployment.view(TENANT, view.run_id))
    assert done.state == "exhausted"
    assert "another run is doing the operation" in done.record["rationale"]["failures"][0]["detail"]
    assert run(replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]
    assert len(world.refunds()) == 1, "the other run's, which nobody has settled yet"


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_a_session_with_an_uncertain_effect_waits_past_its_deadline_and_sends_nothing_more(tmp_path: Path) -> None:
    world = run(open_world(tmp_path, payments="none"))
    view = run(world.invoke(long(900, "req_unknown", max_session_duration_ms=600_000)))
    with losing_the_reply(world):
        run(driven_by_an_engine(world))
    world.clock.at_us += 700_000_000
    run(world.deployment.advance(TENANT, view.run_id))
    assert run(world.deployment.view(TENANT, view.run_id)).waiting["for"] == "settlement"
    settlement = SettlementInput(happened=False, by=OPERATOR, evidence_ref="kg:order:ord_881#snapshot_kg_1")
    done = run(world.settle(view.run_id, settlement))
    assert done.state == "escalated"
    kinds = run(world.kinds(view.run_id))
    assert "tool.dispatching" not in kinds[kinds.index("effect.settled") :]


@pytest.mark.requirement("R-SESSION-LIMIT")
def test_an_effect_whose_reply_was_lost_is_not_sent_again_once_the_session_is_over(tmp_path: Path) -> None:
    """It has a key and could be; but a retry is a dispatch, and nobody allowed one so late."""
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(900, "req_lost", max_session_duration_ms=5_000)))
    with losing_the_reply(world, after_us=5_000_000):
        run(driven_by_an_engine(world))
    assert run(world.deployment.view(TENANT, view.run_id)).waiting["for"] == "settlement"
    sent_all = bodies(world, view.run_id, "tool.dispatching")
    (sent,) = (body for body in sent_all if body["envelope"].get("idempotency_key"))
    began_us = run(world.stores.tenant(TENANT).read(view.run_id))[0].at_us
    assert sent["not_after_us"] == began_us + 5_000_000, "its timeout is longer"
    assert len(world.refunds()) == 1


@pytest.mark.requirement("R-CHECKPOINT")
def test_a_call_that_was_dispatched_and_never_sent_is_not_sent_once_the_session_is_over(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(900, "req_1", max_session_duration_ms=600_000)))
    commit = MemoryStore.commit

    async def dying(store: MemoryStore, batch: Batch) -> None:
        await commit(store, batch)
        if any(one.kind == "tool.dispatching" and b"issue_refund" in (one.body or b"") for one in batch.entries):
            raise Unavailable("process", "it died before it sent")

    with pytest.MonkeyPatch.context() as dies:
        dies.setattr(MemoryStore, "commit", dying)
        with pytest.raises(Unavailable):
            run(world.deployment.advance(TENANT, view.run_id))
    assert world.refunds() == []
    world.clock.at_us += 3_600_000_000
    run(world.deployment.advance(TENANT, view.run_id))
    view = run(world.deployment.view(TENANT, view.run_id))
    assert view.waiting is not None
    assert view.waiting["for"] == "settlement", "nobody here can know that it was never sent"
    assert world.refunds() == []


def test_a_session_resumes_under_the_pack_and_snapshot_that_it_pinned(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    view = run(world.invoke(long(900, "req_pinned")))
    with pytest.raises(Unavailable):
        run(stopped_after(world, view.run_id, "session.checkpointed"))
    (point,) = bodies(world, view.run_id, "session.checkpointed")
    newer = example("pack.json")
    newer["pack_meta"]["pack_version"] = "5.2.1"
    run(world.publish(seal(PACK_TYPE, canonical(newer), world.keys, "pack")))
    node = {**example("graph.json")["nodes"][0], "ceid": "customer:cus_new"}
    moved = run(world.put_facts([], [node]))
    world.clock.at_us += 180_000_000
    run(driven_by_an_engine(world))
    done = run(world.deployment.view(TENANT, view.run_id))
    assert done.state == "completed"
    lineage = done.record["lineage"]
    assert (lineage["pack_version"], lineage["snapshot_version"]) == (point["pack_ref"], point["snapshot"])
    assert (point["pack_ref"], point["snapshot"]) != ("ctxpack.support@5.2.1", f"kg_{moved}")
    assert run(world.kinds(view.run_id)).count("run.pinned") == 1
    last = bodies(world, view.run_id, "session.checkpointed")[-1]
    assert (last["pack_ref"], last["snapshot"]) == (point["pack_ref"], point["snapshot"])


@pytest.mark.requirement("R-MODES")
@pytest.mark.parametrize("mode", ["stream", "batch", "long_running"])
def test_a_run_whose_process_died_at_any_boundary_is_driven_on_by_the_sweep_of_another(
    tmp_path: Path, mode: str
) -> None:
    """Nothing durable is lost and no caller has to ask again, also if the driver dies."""

    async def scenario(path: Path, at: int) -> tuple[Faults, str | None]:
        faults = Faults(at, asyncio.CancelledError)
        world = await watched(path, faults)
        try:
            view = await world.invoke(request(900, "req_died") | {"mode": mode})
            for _ in range(2):
                await world.deployment.advance(TENANT, view.run_id)
                world.clock.at_us += 1_000_000
        except asyncio.CancelledError:
            pass
        ports = replace(world.deployment.ports, owner="successor", alive=lambda owner: owner == "successor")
        successor = Deployment(ports=ports, config=world.deployment.config)
        for _ in range(2):
            sweeping = LocalEngine(successor.advance, world.stores, world.clock, orphans=lambda: due_runs(successor))
            await sweeping.start()
            await sweeping.idle()
            await sweeping.stop()
            # The payments were down at first, and the run waits before it asks them again.
            world.clock.at_us += 1_000_000
        index = await world.stores.tenant(TENANT).read("index")
        if not index:
            assert world.refunds() == []
            return faults, None
        view = await successor.view(TENANT, index[0].key)
        assert len(world.refunds()) == 1
        assert (await replay(successor, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        return faults, view.state

    ends: list[str | None] = []
    for at in range(ENOUGH):
        (tmp_path / str(at)).mkdir()
        faults, end = run(scenario(tmp_path / str(at), at))
        ends.append(end)
        if faults.raised is None:
            break
    durable = ends.index("completed")
    assert ends == [*[None] * durable, *["completed"] * (len(ends) - durable)]
    assert len(ends) - durable > 6, "it died at every boundary after the first that was durable, and once at none"
    if mode == "long_running":
        assert durable == 1, "its receipt is the first thing that it does"
