"""Virtual time, and coroutines driven by hand: what an event loop does, but seeded and without one.

A task suspends at `pause`, at `join` and at `die`. Of all tasks that are due one is chosen by chance, so that drives,
approvers and a second process interleave at every port call, in the order that the seed fixes.
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
    """The process that a call ran in died; the caller knows nothing of what became of it."""

    code = "host_down"


@dataclass(slots=True)
class Task:
    """A coroutine on its way. `host` is the process that it lives in; None stands for the world outside."""

    number: int
    name: str
    host: str | None
    drive: TaskCoroutine
    wake_us: int
    waits_for: Task | None = None
    ended: bool = False
    value: Any = None
    fault: Exception | None = None
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a suspended task asks of the scheduler."""

    what: Literal["pause", "join", "die"]
    us: int = 0
    task: Task | None = None


@coroutine
def _ask(order: Suspension) -> Generator[Suspension, None, None]:
    yield order


async def pause(us: int) -> None:
    """Let `us` microseconds of virtual time pass; others run meanwhile."""
    await _ask(Suspension("pause", us=us))


async def join(task: Task) -> Any:
    """What another task returned; raises what it raised, or `HostDown` if its process died."""
    if not task.ended:
        await _ask(Suspension("join", task=task))
    if task.fault is not None:
        raise task.fault
    return task.value


async def join_all(tasks: Sequence[Task]) -> None:
    """Wait until every task has ended; then raise the first fault in the order of `tasks`, if there is one."""
    for task in tasks:
        task.joined = True
    for task in tasks:
        if not task.ended:
            await _ask(Suspension("join", task=task))
    for task in tasks:
        if task.fault is not None:
            raise task.fault


async def die() -> None:
    """The process of this task dies here and now; this never returns."""
    await _ask(Suspension("die"))


def immediately(drive: TaskCoroutine) -> Any:
    """The result of a coroutine that never suspends."""
    try:
        drive.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a coroutine suspended where nothing can resume it")


class Caught:
    """What came of one step. Any failure of the code under test is a finding: it is kept and judged, never lost."""

    def __init__(self) -> None:
        self.order: Suspension | None = None
        self.fault: Exception | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> bool:
        self.fault = fault if isinstance(fault, Exception) else None
        return self.fault is not None


class Scheduler:
    """All tasks, the true time in microseconds, and the digest of everything that happened."""

    def __init__(self, chance: Random, start_us: int, on_death: Callable[[str], None]) -> None:
        self.now_us, self.steps = start_us, 0
        self.tasks: list[Task] = []
        self.strays: list[Task] = []
        self._chance, self._on_death = chance, on_death
        self._digest = hashlib.sha256()
        self._spawned = 0

    @property
    def digest(self) -> str:
        """What two runs of one seed must agree on: every step, and everything that was told by `trace`."""
        return self._digest.hexdigest()

    def trace(self, *told: object) -> None:
        """Make something part of the digest."""
        self._digest.update(repr(told).encode())

    def spawn(self, name: str, drive: TaskCoroutine, *, host: str | None = None, delay_us: int = 0) -> Task:
        """Start a task. What it raises and nobody joins is kept in `strays`."""
        self._spawned += 1
        task = Task(self._spawned, name, host, drive, self.now_us + delay_us)
        self.tasks.append(task)
        return task

    def step(self, *, until_us: int | None = None) -> bool:
        """Let one task run to its next port call. False when none is due by `until_us` (None: ever)."""
        ready = self._ready(until_us)
        if ready is None:
            return False
        task = ready[self._chance.randrange(len(ready))] if len(ready) > 1 else ready[0]
        self.steps += 1
        self._digest.update(b"%d %d %s\n" % (self.now_us, task.number, task.name.encode()))
        task.waits_for = None
        with Caught() as caught:
            caught.order = task.drive.send(None)
        if isinstance(caught.fault, StopIteration):
            self._end(task, caught.fault.value, None)
        elif caught.fault is not None:
            self._end(task, None, caught.fault)
        else:
            assert caught.order is not None, "a task suspends with an order"
            self._obey(task, caught.order)
        return True

    def kill(self, host: str) -> None:
        """Drop every coroutine of a process: its memory is lost and nothing of it runs again."""
        for task in [one for one in self.tasks if one.host == host]:
            task.drive.close()
            self._end(task, None, HostDown(f"`{host}` died"))

    def drop(self, task: Task) -> None:
        """End one task where it stands."""
        task.drive.close()
        self._end(task, None, None)

    def stall(self, host: str, us: int) -> None:
        """A process that stands still: none of its tasks goes on for `us` microseconds."""
        for task in self.tasks:
            if task.host == host and task.waits_for is None:
                task.wake_us = max(task.wake_us, self.now_us + us)

    def close(self) -> None:
        """Drop whatever is left."""
        for task in self.tasks:
            task.drive.close()
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

    def _obey(self, task: Task, order: Suspension) -> None:
        if order.what == "die":
            assert task.host is not None, "the world outside does not die"
            self._on_death(task.host)
        elif order.what == "join":
            task.waits_for = order.task
        else:
            task.wake_us = self.now_us + order.us

    def _end(self, task: Task, value: Any, fault: Exception | None) -> None:
        task.ended, task.value, task.fault = True, value, fault
        self.tasks.remove(task)
        waiting = [one for one in self.tasks if one.waits_for is task]
        for one in waiting:
            one.waits_for, one.wake_us = None, self.now_us
        if fault is not None and not (waiting or task.joined) and not isinstance(fault, HostDown):
            self.strays.append(task)
