"""A `long_running` run is received, driven by an engine, checkpointed, bounded in time, and lost by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos import audit
from contextos.engine.local import LocalEngine
from tests.world import TENANT, TestWorld, open_world, request, run


def long(amount: int, request_id: str, **hints: Any) -> dict[str, Any]:
    body = request(amount, request_id)
    body["mode"] = "long_running"
    body["runtime"] = {**body["runtime"], **hints}
    return body


def engine(world: TestWorld) -> LocalEngine:
    return LocalEngine(world.deployment.advance, world.stores, world.clock, beat=world.deployment.beat)


async def driven_by_an_engine(world: TestWorld) -> None:
    """One engine finds what is due, as a process that just started does."""
    driver = engine(world)
    await driver.start()
    await driver.idle()
    await driver.stop()
    assert not driver.failures


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
    assert run(audit.replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]
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
    signed = {head[0] for head in run(world.stores.tenant(TENANT).signed_heads(view.run_id))}
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
    assert run(audit.replay(world.deployment, TENANT, view.run_id)).record_hash == done.record["record_hash"]
