"""One seed from the first request to the last record: bad weather, then healing, then judgement."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from contextos.errors import ApprovalRefused, Unavailable
from contextos.operations.deployment import Deployment
from contextos.sim import actors, example, plans
from contextos.sim.end import check_end, check_quiet
from contextos.sim.ports import Host
from contextos.sim.scheduler import immediately
from contextos.sim.world import SimulatedWorld

STORM_US: Final = 7_200_000_000
STORM_STEPS: Final = 6_000
HEAL_STEPS: Final = 60_000
MAX_ROUNDS: Final = 400
RESTLESS: Final = ("engine", "approvers", "operator", "canceller", "meddler", "nudger", "auditor")
"""Who goes home when the weather turns good; what they began goes on."""


def play(world: SimulatedWorld) -> None:
    """Let everything happen; violations are with the world's judge. Stops at the first."""
    with plans.proposed_by(world.scenario.hostile, parallel=world.scenario.parallel_reads):
        _set_out(world)
        storm_until_us = world.scheduler.now_us + STORM_US
        while world.scheduler.steps < STORM_STEPS and not _over(world):
            if not world.scheduler.step(until_us=storm_until_us) or _failed(world):
                break
        if _failed(world):
            return
        _heal(world)
        if not _failed(world):
            check_end(world)


def _set_out(world: SimulatedWorld) -> None:
    spawn = world.scheduler.spawn

    def moved_in(host: Host, deployment: Deployment) -> None:
        spawn("engine", actors.engine_actor(world, host, deployment), host=host.owner)

    world.moved_in = moved_in
    for slot in range(len(world.slots)):
        world.start(slot)
    for asked in world.scenario.asked:
        for _ in range(asked.times):
            spawn("client", actors.client(world, asked), delay_us=asked.at_us)
        if world.chance.random() < 0.1:
            spawn("impostor", actors.impostor(world, asked), delay_us=asked.at_us + 100_000)
    spawn("approvers", actors.approvers(world))
    spawn("operator", actors.operator_actor(world))
    if world.scenario.cancels:
        spawn("canceller", actors.canceller(world))
    if world.chance.random() < 0.2:
        spawn("auditor", actors.auditor(world))
    if world.scenario.nudges:
        spawn("nudger", actors.nudger(world))
    if world.scenario.meddling:
        spawn("meddler", actors.meddler(world))


def _over(world: SimulatedWorld) -> bool:
    """Nothing is left to happen: all clients have an answer, all runs have an end, nobody is on the way."""
    busy = any(task.name in ("client", "invoke", "network", "advance") for task in world.scheduler.tasks)
    return not busy and all(seen.ended for seen in world.judge.runs.values())


def _failed(world: SimulatedWorld) -> bool:
    for task in world.scheduler.strays:
        if isinstance(task.fault, (Unavailable, ApprovalRefused)):
            continue  # promised, and whoever asked is gone
        detail = f"`{task.name}` raised {type(task.fault).__name__}: {task.fault}"
        world.judge.violated("only_promised_errors", detail)
    world.scheduler.strays.clear()
    return bool(world.judge.violations)


def _heal(world: SimulatedWorld) -> None:
    """Faults end. Whoever is on the way arrives; then everything due is driven until all is quiet, again and again."""
    world.faults.on = False
    for task in [one for one in world.scheduler.tasks if one.name in RESTLESS]:
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
            if world.scheduler.steps - before > HEAL_STEPS:
                detail = f"{HEAL_STEPS} steps after the faults ended something still runs"
                return world.judge.violated("comes_to_rest", detail)
        if not _drive_what_is_due(world) and not _settle(world) and not _sleep(world):
            return None
    return world.judge.violated("comes_to_rest", f"still not quiet after {MAX_ROUNDS} rounds")


def _drive_what_is_due(world: SimulatedWorld) -> bool:
    due = immediately(_all_due(world, world.scheduler.now_us))
    host, deployment = world.up()[0]
    for tenant_id, run_id in due:
        world.scheduler.spawn("advance", actors.drive_once(deployment, tenant_id, run_id), host=host.owner)
    return bool(due)


def _settle(world: SimulatedWorld) -> bool:
    """Nothing is due: each run has an end or waits legally. Then whatever waits for an operator is settled."""
    check_quiet(world)
    waiting = [seen.run_id for seen in world.judge.runs.values() if seen.unsettled and seen.state == "waiting"]
    for run_id in waiting:
        world.scheduler.spawn("operator", actors.settle_uncertain(world, run_id))
    return bool(waiting)


def _sleep(world: SimulatedWorld) -> bool:
    """Let time pass to the next run that is to be woken; False when none ever is."""
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
