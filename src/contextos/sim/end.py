"""What must hold when nothing moves any more: nobody is lost, every record tells the truth, every run replays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.documents.operations import APPROVALS, OPERATIONS
from contextos.contracts.journal import INDEX
from contextos.errors import ContextOSError
from contextos.sim import example
from contextos.sim.scheduler import immediately

if TYPE_CHECKING:
    from contextos.sim.invariants import RunObservation
    from contextos.sim.world import SimulatedWorld

STATUS: Final = {
    "completed": "DECIDED",
    "rejected": "REJECTED",
    "refused": "REJECTED",
    "cancelled": "REJECTED",
    "escalated": "ESCALATED",
    "exhausted": "ESCALATED",
}


def check_quiet(world: SimulatedWorld) -> None:
    """Nothing is due now: each run has ended, or waits for something that can still come."""
    store = world.stores.tenant(example.EXAMPLE_TENANT)
    later = {run for _, run in immediately(_due(world))}
    for seen in world.judge.runs.values():
        if seen.ended or (seen.unsettled and seen.state == "waiting") or seen.run_id in later:
            continue
        world.judge.violated("nobody_is_lost", f"`{seen.run_id}` is `{seen.state}`, and nothing will ever wake it")
    for seen in world.judge.runs.values():
        if seen.open_question and not seen.ended:
            found = immediately(APPROVALS.one(store, seen.open_question))
            state = found.body.state if found else "missing"
            if state != "open":
                detail = f"`{seen.run_id}` waits for `{seen.open_question}`, which is {state}"
                world.judge.violated("question_is_open", detail)


def check_end(world: SimulatedWorld) -> None:
    """Everything that was due was driven, settled or let pass: now every run has an end, and it is the right one."""
    _verify_everything(world)
    for seen in world.judge.runs.values():
        if not seen.ended:
            world.judge.violated("every_run_ends", f"`{seen.run_id}` is still `{seen.state}`")
            continue
        _has_its_checkpoints(world, seen)
        _record_is_true(world, seen)
        _replays(world, seen)
    _acts_are_true(world)
    for run_id, record_hash in world.ended_as.items():
        if world.judge.runs[run_id].record.get("record_hash") != record_hash:
            detail = f"the record of `{run_id}` is not what its client was given"
            world.judge.violated("acknowledged_is_durable", detail)
    for run_id in world.answers.values():
        if run_id not in world.judge.runs:
            world.judge.violated("acknowledged_is_durable", f"`{run_id}` was answered and is not there")


def _verify_everything(world: SimulatedWorld) -> None:
    """Streams, signed heads and the index, by the auditor's own check; and what the judge saw is still there."""
    store = world.stores.tenant(example.EXAMPLE_TENANT)
    try:
        immediately(verify_tenant(store, example.EXAMPLE_TENANT, example.keys()))
    except ContextOSError as error:
        world.judge.violated("journal_verifies", str(error))
    named = {orjson.loads(line.body or b"{}").get("run") for line in immediately(store.read(INDEX))}
    for seen in world.judge.runs.values():
        entries = immediately(store.read(seen.run_id))
        if (len(entries), entries[-1].hash if entries else "") != (seen.count, seen.head):
            detail = f"`{seen.run_id}` has {len(entries)} entries of {seen.count}"
            world.judge.violated("acknowledged_is_durable", detail)
        if seen.run_id not in named:
            world.judge.violated("index_names_every_run", f"`{seen.run_id}` is not in the index")


def _has_its_checkpoints(world: SimulatedWorld, seen: RunObservation) -> None:
    """A session has one for each verdict of the Critic; other runs have none."""
    verdicts = seen.kinds["plan.verified"] + seen.kinds["run.scored"] if seen.deadline_us is not None else 0
    if seen.kinds["session.checkpointed"] != verdicts:
        detail = f"`{seen.run_id}` has {seen.kinds['session.checkpointed']} checkpoints for {verdicts} verdicts"
        world.judge.violated("verdicts_are_checkpointed", detail)


def _record_is_true(world: SimulatedWorld, seen: RunObservation) -> None:
    """DECIDED: exactly one effect of the act. Anything else: this run paid nothing, unless its journal shows it."""
    record, mine = seen.record, [one for one in world.shop.effects if one.run_id == seen.run_id]
    if (record.get("status"), record.get("end")) != (STATUS[seen.state], seen.state):
        detail = f"`{seen.run_id}` ended as `{seen.state}`, its record says {record.get('status')}"
        world.judge.violated("record_has_the_status", detail)
    if seen.state == "completed":
        asked = seen.request["input"]["context"]
        args = {"order_id": asked["order_id"], "amount_inr": asked["refund_amount"], "currency": asked["currency"]}
        act = world.judge.act_of(seen.run_id, args)
        paid = [one for one in world.shop.effects if world.judge.act_of(one.run_id, one.args) == act]
        if len(paid) != 1:
            detail = f"`{seen.run_id}` is DECIDED and `{act}` was paid {len(paid)} times"
            world.judge.violated("decided_means_done", detail)
        elif record["outputs"].get("transaction_id") not in (paid[0].output["transaction_id"], None):
            world.judge.violated("decided_means_done", f"`{seen.run_id}` names another transaction than was paid")
    elif mine and not seen.garbled:
        detail = f"`{seen.run_id}` ended as `{seen.state}` and paid {mine[0].output}"
        world.judge.violated("not_decided_means_not_done", detail)


def _replays(world: SimulatedWorld, seen: RunObservation) -> None:
    try:
        done = immediately(replay(world.admin, example.EXAMPLE_TENANT, seen.run_id))
    except ContextOSError as error:
        return world.judge.violated("every_run_replays", f"`{seen.run_id}`: {error}")
    if done.record_hash != seen.record.get("record_hash"):
        world.judge.violated("every_run_replays", f"`{seen.run_id}` replays to another record")
    return None


def _acts_are_true(world: SimulatedWorld) -> None:
    """The idempotency table says of each act what the payments service says."""
    for document in immediately(OPERATIONS.page(world.stores.tenant(example.EXAMPLE_TENANT))):
        state, key = document.body.state, document.key.rsplit("/", 1)[1]
        done = world.shop.by_key(key) is not None
        if state not in ("completed", "released", "unusable"):
            world.judge.violated("acts_are_settled", f"`{document.key}` is left `{state}`")
        elif done != (state != "released"):
            detail = f"`{document.key}` is `{state}`, and it {'was' if done else 'was not'} paid"
            world.judge.violated("acts_are_true", detail)


async def _due(world: SimulatedWorld) -> list[tuple[str, str]]:
    far_us = world.scheduler.now_us + 1_000 * example.gate_timeout_us()
    return [run async for run in world.stores.due(far_us)]
