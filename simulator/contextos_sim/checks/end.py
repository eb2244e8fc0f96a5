"""Checks at the end of a simulation: no run is stuck, each record matches the payments, and each run replays."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from contextos.audit.replay import replay
from contextos.audit.verify import verify_facts, verify_tenant
from contextos.contracts.documents.operations import APPROVALS, OPERATIONS
from contextos.contracts.journal import INDEX
from contextos.errors import ContextOSError
from contextos_sim import example
from contextos_sim.checks.alterations import ALTERATIONS
from contextos_sim.checks.sums import altered_sum
from contextos_sim.memory.stores import MemoryStores
from contextos_sim.scheduler import immediately

if TYPE_CHECKING:
    from contextos_sim.invariants import RunObservation
    from contextos_sim.world import SimulatedWorld

STATUS: Final = {
    "completed": "DECIDED",
    "rejected": "REJECTED",
    "refused": "REJECTED",
    "cancelled": "REJECTED",
    "escalated": "ESCALATED",
    "exhausted": "ESCALATED",
}


def check_quiet(world: SimulatedWorld) -> None:
    """Check, while no run is due, that each run has ended or waits for something that can still come."""
    store = world.stores.tenant(example.EXAMPLE_TENANT)
    later = {run for _, run in immediately(_due(world))}
    for run in world.checker.runs.values():
        if run.ended or (run.unsettled and run.state == "waiting") or run.run_id in later:
            continue
        world.checker.violated("nobody_is_lost", f"`{run.run_id}` is `{run.state}`, and nothing will ever wake it")
    for run in world.checker.runs.values():
        if run.state == "waiting":
            world.checker.check_needs_somebody(run)
    for run in world.checker.runs.values():
        if run.open_question and not run.ended:
            found = immediately(APPROVALS.one(store, run.open_question))
            state = found.body.state if found else "missing"
            if state != "open":
                detail = f"`{run.run_id}` waits for `{run.open_question}`, which is {state}"
                world.checker.violated("question_is_open", detail)


def check_end(world: SimulatedWorld) -> None:
    """Check, once every due run was driven, that each run has ended with the right result."""
    _check_journal(world)
    _check_alterations(world)
    for run in world.checker.runs.values():
        if not run.ended:
            world.checker.violated("every_run_ends", f"`{run.run_id}` is still `{run.state}`")
            continue
        _check_checkpoints(world, run)
        _check_record(world, run)
        _check_models(world, run)
        _check_replay(world, run)
    _check_idempotency_table(world)
    for run_id, record_hash in world.ended_as.items():
        if world.checker.runs[run_id].record.get("record_hash") != record_hash:
            detail = f"the record of `{run_id}` is not what its client was given"
            world.checker.violated("acknowledged_is_durable", detail)
    for run_id in world.answers.values():
        if run_id not in world.checker.runs:
            world.checker.violated("acknowledged_is_durable", f"`{run_id}` was answered and is not there")


def _check_journal(world: SimulatedWorld) -> None:
    """Verify streams, signed heads and index as the auditor does. Nothing that the checker saw is missing."""
    store = world.stores.tenant(example.EXAMPLE_TENANT)
    try:
        immediately(verify_tenant(store, example.EXAMPLE_TENANT, example.keys()))
        immediately(verify_facts(world.stores.graph(example.EXAMPLE_TENANT), store, example.keys()))
    except ContextOSError as error:
        world.checker.violated("journal_verifies", str(error))
    indexed = {orjson.loads(line.body or b"{}").get("run") for line in immediately(store.read(INDEX))}
    for run in world.checker.runs.values():
        entries = immediately(store.read(run.run_id))
        if (len(entries), entries[-1].hash if entries else "") != (run.count, run.head):
            detail = f"`{run.run_id}` has {len(entries)} entries of {run.count}"
            world.checker.violated("acknowledged_is_durable", detail)
        if run.run_id not in indexed:
            world.checker.violated("index_names_every_run", f"`{run.run_id}` is not in the index")


def _check_alterations(world: SimulatedWorld) -> None:
    """Alter a run in two of the ways that need no key. The auditor must find each."""
    rng, store = Random(f"alterations {world.seed}"), world.stores.tenant(example.EXAMPLE_TENANT)
    runs = sorted(world.checker.runs)
    for name in rng.sample(sorted(ALTERATIONS), 2) if runs else ():
        altered = ALTERATIONS[name](rng, store, rng.choice(runs))
        if altered is None:
            continue
        world.exercised[f"altered: {name}"] += 1
        try:
            immediately(verify_tenant(altered, example.EXAMPLE_TENANT, example.keys()))
        except ContextOSError:
            continue
        world.checker.violated("verify_passes_nothing_altered", f"the auditor did not find: {name}")
    world.exercised["altered: sum"] += 1
    empty = MemoryStores().tenant(example.EXAMPLE_TENANT)
    if (said := altered_sum(rng, empty, example.EXAMPLE_TENANT, example.keys())) is not None:
        world.checker.violated("sum_is_proved", f"effects of which one was set to 0 add up to {said}")


def _check_checkpoints(world: SimulatedWorld, run: RunObservation) -> None:
    """A background session has one checkpoint for each verdict of the Critic; other runs have none."""
    background = run.request["mode"] == "long_running"
    verdicts = run.kinds["plan.verified"] + run.kinds["run.scored"] if background else 0
    if run.kinds["session.checkpointed"] != verdicts:
        detail = f"`{run.run_id}` has {run.kinds['session.checkpointed']} checkpoints for {verdicts} verdicts"
        world.checker.violated("verdicts_are_checkpointed", detail)


def _check_record(world: SimulatedWorld, run: RunObservation) -> None:
    """DECIDED means exactly one effect. Any other status means none, unless the journal shows the effect."""
    record, own_effects = run.record, [one for one in world.shop.effects if one.run_id == run.run_id]
    if (record.get("status"), record.get("end")) != (STATUS[run.state], run.state):
        detail = f"`{run.run_id}` ended as `{run.state}`, its record says {record.get('status')}"
        world.checker.violated("record_has_the_status", detail)
    if record.get("outcome") == "denied" and own_effects:
        detail = f"`{run.run_id}` ended as `{run.state}`, which denies, and paid {own_effects[0].output}"
        world.checker.violated("outcome_agrees_with_effects", detail)
    if run.state == "completed" and run.cost_cents > run.max_cost_cents:
        detail = f"`{run.run_id}` is DECIDED and cost {run.cost_cents} cents, its limit is {run.max_cost_cents}"
        world.checker.violated("budget_after_a_call", detail)
    if run.state == "completed":
        requested = run.request["input"]["context"]
        args = {
            "order_id": requested["order_id"],
            "amount_inr": requested["refund_amount"],
            "currency": requested["currency"],
        }
        identity = world.checker.effect_identity(run.run_id, args)
        paid = [one for one in world.shop.effects if world.checker.effect_identity(one.run_id, one.args) == identity]
        if len(paid) != 1:
            detail = f"`{run.run_id}` is DECIDED and `{identity}` was paid {len(paid)} times"
            world.checker.violated("decided_means_done", detail)
        elif record["outputs"].get("transaction_id") not in (paid[0].output["transaction_id"], None):
            world.checker.violated("decided_means_done", f"`{run.run_id}` names another transaction than was paid")
    elif (
        own_effects
        and not run.garbled
        and not (
            # A budget that a call used up ends the run after the effect of that call, which is on record. So does a
            # session that is stopped, or that nobody finishes, after its last call, and a run whose models were dear.
            (run.state == "exhausted" or world.scenario.by_agent or world.scenario.by_model)
            and {one.tool_call_id for one in own_effects} <= _effects_on_record(record)
        )
    ):
        detail = f"`{run.run_id}` ended as `{run.state}` and paid {own_effects[0].output}"
        world.checker.violated("not_decided_means_not_done", detail)


def _check_models(world: SimulatedWorld, run: RunObservation) -> None:
    """Each call of a model was settled, and the record states what all calls cost."""
    if open_asks := run.asks.keys() - run.models.keys():
        world.checker.violated("nothing_stays_reserved", f"`{run.run_id}` ended, and {sorted(open_asks)} are open")
    stated = round(run.record.get("budget_usage", {}).get("cost_usd_cents", 0) * 10_000)
    of_models = sum(one["cost_units"] for one in run.models.values())
    # What a person settled has no cost of its own.
    if run.asks and not of_models <= stated <= run.units:
        detail = f"the record of `{run.run_id}` states {stated} units, and its calls cost {run.units}"
        world.checker.violated("record_states_the_cost", detail)


def _effects_on_record(record: Mapping[str, Any]) -> set[str]:
    """Return the ids of the calls whose effect the record says has happened."""
    return {one["tool_call_id"] for one in record["effects"] if one["state"] == "happened"}


def _check_replay(world: SimulatedWorld, run: RunObservation) -> None:
    try:
        done = immediately(replay(world.admin, example.EXAMPLE_TENANT, run.run_id))
    except ContextOSError as error:
        return world.checker.violated("every_run_replays", f"`{run.run_id}`: {error}")
    if done.record_hash != run.record.get("record_hash"):
        world.checker.violated("every_run_replays", f"`{run.run_id}` replays to another record")
    return None


def _check_idempotency_table(world: SimulatedWorld) -> None:
    """The idempotency table agrees with the payments service about each effect."""
    for document in immediately(OPERATIONS.page(world.stores.tenant(example.EXAMPLE_TENANT))):
        state, key = document.body.state, document.key.rsplit("/", 1)[1]
        done = world.shop.by_key(key) is not None
        if state not in ("completed", "released", "unusable"):
            world.checker.violated("acts_are_settled", f"`{document.key}` is left `{state}`")
        elif done != (state != "released"):
            detail = f"`{document.key}` is `{state}`, and it {'was' if done else 'was not'} paid"
            world.checker.violated("acts_are_true", detail)


async def _due(world: SimulatedWorld) -> list[tuple[str, str]]:
    far_us = world.scheduler.now_us + 1_000 * example.gate_timeout_us()
    return [run async for run in world.stores.due(far_us)]
