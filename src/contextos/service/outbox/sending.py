"""The outbox: sends notices of a tenant's runs to one destination, at least once and in order per run.

There is no table of notices to send. The journal has the events, and a durable subscription has the place up to which
the destination got them. So no notice is lost between the two, and a process that is killed at any point leaves nothing
half done. A destination that does not answer is tried again after growing waits. After `max_attempts` the notice is
given up, which is recorded, and the next notice of its run follows. A question that still waits after `remind_after_s`
is sent once more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.subscriptions import REMINDERS, UNDELIVERED, Reminder, UndeliveredEvent, event_key
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CONTROL, INDEX, Batch, Entry
from contextos.deployment.dead_letters import MAX_DETAIL_CHARS
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.queries.positions import line_at
from contextos.deployment.queries.run_events import RunEvent, event_of_line
from contextos.deployment.queries.run_index import waiting_runs
from contextos.errors import Conflict, ContextOSError, DestinationGone
from contextos.service.outbox.notices import NOTICED, Notice, NoticeType, notice_of
from contextos.service.subscriptions import FIRST_RETRY_US, MAX_RETRY_US, Subscriber

if TYPE_CHECKING:
    from contextos.contracts.ports.storage import Store

Send = Callable[[Notice], Awaitable[None]]
"""Sends one notice once, and returns when the destination has taken it. Raises a `ContextOSError` if it has not."""

OUTBOX: Final = "outbox:"
"""The beginning of the name of an outbox's subscription."""
REMIND_EVERY_US: Final = 10_000_000
"""The time between two searches for questions that wait too long, in microseconds."""
_ReminderRow: TypeAlias = "StoredDocument[Reminder] | None"
_PERSONS: Final = frozenset({"approval", "slot", "settlement"})


@dataclass(slots=True)
class Outbox:
    """The notices of one tenant to one destination. `link` has `{run}` in it. `remind_after_s` 0: no reminders."""

    deployment: Deployment
    tenant_id: str
    destination: str
    types: tuple[NoticeType, ...]
    link: str
    send: Send
    remind_after_s: int
    max_attempts: int
    _subscriber: Subscriber = field(init=False)
    _next_search_us: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._subscriber = Subscriber(
            self.deployment, self.tenant_id, self.name, NOTICED, self._handle, self.max_attempts
        )

    @property
    def name(self) -> str:
        """Return the name of the subscription."""
        return f"{OUTBOX}{self.destination}"

    async def register(self) -> None:
        """Begin after the newest event, or continue where this destination stopped. Raises as `Subscriber.register`."""
        await self._subscriber.register()

    async def deliver(self) -> int:
        """Send the notices that are due, if no other process does. Returns after how many microseconds to call again.

        Raises as `Subscriber.deliver`.
        """
        wait_us = await self._subscriber.deliver()
        now_us = self.deployment.ports.clock.now_us()
        if self.remind_after_s and "question.reminded" in self.types and now_us >= self._next_search_us:
            self._next_search_us = now_us + REMIND_EVERY_US
            async for event, entries, row in self._overdue_questions(now_us):
                await self._remind(event, entries, row)
        return wait_us

    async def release(self) -> None:
        """Let another process deliver at once. Raises `Unavailable`."""
        await self._subscriber.release()

    async def _handle(self, event: RunEvent) -> None:
        line = await line_at(self._store, self.tenant_id, event.cursor)
        run = await read_checked(self._store, self.tenant_id, self.deployment.ports.keys, event.run_id)
        assert line is not None, "an event has a cursor"
        notice = notice_of(self.name, event, run.entries, self.link, upto=read_body(line)["entries"])
        if notice.type in self.types:
            await self.send(notice)

    async def _overdue_questions(self, now_us: int) -> AsyncIterator[tuple[RunEvent, Sequence[Entry], _ReminderRow]]:
        """Yield the questions that were sent and that nobody has answered for too long, each with the run so far and
        the state of its reminder. Questions whose reminder was sent, or has to wait, are left out.
        """
        async for run_entry in waiting_runs(self._store, self.tenant_id, 0):
            waits = [entry for entry in await self._store.lines(INDEX, run_entry.key) if entry.kind == "run.waiting"]
            if not waits or waits[-1].at_us + self.remind_after_s * 1_000_000 > now_us:
                continue
            last_wait = waits[-1]
            row = await REMINDERS.one(self._store, event_key(self.name, last_wait.seq))
            if row is not None and not 0 < row.body.retry_at_us <= now_us:
                continue
            run = await read_checked(self._store, self.tenant_id, self.deployment.ports.keys, run_entry.key)
            waiting = run.view().waiting if run.fault is None else None
            if waiting and waiting["for"] in _PERSONS and self._subscriber.delivered(run_entry.key, last_wait.seq):
                yield event_of_line(last_wait, run), run.entries[: read_body(last_wait)["entries"]], row

    async def _remind(self, event: RunEvent, entries: Sequence[Entry], row: _ReminderRow) -> None:
        """Send a reminder. A reminder that a crash interrupts is sent again."""
        key, now_us = event_key(self.name, event.sequence), self.deployment.ports.clock.now_us()
        failures, fault = row.body.failures if row else 0, ""
        try:
            await self.send(notice_of(self.name, event, entries, self.link, reminder=True))
        except DestinationGone as gone:
            with suppress(Conflict):
                await self._subscriber.end(gone)
            return
        except ContextOSError as error:
            failures, fault = failures + 1, str(error)[:MAX_DETAIL_CHARS]
        version, writes = row.version if row else 0, []
        if not fault or failures >= self.max_attempts:
            state = Reminder(event.run_id, failures, 0)
        else:
            state = Reminder(event.run_id, failures, now_us + min(FIRST_RETRY_US << min(failures, 20), MAX_RETRY_US))
        if fault and not state.retry_at_us:
            undelivered = UndeliveredEvent(event.run_id, event.sequence, "question.reminded", failures, now_us, fault)
            writes.append(UNDELIVERED.write(event_key(self.name, event.sequence, "/reminder"), 0, undelivered))
        try:
            await self._store.commit(Batch(run=CONTROL, writes=(REMINDERS.write(key, version, state), *writes)))
        except Conflict:
            # Another process took over, and has sent it too.
            return

    @property
    def _store(self) -> Store:
        return self.deployment.ports.stores.tenant(self.tenant_id)
