"""Subscriptions to what happens to runs: each event reaches a named subscriber at least once, in order per run.

The cursor of a subscriber is a document in the store, and it moves after the handler has returned. So an event whose
handler was interrupted by a crash is delivered again, by this process or by another one. A handler that fails is tried
again after growing waits; only the later events of the same run wait for it. A subscriber that does not answer
(`Unavailable`, `LostReply`) is asked every few seconds whether it is back, and then gets all waiting events at once. A
subscriber that is gone (`DestinationGone`) is never called again. A subscriber with `max_attempts` gives an event up
after that many failures: the event becomes an `UndeliveredEvent`, and the later events of its run follow. If several
processes share a name, one delivers at a time. It holds a lease in the same document, and each move of the cursor is a
compare-and-set on that document.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.subscriptions import (
    SUBSCRIPTIONS,
    UNDELIVERED,
    HeldRun,
    Subscription,
    UndeliveredEvent,
    event_key,
)
from contextos.contracts.facts import nearest_name
from contextos.contracts.journal import CONTROL, INDEX, Batch, Entry, Write
from contextos.contracts.ports.storage import Store
from contextos.deployment.dead_letters import MAX_DETAIL_CHARS
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.queries.positions import cursor_of, line_at, newest_cursor, number_of
from contextos.deployment.queries.run_events import RUN_EVENTS, RunEvent, RunEventName, event_of_line, read_events
from contextos.errors import (
    Conflict,
    DestinationGone,
    Integrity,
    InvalidInput,
    LostReply,
    NotFound,
    Problem,
    Unavailable,
)
from contextos.service.runs import EVENT_POLL_US
from contextos.trust.journal.chain import verify_chain

Handler = Callable[[RunEvent], Awaitable[None]]

HANDLER_TIMEOUT_MS: Final = 30_000
"""A handler that takes longer (in milliseconds) is cancelled and counts as failed."""
LEASE_US: Final = 60_000_000
"""How long other processes wait for a delivering process after its last sign of life, in microseconds."""
FIRST_RETRY_US: Final = 1_000_000
MAX_RETRY_US: Final = 300_000_000
PROBE_US: Final = 2_000_000
"""The time between two probes of a subscriber that does not answer, in microseconds. A probe is not an attempt."""
MAX_HELD_RUNS: Final = 1000
"""The most runs of one subscriber that can wait for another try. Above it, new events wait until a try succeeds."""
_MAX_NAME_CHARS: Final = 128


@dataclass(slots=True)
class Subscriber:
    """One handler under a name. `register` comes first; then `deliver` is called again and again, one at a time.

    `max_attempts`: how often an event is tried before it is given up; 0: it is never given up.
    """

    deployment: Deployment
    tenant_id: str
    name: str
    events: tuple[RunEventName, ...]
    handler: Handler
    max_attempts: int = 0
    _stored: StoredDocument[Subscription] | None = None
    _is_away: bool = True
    _is_back: bool = False
    _probe_at_us: int = 0

    def __post_init__(self) -> None:
        _refuse_bad_subscriber(self.name, self.events, self.handler)

    async def register(self) -> None:
        """Store the subscription, which begins behind the newest event. A stored subscription continues at its cursor.

        Raises:
            InvalidInput: the name is used for other events.
            NotFound: the directory has no such tenant. Nothing is stored for it.
        """
        if not await self.deployment.ports.directory.knows_tenant(self.tenant_id):
            detail = (
                f"the directory has no tenant `{str(self.tenant_id)[:64]}`, so nothing happens in it; check its name"
            )
            raise NotFound(detail)
        store = self.deployment.ports.stores.tenant(self.tenant_id)
        row = await SUBSCRIPTIONS.one(store, self.name)
        if row is None:
            subscription = Subscription(self.events, await newest_cursor(store), "", 0)
            try:
                await store.commit(Batch(run=CONTROL, writes=(SUBSCRIPTIONS.write(self.name, 0, subscription),)))
                return
            except Conflict:
                row = await SUBSCRIPTIONS.one(store, self.name)
        if row is not None and set(row.body.events) != set(self.events):
            detail = f"`{self.name}` subscribes to {', '.join(row.body.events)}"
            raise InvalidInput(Problem("/name", "other_events", detail, "use another name for other events"))

    async def deliver(self) -> int:
        """Deliver the events that are due, if no other process does. Returns after how many microseconds to call again.

        Raises:
            Integrity: the index does not have the line up to which this subscription was delivered.
            ChainBroken: an entry of the index that was read is missing, moved or changed.
            Unavailable: the store does not answer; call again.
        """
        try:
            if not await self._take_lease() or self._body.ended:
                return EVENT_POLL_US
            await self._retry_held()
            while await self._deliver_page():
                await self._retry_held()
        except Conflict:
            # Another process took over; it delivers what is left.
            self._stored = None
        return EVENT_POLL_US

    def delivered(self, run_id: str, sequence: int) -> bool:
        """Return whether this process delivers, the subscription has not ended, and the event of the run with this
        number was delivered or given up.
        """
        if self._stored is None:
            return False
        body = self._stored.body
        return not body.ended and sequence <= number_of(body.cursor) and all(held.run != run_id for held in body.held)

    async def end(self, fault: DestinationGone, *others: Write) -> None:
        """End the subscription, so that no process delivers any more. Raises `Conflict` if another process delivers."""
        await self._write(replace(self._body, ended=str(fault)[:MAX_DETAIL_CHARS]), *others)

    async def release(self) -> None:
        """Release the lease, so that another process can deliver at once. Raises `Unavailable`: then the lease
        expires.
        """
        while self._stored is not None:
            try:
                await self._store_body(replace(self._stored.body, owner="", until_us=0))
                self._stored = None
            except Conflict:
                # A delivery that was cancelled during a write does not know whether the write was stored.
                self._stored = await SUBSCRIPTIONS.one(self._store, self.name)
                if self._stored is not None and self._stored.body.owner != self.deployment.ports.owner:
                    self._stored = None

    async def _take_lease(self) -> bool:
        """Take the lease, or renew it in the second half of its time. False while another process holds it."""
        ports = self.deployment.ports
        now_us = ports.clock.now_us()
        if self._stored is None:
            row = await SUBSCRIPTIONS.one(ports.stores.tenant(self.tenant_id), self.name)
            assert row is not None, "a subscriber is registered before it delivers"
            if row.body.owner != ports.owner and row.body.until_us > now_us and ports.alive(row.body.owner):
                return False
            self._stored = row
        if self._stored.body.owner != ports.owner or self._stored.body.until_us - now_us < LEASE_US // 2:
            await self._write(self._stored.body)
        return True

    async def _deliver_page(self) -> bool:
        """Deliver the next page of events. Returns whether it had events and none of them stopped the delivery."""
        events, last = await read_events(
            self._store, self.tenant_id, self.deployment.ports.keys, await self._last_delivered()
        )
        held_ids = {held_run.run for held_run in self._body.held}
        for event in events:
            if event.event not in self.events or event.run_id in held_ids:
                continue
            if len(held_ids) >= MAX_HELD_RUNS:
                return False
            fault = await self._handler_fault(event)
            body, give_up = replace(self._body, cursor=event.cursor), self._give_up_writes(event, fault, 1)
            if isinstance(fault, DestinationGone):
                await self.end(fault, *give_up)
                return False
            if fault is not None and not give_up:
                body = replace(body, held=(*body.held, self._held_run(event.run_id, event.sequence, 1)))
                held_ids.add(event.run_id)
            await self._write(body, *give_up)
        if last is not None and number_of(self._body.cursor) < last.seq:
            await self._write(replace(self._body, cursor=cursor_of(last)))
        return bool(events)

    async def _last_delivered(self) -> Entry | None:
        """Return the line of the index up to which every event is delivered or held; None at the start of the index."""
        try:
            return await line_at(self._store, self.tenant_id, self._body.cursor)
        except InvalidInput:
            detail = f"the index has no line `{self._body.cursor}`, up to which `{self.name}` was delivered"
            raise Integrity(f"{detail}; verify the tenant, and subscribe under another name") from None

    async def _retry_held(self) -> None:
        """Deliver the events of held runs whose time has come, each run in order until an event fails. A subscriber
        that is back gets the events of all held runs.
        """
        now_us = self.deployment.ports.clock.now_us()
        if self._is_away and self._body.held and now_us >= self._probe_at_us:
            self._probe_at_us = now_us + PROBE_US
            await self._retry(self._body.held[0], counted=self._body.held[0].retry_at_us <= now_us)
        is_back, self._is_back = self._is_back, False
        for held in self._body.held:
            if (is_back or held.retry_at_us <= now_us) and not self._body.ended:
                await self._retry(held, counted=held.retry_at_us <= now_us)

    async def _retry(self, held: HeldRun, *, counted: bool = True) -> None:
        last_seq = number_of(self._body.cursor)
        entries = [entry for entry in await self._store.lines(INDEX, held.run) if held.seq <= entry.seq <= last_seq]
        for entry in entries:
            verify_chain(self.tenant_id, INDEX, [entry], after=entry._replace(seq=entry.seq - 1, hash=entry.prev_hash))
        run = await read_checked(self._store, self.tenant_id, self.deployment.ports.keys, held.run)
        failures = held.failures
        for entry in entries:
            event = event_of_line(entry, run)
            if event.event not in self.events:
                continue
            fault = await self._handler_fault(event)
            give_up = self._give_up_writes(event, fault, failures + 1)
            if isinstance(fault, DestinationGone):
                await self.end(fault, *give_up)
                return
            if fault is not None and not counted:
                return
            if fault is not None and not give_up:
                await self._write(self._with_held(self._held_run(held.run, entry.seq, failures + 1)))
                return
            failures = 0
            await self._write(self._with_held(HeldRun(held.run, entry.seq + 1, 0, 0)), *give_up)
        await self._write(replace(self._body, held=tuple(other for other in self._body.held if other.run != held.run)))

    async def _handler_fault(self, event: RunEvent) -> Exception | None:
        """Call the handler. Returns why it failed, took too long, or must not be called; None if it did not fail."""
        ports = self.deployment.ports
        attempt = _Attempt()
        with attempt:
            if event.fault is not None:
                raise Integrity(event.fault)
            await ports.concurrency.within(HANDLER_TIMEOUT_MS, lambda: self.handler(event))
        self._is_back |= self._is_away and attempt.fault is None
        self._is_away = isinstance(attempt.fault, Unavailable | LostReply)
        if attempt.fault is not None:
            fields = {"tenant": self.tenant_id, "run": event.run_id, "subscriber": self.name}
            with _Attempt():
                ports.report_fault(attempt.fault, fields)
        return attempt.fault

    def _give_up_writes(self, event: RunEvent, fault: Exception | None, failures: int) -> tuple[Write, ...]:
        """Return the write that records that an event is given up; an empty tuple if it is not given up."""
        is_lost = isinstance(fault, DestinationGone) or 0 < self.max_attempts <= failures
        if fault is None or not is_lost:
            return ()
        detail = (str(fault) or type(fault).__name__)[:MAX_DETAIL_CHARS]
        at_us = self.deployment.ports.clock.now_us()
        undelivered = UndeliveredEvent(event.run_id, event.sequence, event.event, failures, at_us, detail)
        return (UNDELIVERED.write(event_key(self.name, event.sequence), 0, undelivered),)

    def _held_run(self, run_id: str, seq: int, failures: int) -> HeldRun:
        wait_us = min(FIRST_RETRY_US << min(failures - 1, 20), MAX_RETRY_US)
        return HeldRun(run_id, seq, failures, self.deployment.ports.clock.now_us() + wait_us)

    def _with_held(self, held: HeldRun) -> Subscription:
        return replace(self._body, held=tuple(held if other.run == held.run else other for other in self._body.held))

    async def _write(self, body: Subscription, *others: Write) -> None:
        """Store how far this subscription is, and renew the lease. Raises `Conflict` if another process has it."""
        ports = self.deployment.ports
        await self._store_body(replace(body, owner=ports.owner, until_us=ports.clock.now_us() + LEASE_US), *others)

    async def _store_body(self, body: Subscription, *others: Write) -> None:
        assert self._stored is not None, "only the process with the lease writes"
        write = SUBSCRIPTIONS.write(self.name, self._stored.version, body)
        await self._store.commit(Batch(run=CONTROL, writes=(write, *others)))
        self._stored = StoredDocument(self.name, self._stored.version + 1, body)

    @property
    def _body(self) -> Subscription:
        assert self._stored is not None, "only the process with the lease delivers"
        return self._stored.body

    @property
    def _store(self) -> Store:
        return self.deployment.ports.stores.tenant(self.tenant_id)


class _Attempt(AbstractContextManager[None]):
    """Keeps the exception that foreign code raised. A cancellation by this process is not caught."""

    def __init__(self) -> None:
        self.fault: Exception | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.fault = error if isinstance(error, Exception) else None
        return self.fault is not None


def _refuse_bad_subscriber(name: str, events: Sequence[str], handler: object) -> None:
    problems = [
        Problem(
            "/event",
            "unknown_event",
            f"`{str(event)[:40]}` is not an event of a run",
            f"did you mean `{close}`?" if (close := nearest_name(str(event), RUN_EVENTS)) else ", ".join(RUN_EVENTS),
        )
        for event in events
        if event not in RUN_EVENTS
    ]
    if not events:
        problems.append(Problem("/event", "missing", "no event is named", f"name some of {', '.join(RUN_EVENTS)}"))
    if not name or len(name) > _MAX_NAME_CHARS or not name.isprintable():
        detail = f"a subscriber has a printable name of 1 to {_MAX_NAME_CHARS} characters"
        problems.append(Problem("/name", "invalid_name", detail, "name what it does, and keep the name"))
    if not inspect.iscoroutinefunction(handler):
        problems.append(Problem("/handler", "not_async", "the handler is not an `async def` function", "make it one"))
    if problems:
        raise InvalidInput(*problems)
