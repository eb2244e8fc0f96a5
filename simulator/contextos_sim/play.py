"""One seed from the first request to the last record: a phase with faults, then recovery, then the final checks."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from contextos.contracts.documents.operations import OperationDocument
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, Integrity, Unavailable
from contextos_sim import example, plans
from contextos_sim.actors import callers, people
from contextos_sim.actors.intruder import intruder
from contextos_sim.checks.end import check_end, check_quiet
from contextos_sim.ports import Host
from contextos_sim.scheduler import immediately
from contextos_sim.world import SimulatedWorld

FAULT_PHASE_US: Final = 7_200_000_000
FAULT_PHASE_STEPS: Final = 6_000
RECOVERY_STEPS: Final = 60_000
MAX_ROUNDS: Final = 400
FAULT_PHASE_TASKS: Final = (
    "engine",
    "approvers",
    "operator",
    "canceller",
    "input changer",
    "redundant driver",
    "auditor",
)
"""Names of the tasks that stop when the faults end. The calls that they started go on."""


def play(world: SimulatedWorld) -> None:
    """Run the world to its end or to the first violation. Violations are in `world.checker`."""
    with plans.proposed_by(world.scenario.hostile, parallel=world.scenario.parallel_reads):
        _spawn_actors(world)
        faults_until_us = world.scheduler.now_us + FAULT_PHASE_US
        while world.scheduler.steps < FAULT_PHASE_STEPS and not _finished(world):
            if not world.scheduler.step(until_us=faults_until_us) or _failed(world):
                break
        if _failed(world):
            return
        _recover(world)
        if not _failed(world):
            check_end(world)


def _spawn_actors(world: SimulatedWorld) -> None:
    spawn = world.scheduler.spawn

    def on_start(host: Host, deployment: Deployment) -> None:
        spawn("engine", people.engine_actor(world, host, deployment), host=host.owner)

    def on_made(key: str, operation: OperationDocument) -> None:
        spawn("intruder", intruder(world, key, operation))

    world.on_start = on_start
    world.on_made = on_made
    for slot in range(len(world.slots)):
        world.start(slot)
    for planned in world.scenario.requests:
        client = callers.agent if world.scenario.by_agent else callers.client
        for _ in range(planned.times):
            spawn("client", client(world, planned), delay_us=planned.at_us)
        if world.rng.random() < 0.1:
            spawn("conflicting client", callers.conflicting_client(world, planned), delay_us=planned.at_us + 100_000)
    spawn("approvers", people.approvers(world))
    spawn("operator", people.operator_actor(world))
    if world.scenario.cancels:
        spawn("canceller", people.canceller(world))
    if world.rng.random() < 0.2:
        spawn("auditor", people.auditor(world))
    if world.scenario.drives_redundantly:
        spawn("redundant driver", people.redundant_driver(world))
    if world.scenario.policy and world.scenario.policy.at_us:
        spawn("policy activator", _activate_policy(world), delay_us=world.scenario.policy.at_us)
    if world.scenario.inputs_change:
        spawn("input changer", people.input_changer(world))


async def _activate_policy(world: SimulatedWorld) -> None:
    """Simulate an administrator who puts the tenant's policy in force while runs go on."""
    world.activate_policy()
    world.exercised["policies activated in mid-run"] += 1


def _finished(world: SimulatedWorld) -> bool:
    """Return whether every client has an answer, every run has ended and no call is in progress."""
    busy = any(task.name in ("client", "invoke", "network", "advance") for task in world.scheduler.tasks)
    return not busy and all(run.ended for run in world.checker.runs.values())


def _failed(world: SimulatedWorld) -> bool:
    for task in world.scheduler.unjoined_failures:
        if isinstance(task.fault, (Unavailable, ApprovalRefused)):
            continue  # documented errors, and the caller has stopped waiting
        if world.intruded and isinstance(task.fault, Integrity):
            continue
        detail = f"`{task.name}` raised {type(task.fault).__name__}: {task.fault}"
        world.checker.violated("only_promised_errors", detail)
    world.scheduler.unjoined_failures.clear()
    return bool(world.checker.violations)


def _recover(world: SimulatedWorld) -> None:
    """End the faults. Let calls in progress finish, then drive due runs in rounds until none is left."""
    world.faults.on = False
    for task in [one for one in world.scheduler.tasks if one.name in FAULT_PHASE_TASKS]:
        world.scheduler.drop(task)
    for host in world.hosts.values():
        host.lag_us = 0
    while not world.up():
        world.scheduler.step()
    before = world.scheduler.steps
    for _ in range(MAX_ROUNDS):
        while world.scheduler.step():
            if _failed(world):
                return
            if world.scheduler.steps - before > RECOVERY_STEPS:
                detail = f"{RECOVERY_STEPS} steps after the faults ended, some task still runs"
                return world.checker.violated("comes_to_rest", detail)
        if not _drive_due_runs(world) and not _settle(world) and not _advance_clock(world):
            return None
    return world.checker.violated("comes_to_rest", f"still not quiet after {MAX_ROUNDS} rounds")


def _drive_due_runs(world: SimulatedWorld) -> bool:
    due = immediately(_all_due(world, world.scheduler.now_us))
    host, deployment = world.up()[0]
    for tenant_id, run_id in due:
        world.scheduler.spawn("advance", people.drive_once(deployment, tenant_id, run_id), host=host.owner)
    return bool(due)


def _settle(world: SimulatedWorld) -> bool:
    """Check the quiet world, then settle the runs that wait for an operator. False if there are none."""
    check_quiet(world)
    waiting = [run.run_id for run in world.checker.runs.values() if run.unsettled and run.state == "waiting"]
    for run_id in waiting:
        world.scheduler.spawn("operator", people.settle_uncertain(world, run_id))
    return bool(waiting)


def _advance_clock(world: SimulatedWorld) -> bool:
    """Advance the clock to the next wake time of a run. False if there is none."""
    far_us = world.scheduler.now_us + 10 * example.gate_timeout_us()
    due = immediately(_all_due(world, far_us))
    if not due:
        return False
    step_us = 1_000
    while not immediately(_all_due(world, world.scheduler.now_us + step_us)):
        step_us *= 2
    world.scheduler.now_us += step_us
    return True


def _all_due(world: SimulatedWorld, before_us: int) -> Coroutine[Any, Any, list[tuple[str, str]]]:
    async def listed() -> list[tuple[str, str]]:
        return [run async for run in world.stores.due(before_us)]

    return listed()


__all__ = ["play"]
