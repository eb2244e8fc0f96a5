"""A seeded scheduler over virtual time, in place of an event loop.

A task suspends at `pause`, `join` and `die`. The next task is drawn from all that are due, so drives, approvers and
other processes interleave at every port call, in an order that the seed fixes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from random import Random
from types import coroutine
from typing import Any, Literal

from contextos.errors import ContextOSError

TaskCoroutine = Coroutine[Any, Any, Any]


class HostDown(ContextOSError):
    """The simulated process in which a call ran has died; the outcome of the call is unknown."""

    code = "host_down"


@dataclass(slots=True)
class Task:
    """A scheduled coroutine. `host` is the process that it runs in, or None for an actor outside all processes."""

    number: int
    name: str
    host: str | None
    coro: TaskCoroutine
    wake_us: int
    waits_for: Task | None = None
    ended: bool = False
    value: Any = None
    fault: Exception | None = None
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a suspended task asks the scheduler to do: pause, wait for another task, or end its process."""

    what: Literal["pause", "join", "die"]
    us: int = 0
    task: Task | None = None


@coroutine
def _suspend(suspension: Suspension) -> Generator[Suspension, None, None]:
    yield suspension


async def pause(us: int) -> None:
    """Suspend for `us` microseconds of virtual time."""
    await _suspend(Suspension("pause", us=us))


async def join(task: Task) -> Any:
    """Return the result of another task. Raises what the task raised, or `HostDown` if its process died."""
    if not task.ended:
        await _suspend(Suspension("join", task=task))
    if task.fault is not None:
        raise task.fault
    return task.value


async def join_all(tasks: Sequence[Task]) -> None:
    """Wait until every task has ended, then raise the first failure in the order of `tasks`, if any."""
    for task in tasks:
        task.joined = True
    for task in tasks:
        if not task.ended:
            await _suspend(Suspension("join", task=task))
    for task in tasks:
        if task.fault is not None:
            raise task.fault


async def die() -> None:
    """Kill the process of this task. Never returns."""
    await _suspend(Suspension("die"))


def immediately(coro: TaskCoroutine) -> Any:
    """Return the result of a coroutine that never suspends."""
    try:
        coro.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a coroutine suspended where nothing can resume it")


class StepResult:
    """The result of one step of a task: what it asks the scheduler to do, or the exception that it raised."""

    def __init__(self) -> None:
        self.suspension: Suspension | None = None
        self.fault: Exception | None = None

    def __enter__(self) -> StepResult:
        return self

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> bool:
        self.fault = fault if isinstance(fault, Exception) else None
        return self.fault is not None


class Scheduler:
    """All tasks of the simulation, the true time in Unix µs, and a digest of every step."""

    def __init__(self, rng: Random, start_us: int, on_death: Callable[[str], None]) -> None:
        self.now_us, self.steps = start_us, 0
        self.tasks: list[Task] = []
        self.unjoined_failures: list[Task] = []
        self._rng, self._on_death = rng, on_death
        self._digest = hashlib.sha256()
        self._spawned = 0

    @property
    def digest(self) -> str:
        """Return the digest of every step and every `trace` call so far. Two runs of one seed have the same digest."""
        return self._digest.hexdigest()

    def trace(self, *values: object) -> None:
        """Add values to the digest, so that two runs of one seed that differ in them can be distinguished."""
        self._digest.update(repr(values).encode())

    def spawn(self, name: str, coro: TaskCoroutine, *, host: str | None = None, delay_us: int = 0) -> Task:
        """Start a task. A failed task that no other task joins is added to `unjoined_failures`."""
        self._spawned += 1
        task = Task(self._spawned, name, host, coro, self.now_us + delay_us)
        self.tasks.append(task)
        return task

    def step(self, *, until_us: int | None = None) -> bool:
        """Run one due task to its next suspension. Returns False if none is due by `until_us` (Unix µs; None: at any
        time).
        """
        ready = self._ready(until_us)
        if ready is None:
            return False
        task = ready[self._rng.randrange(len(ready))] if len(ready) > 1 else ready[0]
        self.steps += 1
        self._digest.update(b"%d %d %s\n" % (self.now_us, task.number, task.name.encode()))
        task.waits_for = None
        with StepResult() as result:
            result.suspension = task.coro.send(None)
        if isinstance(result.fault, StopIteration):
            self._end(task, result.fault.value, None)
        elif result.fault is not None:
            self._end(task, None, result.fault)
        else:
            assert result.suspension is not None, "a task yields a Suspension"
            self._apply(task, result.suspension)
        return True

    def kill(self, host: str) -> None:
        """End every task of a process with `HostDown`."""
        for task in [one for one in self.tasks if one.host == host]:
            task.coro.close()
            self._end(task, None, HostDown(f"`{host}` died"))

    def drop(self, task: Task) -> None:
        """End one task where it is suspended; its process goes on."""
        task.coro.close()
        self._end(task, None, None)

    def stall(self, host: str, us: int) -> None:
        """Delay every task of a process by `us` microseconds."""
        for task in self.tasks:
            if task.host == host and task.waits_for is None:
                task.wake_us = max(task.wake_us, self.now_us + us)

    def close(self) -> None:
        """Close every remaining coroutine."""
        for task in self.tasks:
            task.coro.close()
        self.tasks.clear()

    def _ready(self, until_us: int | None) -> list[Task] | None:
        waiting = [task for task in self.tasks if task.waits_for is None]
        if not waiting:
            return None
        first_us = min(task.wake_us for task in waiting)
        if until_us is not None and max(first_us, self.now_us) > until_us:
            return None
        self.now_us = max(self.now_us, first_us)
        return [task for task in waiting if task.wake_us <= self.now_us]

    def _apply(self, task: Task, suspension: Suspension) -> None:
        if suspension.what == "die":
            assert task.host is not None, "only a task of a process can die"
            self._on_death(task.host)
        elif suspension.what == "join":
            task.waits_for = suspension.task
        else:
            task.wake_us = self.now_us + suspension.us

    def _end(self, task: Task, value: Any, fault: Exception | None) -> None:
        task.ended, task.value, task.fault = True, value, fault
        self.tasks.remove(task)
        waiting = [one for one in self.tasks if one.waits_for is task]
        for one in waiting:
            one.waits_for, one.wake_us = None, self.now_us
        if fault is not None and not (waiting or task.joined) and not isinstance(fault, HostDown):
            self.unjoined_failures.append(task)
