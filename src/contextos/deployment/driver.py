"""The driver: takes a run's lease, drives the run until it ends or waits, and keeps a run that waits in memory.

One process drives a run at a time. Inside a process the drives of a run follow each other. Between processes the lease
decides; its version is the fencing token of every commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

from contextos.action.registry import Registry
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import LEASES, Lease
from contextos.contracts.encoding.codec import parse
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import (
    CLOCK_MARGIN_US,
    CONTROL,
    AgentMessage,
    Entry,
    Parked,
    Rest,
    SignedHead,
    StoredRun,
)
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.storage import Store
from contextos.deployment import dead_letters
from contextos.deployment.leases import Heartbeats, blocking_writes, held_until_us, wake_blocked
from contextos.deployment.ports import DeploymentConfig, Ports
from contextos.deployment.queries.run_view import RunView, run_view, view_in_state
from contextos.deployment.suspended_runs import ResumableLoop, SuspendedRun, SuspendedRuns
from contextos.errors import ClockOff, Conflict, NotFound, ReplayMismatch, Unavailable, Untimely
from contextos.runtime import state_machine
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.logged_run import LOGGED_RUN, LoggedRun
from contextos.runtime.loop import invoke_agent
from contextos.runtime.state_machine import transition
from contextos.trust.approvals.gate_approvals import CheckQuestion
from contextos.trust.journal.chain import refuse_other_environment, refuse_unknown_semantics, verify_once
from contextos.trust.journal.entry_acts import last_record, require_acts
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.live_driver import LiveDriver
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed
from contextos.trust.recorded_time import behind_us


class FreshRun(NamedTuple):
    """A new run's request, its JSON fields and their digest; `correction` counts the requests with this id so far."""

    request: InvokeRequest
    fields: dict[str, Any]
    fingerprint: str
    correction: int


NEW_RUN: Final = StoredRun((), (), (), None)
MAX_CONFLICTS: Final = 32
SUSPECT: Final = "suspect"
"""The only key of `RunDriver._suspect`: the run that this process drives now although its last drivers died."""
SUSPECT_DEATHS: Final = 2
"""Of the runs that lost this many drivers in a row, a process drives one at a time, beside all its other runs."""
MAX_DEATHS: Final = 5
"""A run becomes a dead letter when this many drivers in a row died while they drove it and it made no progress."""


class DrivenState(NamedTuple):
    """The state of a run after a drive, and its entries."""

    view: RunView
    entries: Sequence[Entry]


class DriverContext(Protocol):
    """What the object that drives runs (`RunDriver`) needs of a deployment. The driver reads its members again for each
    drive, because parts of a deployment can be replaced.
    """

    ports: Ports
    config: DeploymentConfig
    registry: Registry

    def environment(self, tenant_id: str, journal: RunJournal) -> RunEnvironment:
        """Build the environment of one run: the external systems, and the packs and policies of its tenant."""


class RunDriver:
    """Drives the runs of one deployment. Safe to use from several threads, each with its own event loop."""

    def __init__(self, deployment: DriverContext) -> None:
        self._deployment = deployment
        self._driving: dict[tuple[str, str], object] = {}
        # At most one run, under one key: `setdefault` of a dictionary is atomic.
        self._suspect: dict[str, tuple[str, str]] = {}
        self._suspended_runs = SuspendedRuns()
        self._heartbeats = Heartbeats(deployment.config.heartbeat_ttl_us, deployment.config.lease_ttl_us)

    async def send_heartbeats(self) -> None:
        """Record that this process still drives its `long_running` runs. Raises `Unavailable`."""
        ports = self._deployment.ports
        await self._heartbeats.send(ports.stores, ports.owner, ports.clock.now_us())

    def close(self) -> None:
        """Release the runs that wait in memory; each is rebuilt from its journal when it is driven again."""
        self._suspended_runs.clear()

    async def drive(
        self, tenant_id: str, run_id: str, fresh: FreshRun | None, message: AgentMessage | None = None
    ) -> DrivenState:
        """Drive a run until it ends or waits. Two drives of one run in this process follow each other.

        `message` is the next message of a session's agent. It is recorded if the session waits for its agent and has
        not recorded it before; otherwise it is dropped.

        Raises:
            Conflict: another process began the `fresh` run at the same moment.
            NotFound: no such run in this tenant.
            ClockOff: this machine's clock is too far from the store's.
            OtherEnvironment: the run was begun in another environment than this deployment serves.
            Unavailable: another process drives the run, or a dependency did not answer.
            Integrity: the streams of the tenant lack entries that were witnessed, or an entry or a head of the run was
                altered.
        """
        await self._deployment.ports.ask_witness(tenant_id)
        token = object()
        for _ in range(MAX_CONFLICTS):
            pause_us = 2_000
            while self._driving.setdefault((tenant_id, run_id), token) is not token:
                await self._deployment.ports.pause(pause_us)
                # Many callers can wait for one drive; polling at full speed would slow it down.
                pause_us = min(2 * pause_us, 50_000)
            try:
                async with self._deployment.ports.admission.turn(tenant_id, run_id):
                    state = await self._drive_once(tenant_id, run_id, fresh, message)
            except Conflict as conflict:
                if isinstance(conflict, Untimely):
                    self._refuse_wrong_clock(conflict.store_us)
                if fresh is not None:
                    raise
                if not isinstance(conflict, Untimely):
                    continue
                state = None
            finally:
                if self._suspect.get(SUSPECT) == (tenant_id, run_id):
                    del self._suspect[SUSPECT]
                del self._driving[tenant_id, run_id]
            if state is not None:
                return state
            await self._deployment.ports.pause(20_000)
        detail = "is driven by another process, or waits for another run whose driver died"
        raise Unavailable("run", f"`{run_id}` {detail}", retry_after_ms=1_000)

    async def _drive_once(
        self, tenant_id: str, run_id: str, new_run: FreshRun | None, message: AgentMessage | None
    ) -> DrivenState | None:
        """Drive a run once. Returns None if another process drives it or it waits for another run that lost drivers."""
        store = self._deployment.ports.stores.tenant(tenant_id)
        # Counted before the run is read, so that an operator's act that comes meanwhile is noticed at the next message.
        act_count = await store.length(CONTROL) if message else None
        suspended = None if new_run else self._suspended_runs.take((tenant_id, run_id))
        if suspended and message and self._is_unchanged(tenant_id, suspended, act_count, message):
            clock_behind_us = await behind_us(self._deployment.ports, tenant_id)
            suspended.journal.goes_on_unread(clock_behind_us)
        else:
            read = await self._read_run(tenant_id, run_id, new_run, suspended)
            if not isinstance(read, SuspendedRun):
                return read
            suspended = read
            message = None if message and _is_recorded(message, suspended.journal) else message
        journal, wake_at_us = suspended.journal, None
        journal.deliver(message)
        if suspended.sends_heartbeats:
            self._heartbeats.begins((tenant_id, run_id), self._deployment.ports.clock.now_us())
        logged = LoggedRun(run_id, suspended.trace_id)
        LOGGED_RUN.set(logged)
        try:
            async with _ReleaseOnStop(journal, self._deployment.ports.clock):
                result = await suspended.drive
        except Parked as parked:
            result = parked
        finally:
            logged.is_driven = False
            self._heartbeats.ends((tenant_id, run_id))
        if isinstance(result, Rest | Parked):
            wake_at_us = result.wake_at_us
            blocked = await blocking_writes(store, run_id, result) if isinstance(result, Parked) else None
            keeps = not isinstance(result, Parked) or result.keeps
            await journal.commit(wake_at_us=wake_at_us, blocked=blocked, keeps=keeps)
        else:
            # The exporter can be foreign code; whatever it raises, the committed run does not change.
            with suppress(Exception):
                self._deployment.ports.telemetry.run_ended(tenant_id, journal.account)
        if not isinstance(result, Rest):
            # The checks and the environment of the run refer to each other; this breaks the cycle.
            suspended.checks.clear()
        else:
            suspended.acts = act_count
            self._suspended_runs.keep((tenant_id, run_id), suspended)
        record = last_record(journal.entries) if journal.account.last("record.revised") else None
        view = view_in_state(tenant_id, run_id, journal.entries, journal.state, record, wake_at_us)
        return DrivenState(view, journal.entries)

    def _is_unchanged(self, tenant_id: str, suspended: SuspendedRun, acts: int | None, message: AgentMessage) -> bool:
        """Return whether a run that waits in memory for its agent can go on without being read again.

        If another process drove the run meanwhile, the lease changed, so the next commit of this process would fail. An
        erasure does not change the lease, but it is an act of an operator, and `acts` counts the tenant's acts. A
        message that is recorded already is answered from the journal.
        """
        journal = suspended.journal
        if journal.state != "open" or acts != suspended.acts or suspended.inputs != self._loop_inputs(tenant_id):
            return False
        return not _is_recorded(message, journal)

    async def _read_run(
        self, tenant_id: str, run_id: str, new_run: FreshRun | None, suspended: SuspendedRun | None
    ) -> SuspendedRun | DrivenState | None:
        """Read a run and return the loop that drives it on: `suspended` if only people appended entries, or else a new
        loop from the start. Returns the run's state if nothing can drive it on, and None if another process drives it
        or it waits for another run that lost drivers.
        """
        store = self._deployment.ports.stores.tenant(tenant_id)
        # A driver that takes the run over after this read has a newer fencing token.
        entries, heads, index_entries, lease_row = NEW_RUN if new_run else await store.read_run(run_id)
        lease = LEASES.read(lease_row) if lease_row else None
        if not new_run and not entries:
            raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs list`")
        if entries:
            # Checked before anything is sent again: a run whose end was cut off would, for example, pay a second time.
            verify_indexed(run_id, entries, index_entries)
            await require_acts(store, entries, self._deployment.ports.keys)
        if entries and entries[-1].kind == "run.ended":
            # An ended run is not driven on, so it is verified here.
            verify_once(tenant_id, run_id, entries)
            verify_heads(tenant_id, run_id, entries, heads[-1:], self._deployment.ports.keys)
            return DrivenState(run_view(tenant_id, run_id, entries), entries)
        free_at_us = await self._free_at_us(store, lease)
        if free_at_us > self._deployment.ports.clock.now_us():
            return None
        version, deaths = lease.version if lease else 0, self._death_count(lease)
        if deaths >= MAX_DEATHS:
            await dead_letters.add_lost(store, run_id, self._deployment.ports.clock.now_us(), lease_version=version)
            return DrivenState(run_view(tenant_id, run_id, entries), entries)
        if deaths >= SUSPECT_DEATHS and self._suspect.setdefault(SUSPECT, (tenant_id, run_id)) != (tenant_id, run_id):
            # One after the other: if this process dies too, the death counts only for the run that it was driving.
            return None
        # Awaited before the loop is made, because it can raise: a coroutine that is never awaited is an error.
        clock_behind_us = await behind_us(self._deployment.ports, tenant_id)
        if not (
            suspended
            and suspended.inputs == self._loop_inputs(tenant_id)
            and suspended.journal.goes_on(entries, heads, version)
        ):
            suspended = self._start_loop(tenant_id, run_id, new_run, entries, heads, version)
        suspended.journal.follows(deaths, free_at_us, clock_behind_us)
        return suspended

    def _start_loop(
        self,
        tenant_id: str,
        run_id: str,
        new_run: FreshRun | None,
        entries: Sequence[Entry],
        heads: Sequence[SignedHead],
        lease_version: int,
    ) -> SuspendedRun:
        """Return the loop of a run from its start, over the stored journal."""
        if new_run:
            request, fields, fingerprint, correction = new_run
        else:
            verify_once(tenant_id, run_id, entries)
            # The last signed head covers all entries before it; only entries of people can come after it.
            verify_heads(tenant_id, run_id, entries, heads[-1:], self._deployment.ports.keys)
            refuse_unknown_semantics(entries)
            refuse_other_environment(entries, self._deployment.config.environment)
            if entries[0].body is None:
                raise ReplayMismatch(1, entries[0].kind, "its body was erased; the run cannot go on")
            body = read_body(entries[0])
            fields, fingerprint, correction = body["request"], body["fingerprint"], 1
            request = parse(InvokeRequest, fields)
        sends_heartbeats = request.mode == "long_running"
        live = LiveDriver(
            store=self._deployment.ports.stores.tenant(tenant_id),
            clock=self._deployment.ports.clock,
            entropy=self._deployment.ports.entropy,
            keys=self._deployment.ports.keys,
            owner=self._deployment.ports.owner,
            lease_ttl_us=self._deployment.config.lease_ttl_us,
            lease_version=lease_version,
            can_suspend=True,
            signed=heads[-1] if heads else None,
            silence_us=self._silence_us if sends_heartbeats else None,
            make_way=partial(self._deployment.ports.admission.yield_to_others, tenant_id, run_id),
            is_alone=lambda: len(self._driving) == 1,
            settled=partial(wake_blocked, self._deployment.ports, tenant_id),
            concurrency=self._deployment.ports.concurrency,
        )
        journal = RunJournal(tenant_id, run_id, entries, transition, state_machine.START, live)
        checks: list[CheckQuestion] = []
        environment = self._deployment.environment(tenant_id, journal)
        environment.at_question = checks.append
        loop = ResumableLoop(invoke_agent(request, fields, fingerprint, environment, correction))
        trace_id = request.trace.trace_id
        return SuspendedRun(loop, journal, self._loop_inputs(tenant_id), sends_heartbeats, None, trace_id, checks)

    def at_question(self, tenant_id: str, entries: Sequence[Entry]) -> CheckQuestion | None:
        """Return the check of whether the question at the end of a run's entries still holds; None if the run does not
        wait on it in this process.
        """
        return self._suspended_runs.at_question((tenant_id, entries[0].run), entries, self._loop_inputs(tenant_id))

    def _silence_us(self) -> int:
        return self._heartbeats.silence_us(self._deployment.ports.clock.now_us())

    def _loop_inputs(self, tenant_id: str) -> tuple[Any, ...]:
        """Return the inputs of a run's loop from the deployment. A suspended loop is resumed only if they are
        unchanged.
        """
        deployment = self._deployment
        return deployment.ports, {**deployment.ports.adapters(tenant_id)}, deployment.registry, deployment.config

    def _death_count(self, lease: StoredDocument[Lease] | None) -> int:
        """Return how many drivers in a row died without progress of the run, including the last driver if it died."""
        if lease is None:
            return 0
        is_orphan = lease.body.until_us > 0 and lease.body.owner != self._deployment.ports.owner
        return lease.body.deaths + is_orphan

    async def _free_at_us(self, store: Store, lease: StoredDocument[Lease] | None) -> int:
        """Return when another process's lease on the run ends (Unix microseconds); 0 if no other process has it."""
        ports = self._deployment.ports
        if lease is None or lease.body.owner == ports.owner:
            return 0
        return await held_until_us(store, lease, ports.alive, ports.clock.now_us())

    def _refuse_wrong_clock(self, store_us: int) -> None:
        """Raise `ClockOff` if the clock of this process is too far from the store's."""
        off_us = self._deployment.ports.clock.now_us() - store_us
        if abs(off_us) > CLOCK_MARGIN_US:
            raise ClockOff(off_us, CLOCK_MARGIN_US)


@dataclass(frozen=True, slots=True)
class _ReleaseOnStop(AbstractAsyncContextManager[None]):
    """Releases the lease of a run whose drive was cancelled or lacked a dependency, so that no process waits for it.
    After a cancellation the run is also made due, because its caller is gone and does not send the request again.
    """

    journal: RunJournal
    clock: Clock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_unavailable = isinstance(error, Unavailable)
        # A coroutine that is being closed (`GeneratorExit`) cannot await anything.
        if is_unavailable or not isinstance(error, Exception | GeneratorExit | None):
            with suppress(Conflict, Unavailable):
                await self.journal.let_go(None if is_unavailable else self.clock.now_us())


def _is_recorded(message: AgentMessage, journal: RunJournal) -> bool:
    """Return whether the session has recorded this message of its agent before."""
    return journal.has(message.kind, message.key)
