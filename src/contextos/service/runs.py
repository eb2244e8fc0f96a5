"""`app.runs`: the runs of a tenant as lists, one by one, as stories, and as a stream of events."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.entries.terms import ANY_RUN, LIVE, term
from contextos.contracts.envelopes.record import DecisionOutput, DecisionRecord
from contextos.contracts.envelopes.run import BudgetInForce
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import DecisionStatus
from contextos.contracts.facts import nearest_name
from contextos.contracts.journal import LEDGERS, Entry, Sought
from contextos.contracts.ports.storage import Store
from contextos.deployment.deployment import Deployment
from contextos.deployment.queries.checked_run import UNREADABLE, CheckedRun, read_checked
from contextos.deployment.queries.decisions import checked_decision, decision_output
from contextos.deployment.queries.positions import cursor_of, line_at, newest_cursor
from contextos.deployment.queries.rationales import checked_story
from contextos.deployment.queries.run_events import RunEvent, read_events
from contextos.deployment.queries.run_index import MAX_RUNS_READ, found_runs, newest_runs, waiting_runs
from contextos.deployment.queries.run_names import run_named
from contextos.deployment.queries.run_now import run_budget
from contextos.deployment.queries.run_view import ERASED, RunView, blocked_by
from contextos.deployment.queries.timeline import Moment
from contextos.deployment.stream.folding import Position, StreamEvent
from contextos.deployment.stream.reading import StreamedRun, read_stream
from contextos.deployment.why.checked_reasons import checked_reasons
from contextos.deployment.why.explaining import RunReason
from contextos.errors import Integrity, InvalidInput, NotFound, Problem
from contextos.runtime.state_machine import ENDS, START, TABLE
from contextos.service.pages import Page, check_limit
from contextos.service.run_search import EVERY_RUN, RunSearch
from contextos.trust.journal.ledger import ASKING_STATES

EVENT_POLL_US: Final = 250_000
"""How long a reader that waits for events pauses before it looks again, in microseconds."""

STATES: Final = frozenset({*TABLE, *ENDS, ERASED, UNREADABLE} - {START})


@dataclass(frozen=True, slots=True)
class Run:
    """One run as its verified journal shows it.

    `waits_for` is `approval`, `slot`, `settlement`, `engine`, or `operation` if the run waits for an operation that
    another run, `blocked_by`, is doing; None if it waits for nothing. `status` is the status of the decision
    (`DecisionStatus`). `decided_by` is the person who resolved or closed the decision, and `reason` is why.
    `began_at_us` is Unix time in microseconds. `user_id` is the user for whom the agent `agent_id` acts, as the request
    states them. `user_id`, `agent_id`, `request_id`, `intent`, `status` and `record` are None if they were erased;
    `record` is also None before the first record. `paused` is the result of the call that waits for an approval or a
    settlement, or None. `fault` says what about the run does not verify; None if all of it does. `verified` are the
    entries of a run that was read alone and has no fault; else None.
    """

    tenant_id: str
    run_id: str
    request_id: str | None
    user_id: str | None
    agent_id: str | None
    intent: str | None
    state: str
    ended: bool
    began_at_us: int
    waits_for: str | None
    blocked_by: str | None
    status: DecisionStatus | None
    decided_by: str | None
    reason: str | None
    record: DecisionRecord | None
    fault: str | None
    paused: ToolResultEnvelope | None = None
    verified: Sequence[Entry] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class StoryPart:
    """A part of the story of a run: its title, and its lines in order, with text from outside escaped for display."""

    title: str
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The story of a run. `fault` says what about the run does not verify, so that its story may be untrue."""

    parts: tuple[StoryPart, ...]
    fault: str | None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry of a run's journal. `ledger` is `context`, `effect`, `decision` or `none`; `body` is None if it was
    erased, and `body_digest` is the digest of the original body. `at_us` is Unix time in microseconds.
    """

    seq: int
    kind: str
    key: str
    ledger: str
    at_us: int
    by: str
    body: JsonValue
    body_digest: str
    hash: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run did what it did. `fault` says what about the run does not verify, so that it may be untrue."""

    reasons: tuple[RunReason, ...]
    fault: str | None


class ToldRun(NamedTuple):
    """What the entries of a run tell: its story, its reasons, and its budget (None as in `Runs.budget`)."""

    timeline: Timeline
    explanation: Explanation
    budget: BudgetInForce | None


class LaterEvents(Protocol):
    """The source of the later events of a run for a reader; see `workspace.engine.run_watch`."""

    def follow(self, tenant_id: str, run_id: str, seen: int, last: Position) -> AsyncGenerator[StreamEvent]:
        """Yield the events behind the place `last` until the run has ended. The reader knows `seen` entries of
        the run.
        """
        ...


class RunStream:
    """The events of one run behind a place that its reader named. `is_over`: the run has ended and no events follow."""

    def __init__(self, tenant_id: str, run: StreamedRun, later: LaterEvents) -> None:
        self.run_id, self._tenant_id, self._later = run.run_id, tenant_id, later
        self._seen, self._ended, self._last = run.entries, run.ended, run.after
        self._remaining = deque(run.behind(run.after))
        self.is_over = run.ended and not self._remaining

    async def so_far(self) -> AsyncGenerator[StreamEvent]:
        """Yield the events that there were when the stream was opened."""
        while self._remaining:
            self._last = self._remaining[0].position
            yield self._remaining.popleft()

    async def follow(self) -> AsyncGenerator[StreamEvent]:
        """Yield the events of `so_far`, then each later event until the run has ended. Raises as `Runs.stream`."""
        async for event in self.so_far():
            yield event
        if not self._ended:
            following = self._later.follow(self._tenant_id, self.run_id, self._seen, self._last)
            async with aclosing(following):
                async for event in following:
                    yield event


class Runs:
    """The runs of a deployment, for an application that shows them. Nothing here drives a run or changes one."""

    def __init__(self, deployment: Deployment, later: LaterEvents) -> None:
        self._ports, self._catalog, self._later = deployment.ports, deployment.catalog, later

    async def list(
        self,
        tenant_id: str,
        *,
        state: str | None = None,
        user_id: str | None = None,
        agent_ids: Collection[str] | None = None,
        waiting: bool = False,
        search: RunSearch = EVERY_RUN,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Run]:
        """Return a page of the tenant's runs that `search` finds, newest first. `state`, `user_id` and `agent_ids`, if
        given, keep only the runs in that state, for that user, and by one of these agents. `waiting` keeps only the
        runs that wait for a person or for an operation of another run, and those that are marked as waiting and do not
        verify.

        Raises:
            InvalidInput: the state, the limit or the cursor is not valid, or the cursor is from another search.
            ChainBroken: an entry of the index that was read is missing, moved or changed.
        """
        check_limit(limit)
        _check_state(state)
        store = self._ports.stores.tenant(tenant_id)
        agents = None if agent_ids is None else tuple(sorted(agent_ids))
        criteria = (waiting, state, user_id, agents, search)
        start = await line_at(store, tenant_id, cursor, criteria)
        runs: list[Run] = []
        runs_read, last_cursor = 0, ""
        async for entry in _index_entries(store, tenant_id, *criteria, start.seq if start else 0):
            if len(runs) == limit or runs_read == MAX_RUNS_READ:
                return Page(tuple(runs), last_cursor)
            runs_read, last_cursor = runs_read + 1, cursor_of(entry, criteria)
            # Reading and verifying one run does not yield, so other tasks get a turn between two runs.
            await self._ports.pause(0)
            run = await self._describe_run(store, await read_checked(store, tenant_id, self._ports.keys, entry.key))
            is_by_agent = agent_ids is None or run.agent_id in agent_ids
            waits = not waiting or run.fault or run.waits_for not in (None, "engine")
            fits = state in (None, run.state) and user_id in (None, run.user_id) and is_by_agent
            if waits and fits and search.finds(run):
                runs.append(run)
        return Page(tuple(runs), None)

    async def get(self, tenant_id: str, name: str) -> Run:
        """Return the run with the id `name`, or the run of the request with this id.

        Raises:
            NotFound: there is no such run or request in this tenant.
            Integrity: the store names a run for this request that another request made.
        """
        store = self._ports.stores.tenant(tenant_id)
        checked = await self._read_run(store, tenant_id, await run_named(store, name))
        run = await self._describe_run(store, checked)
        return run if checked.fault else replace(run, verified=checked.entries)

    async def timeline(self, run: Run) -> Timeline:
        """Return the story of a run as it is now, from its journal. Raises `NotFound`."""
        return await self._timeline(await self._now(run))

    async def decision(self, run: Run) -> DecisionOutput:
        """Return the short form of the run's decision: its outcome, and the evidence and rules that it rests on.

        Raises:
            Integrity: the run or what it is pinned to does not verify.
            NotFound: nothing was decided yet, or the record was erased.
        """
        checked = await self._now(run)
        return await decision_output(checked, self._catalog(run.tenant_id))

    async def budget(self, run: Run) -> BudgetInForce | None:
        """Return the limits of a run in force, and what it has used so far (`atomic_usage`).

        None if the run has no context yet, or if the usage cannot be computed because entries were erased or altered.
        Raises `NotFound`.
        """
        return _budget(await self._now(run))

    async def ledger(self, run: Run, ledger: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return the entries of a run's journal in order; with `ledger`, only the entries of that ledger.

        Raises:
            InvalidInput: there is no such ledger.
            Integrity: the run does not verify, so its entries are not shown as if they were true.
            NotFound: the run is gone.
        """
        if ledger not in (None, *LEDGERS):
            detail = f"`{str(ledger)[:40]}` is not a ledger"
            raise InvalidInput(Problem("/ledger", "unknown_ledger", detail, f"name one of {', '.join(LEDGERS)}"))
        return tuple(one for one in map(ledger_entry, await self.entries(run)) if ledger in (None, one.ledger))

    async def entries(self, run: Run) -> Sequence[Entry]:
        """Return the entries of a run as they are stored, in order. Raises as `ledger`."""
        checked = await self._now(run)
        if checked.fault is not None:
            raise Integrity(checked.fault)
        return checked.entries

    async def why(self, run: Run, *, tool: str | None = None) -> Explanation:
        """Return why tools were shown or hidden, why people were asked, which facts decided, and who authorised.

        With `tool`, return only the reasons about this tool and about the whole run.

        Raises:
            InvalidInput: no entry of the run is about this tool (`unknown_tool`).
            NotFound: the run is gone.
        """
        return await self._why(await self._now(run), tool)

    async def tell(self, run: Run) -> ToldRun:
        """Return the story, the reasons and the budget of a run as `get` read it, without reading it again. A run that
        does not verify is read again. Raises `NotFound`.
        """
        checked = (
            await self._now(run)
            if run.verified is None
            else CheckedRun(run.tenant_id, run.run_id, run.verified, fault=None)
        )
        return ToldRun(await self._timeline(checked), await self._why(checked), _budget(checked))

    async def position(self, tenant_id: str) -> str:
        """Return the cursor of the tenant's newest event, from which `events` yields only what happens later."""
        return await newest_cursor(self._ports.stores.tenant(tenant_id))

    async def events(self, tenant_id: str, *, after: str = "", wait: bool = False) -> AsyncIterator[RunEvent]:
        """Yield what happened to the tenant's runs behind the cursor `after` ("": from the first event), in order.

        The iterator ends with the newest event; with `wait` it waits for later ones. After a crash another process goes
        on behind the cursor of the last event that was handled.

        Raises:
            InvalidInput: this tenant has no event with the cursor `after`.
            ChainBroken: an entry of the index that was read is missing, moved or changed.
        """
        store = self._ports.stores.tenant(tenant_id)
        last = await line_at(store, tenant_id, after)
        while True:
            events, last = await read_events(store, tenant_id, self._ports.keys, last)
            for event in events:
                yield event
            if not events and not wait:
                return
            if not events:
                await self._ports.pause(EVENT_POLL_US)

    async def stream(
        self, tenant_id: str, name: str, *, after: str = "", wait: bool = False
    ) -> AsyncGenerator[StreamEvent]:
        """Yield the events of one run behind the event with the id `after` ("": from the first one), in order.

        `name` is the id of the run or of its request. The iterator ends with the newest event; with `wait` it waits for
        later ones until the run has ended. A reader that continues behind the last event that it received misses no
        event and gets none twice.

        Raises:
            InvalidInput: this run has no event with the id `after` (`unknown_event`).
            Integrity: the run does not verify, so its events are not shown as if they were true.
            NotFound: there is no such run or request in this tenant.
        """
        opened = await self.open_stream(tenant_id, name, after=after)
        async with aclosing(opened.follow() if wait else opened.so_far()) as events:
            async for event in events:
                yield event

    async def open_stream(self, tenant_id: str, name: str, *, after: str = "") -> RunStream:
        """Find the run and the place `after`, and return the stream that `stream` yields from. Raises as `stream`."""
        store = self._ports.stores.tenant(tenant_id)
        run = await read_stream(store, tenant_id, self._ports.keys, await run_named(store, name), after)
        return RunStream(tenant_id, run, self._later)

    async def _now(self, run: Run) -> CheckedRun:
        return await self._read_run(self._ports.stores.tenant(run.tenant_id), run.tenant_id, run.run_id)

    async def _timeline(self, checked: CheckedRun) -> Timeline:
        story, fault = await checked_story(checked, self._catalog(checked.tenant_id))
        return Timeline(tuple(StoryPart(title, tuple(moments)) for title, moments in story.items()), fault)

    async def _why(self, checked: CheckedRun, tool: str | None = None) -> Explanation:
        return Explanation(*await checked_reasons(checked, self._catalog(checked.tenant_id), tool))

    async def _read_run(self, store: Store, tenant_id: str, run_id: str) -> CheckedRun:
        run = await read_checked(store, tenant_id, self._ports.keys, run_id)
        if not (run.entries or run.fault):
            raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs list`")
        return run

    async def _describe_run(self, store: Store, run: CheckedRun) -> Run:
        view = run.view()
        blocking = await blocked_by(store, view)
        decision, fault = await checked_decision(store, run, self._ports.keys)
        # If the body of the first entry was altered, the request is unknown, as if it was erased.
        nothing: dict[str, Any] = {}
        request = run.told(lambda: _request_of(run), nothing)
        return Run(
            tenant_id=run.tenant_id,
            run_id=run.run_id,
            request_id=run.told(lambda: request.get("request_id"), None),
            user_id=run.told(lambda: request["user"]["user_id"] if request else None, None),
            agent_id=run.told(lambda: request["agent"]["agent_id"] if request else None, None),
            intent=run.told(lambda: request["input"]["intent"] if request else None, None),
            state=view.state,
            ended=view.ended,
            began_at_us=run.entries[0].at_us if run.entries else 0,
            waits_for=view.waiting["for"] if view.waiting else "operation" if blocking else None,
            blocked_by=blocking,
            status=decision.status,
            decided_by=decision.by,
            reason=decision.reason,
            record=run.told(lambda: _record(view), None),
            fault=fault,
            paused=run.told(lambda: _paused(view), None),
        )


def _budget(checked: CheckedRun) -> BudgetInForce | None:
    found = checked.told(lambda: run_budget(checked.entries), None)
    return None if found is None else BudgetInForce.model_validate(found)


def _paused(view: RunView) -> ToolResultEnvelope | None:
    result = (view.waiting or {}).get("result")
    return None if result is None else ToolResultEnvelope.model_validate(result)


def ledger_entry(entry: Entry) -> LedgerEntry:
    """Return an entry of a journal with its body and its ledger."""
    ledger = KINDS[entry.kind].ledger
    body = read_body(entry)
    return LedgerEntry(
        entry.seq, entry.kind, entry.key, ledger, entry.at_us, entry.by, body, entry.body_digest, entry.hash
    )


async def _index_entries(
    store: Store,
    tenant_id: str,
    waiting: bool,
    state: str | None,
    user_id: str | None,
    agents: Sequence[str] | None,
    search: RunSearch,
    after: int,
) -> AsyncIterator[Entry]:
    """Yield the index lines of the runs that can fit, newest first, below the number `after` (0: all)."""
    terms = search.terms() + ([(term("user", user_id),)] if user_id is not None else [])
    if agents is not None:
        terms.append(tuple([term("agent", agent_id) for agent_id in agents]))
    if waiting or (state in ASKING_STATES and not terms):
        async for entry in waiting_runs(store, tenant_id, after):
            yield entry
        return
    if state is not None and state not in (ERASED, UNREADABLE):
        terms.append((term("state", state) if state in ENDS else LIVE,))
    period = search.began_from_us, search.began_before_us
    if not terms and period == (None, None):
        # A list without conditions is read without terms, so that it shows every run that the chain of the index names.
        async for entry in newest_runs(store, tenant_id, after):
            yield entry
        return
    if not terms or len(terms[0]) != 1:
        terms.insert(0, (ANY_RUN,))
    async for entry in found_runs(store, tenant_id, Sought(terms, after, period[0] or 0, period[1])):
        yield entry


def _check_state(state: str | None) -> None:
    if state is not None and state not in STATES:
        similar = nearest_name(state, sorted(STATES))
        remedy = f"did you mean `{similar}`?" if similar else f"name one of {', '.join(sorted(STATES))}"
        raise InvalidInput(Problem("/state", "unknown_state", f"`{state[:40]}` is not a state of a run", remedy))


def _request_of(run: CheckedRun) -> dict[str, Any]:
    received = read_body(run.entries[0]) if run.entries else None
    request: dict[str, Any] = received["request"] if received is not None else {}
    return request


def _record(view: RunView) -> DecisionRecord | None:
    return None if view.record is None else DecisionRecord.model_validate(view.record)
