"""The journal of one run, for recording and for replay.

A `RunJournal` starts with the entries that exist (the tape). On the tape, `record` returns the recorded answers and
`derive` compares values. After the last entry the journal is live if it has a `LiveDriver`; without one it raises
`ReplayMismatch`. So recovery is a replay up to the last entry, and live from there.
Source: docs/design/journal.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import orjson

from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.linked import know
from contextos.contracts.entries.terms import ANY_RUN, LIVE, standing_terms, stated_terms
from contextos.contracts.journal import (
    SALT_BYTES,
    VOID_ANSWER,
    AgentMessage,
    Batch,
    Draft,
    Entry,
    Logged,
    Parked,
    Rest,
    SignedHead,
    TermChange,
    Timeout,
    Write,
    link,
    new_tuple,
)
from contextos.contracts.ports.seams import Ask, RecordRequest
from contextos.errors import ChainBroken, ContextOSError, ReplayMismatch
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.live_driver import LiveDriver
from contextos.trust.journal.record import STATUS_OF_END
from contextos.trust.journal.signed_heads import index_lines, is_unsigned, signed_head, void_fault
from contextos.trust.journal.tape import NO_QUESTION, Tape, Transition, digest_of, tape_end

_loads: Final = orjson.loads

MAX_ENTRIES: Final = 10_000
ASKING_STATES: Final = frozenset({"waiting", "choosing"})
"""The states of the run table in which a person is asked: about an effect, or for a selection."""
_STATUS_OF_STATE: Final = dict[str, str](STATUS_OF_END.items())


class RunJournal(Tape):
    """The journal of one run. Implements the port `Journal`.

    Refuses an entry that the run's state does not allow, or that differs from what was recorded.
    """

    def __init__(
        self, tenant: str, run: str, tape: Sequence[Entry], step: Transition, start: str, live: LiveDriver | None
    ) -> None:
        super().__init__(tenant, run, tape, step, start)
        self._live, self._signed = live, live.signed if live else None
        self._committed = len(tape)
        self._staged: list[Write] = []
        self._is_commit_due = False
        self._announce = bool(tape)
        # True: the tape is read, and no `run.resumed` has to come before the next entry.
        self._is_recording = False
        # A new run has no lease yet: its first commit makes both.
        self._is_new = not tape

    @property
    def time_us(self) -> int:
        """Return the current time in Unix microseconds, for calls to the outside.

        It is never before the last entry. A replay calls nothing outside; there it is the time of the last entry.
        """
        return self._live.time_us(self._last.at_us) if self._live else self._last.at_us

    @property
    def _is_pending(self) -> bool:
        return self._committed < len(self._tape)

    async def record(self, kind: str, key: str, request: Any, call: Ask, *, by: str = "runtime") -> Any:
        """Obtain an answer from outside by awaiting `call`, record it and return it. In a replay, return the recorded
        answer.
        """
        live = self._live
        if live is None or self._position < self._tape_end:
            return self._read_recorded(kind, key, request)
        if self._is_commit_due or not (self._is_new or live.holds):
            await self._prepare_call()
        # A call that raises "not yet" records nothing: otherwise a run that waits for another would fill its journal.
        answer = await call()
        if not self._is_recording:
            self._go_live(kind)
        return self._append_answer(kind, key, by, digest_of(request), answer)

    async def record_found(self, kind: str, key: str, look: Ask) -> Any:
        """Look for something outside. If it is there, record and return it; else return None. A replay does not call
        `look`: it returns the answer of the next entry if this has the kind and key, else None.
        """
        if self.on_tape:
            entry = self._peek_entry()
            return self._read_recorded(kind, key, {}) if (entry.kind, entry.key) == (kind, key) else None
        if self._live is None:
            return None
        answer = await look()
        if answer is not None:
            self._go_live(kind)
            self._append_answer(kind, key, "runtime", NO_QUESTION, answer)
        return answer

    async def record_all(self, group: Sequence[RecordRequest], *, keeps: bool = True) -> list[Any]:
        """Obtain several answers at the same time and record each when it arrives. Returns them in the order of
        `group`. If a call fails, the answers that did arrive are committed, unless `keeps` is False.

        In a replay each answer is found by its kind and key, in any order.
        """
        assert all(KINDS[request.kind].recorded for request in group), "only answers are recorded"
        missing = {(request.kind, request.key): request for request in group}
        assert len(missing) == len(group), "each answer of a group has a kind and key of its own"
        answers: dict[tuple[str, str], Any] = {}
        while missing and self.on_tape:
            entry = self._next_entry()
            kind_and_key = (entry.kind, entry.key)
            if kind_and_key not in missing:
                awaited = ", ".join(f"`{kind}` of `{key}`" for kind, key in missing)
                detail = f"it is of `{entry.key}`, and the loop waits for {awaited}"
                raise ReplayMismatch(entry.seq, entry.kind, detail)
            answers[kind_and_key] = self._consume_answer(entry, missing.pop(kind_and_key).request)
        if missing:
            await self._record_live(tuple(missing.values()), answers, keeps)
        return [answers[request.kind, request.key] for request in group]

    async def _record_live(
        self, group: Sequence[RecordRequest], answers: dict[tuple[str, str], Any], keeps: bool
    ) -> None:
        live = self._live
        if live is None:
            raise self._past_end(group[0].kind)

        async def record_answer(request: RecordRequest) -> None:
            answer = await request.call()
            self._go_live(request.kind)
            request_digest = digest_of(request.request)
            answers[request.kind, request.key] = self._append_answer(
                request.kind, request.key, "runtime", request_digest, answer
            )

        await self._prepare_call()
        try:
            await live.concurrency.gather([partial(record_answer, request) for request in group])
        except ContextOSError:
            # The answers that did arrive are kept, so that the next drive obtains only the others.
            if keeps:
                await self.commit()
            raise

    def derive(self, kind: str, key: str, body: Any) -> None:
        """Record a value that the run computed. In a replay, compare it with the recorded one; raises
        `ReplayMismatch`.
        """
        if not self._is_recording:
            if self._live is None or self._position < self._tape_end:
                return self._compare_derived(kind, key, body)
            self._go_live(kind)
        self._append(kind, key, "runtime", canonical(body), body)

    def stage(self, *writes: Write) -> None:
        """Add writes to the commit of the last entry. In a replay nothing is added: they are in the store already."""
        if self._is_pending:
            self._staged.extend(writes)
        else:
            # After the commit of an entry of this drive a write would be lost.
            is_stored = not writes or self._committed <= self._read_count
            assert is_stored, "a write is staged before the commit of its entry"

    def defer_commit(self) -> None:
        """Leave pending entries to the next commit. It is made before the next call to the outside."""
        self._is_commit_due = self._is_pending

    def hand_over(self) -> None:
        """Stop driving here, so that the engine continues the run; raises `Parked`. In a replay, do nothing."""
        if self._is_pending and self._live is not None:
            raise Parked(self._live.clock.now_us())

    async def take_over(self) -> None:
        """Record durably that this driver continues the run, before it repeats anything that another driver could
        still be doing.
        """
        self._go_live("run.resumed")
        await self.commit()

    def follows(self, deaths: int, free_us: int, behind_us: int) -> None:
        """Set what is known before this drive: `LiveDriver.deaths`, `LiveDriver.free_us`, `LiveDriver.behind_us`."""
        assert self._live is not None, "a journal that is driven is live"
        self._live.follows(deaths, free_us, behind_us, self._tape[-1].at_us if self._tape else 0)
        self._is_recording = False

    async def _prepare_call(self) -> None:
        """Prepare for a call to the outside: make the commit that is due, or else write the lease of a run that exists
        already.
        """
        if self._live is None or (not self._is_commit_due and (self._is_new or self._live.holds)):
            return
        if self._is_pending:
            await self.commit()
        else:
            await self._live.take(self.run_id)

    async def let_go(self, wake_at_us: int | None = None) -> None:
        """Release the lease of a drive that commits no more. The run is due at `wake_at_us` (None: when it was)."""
        if self._live is not None:
            await self._live.release(self.run_id, wake_at_us)

    async def commit(
        self, *, wake_at_us: int | None = None, blocked: Sequence[Write] | None = None, keeps: bool = True
    ) -> None:
        """Make all pending entries and writes durable. In a replay there is nothing to do.

        With `wake_at_us` (Unix microseconds) the lease is released and the run is due then. With `blocked` the run is
        marked as waiting for an operation of another run, and these writes are added. With `keeps` False a drive that
        has the lease only releases it: the next drive does again everything since the last commit.
        """
        live = self._live
        if live is not None and live.holds and not keeps:
            return await self.let_go(wake_at_us)
        # A person's commit wakes a run that waits for that person, and a later commit here must not undo it.
        pending = tuple(self._tape[self._committed :])
        is_sleeping = bool(wake_at_us) and self.state != "waiting"
        if live is None or not (pending or is_sleeping):
            return await self.let_go() if wake_at_us is not None else None
        self._skip_resumed()
        letting_go = wake_at_us is not None
        if live.deaths and any(entry.kind != "run.resumed" for entry in pending):
            live.deaths = 0
        last, lease = self._last, live.lease(self.run_id, letting_go=letting_go)
        signature = signed_head(live.keys, last)
        batch = Batch(
            self.run_id,
            pending,
            (lease, *self._staged, *(blocked or ())),
            index_lines(pending, live.entropy),
            wake_at_us if letting_go else live.clock.now_us() + live.lease_ttl_us,
            signature,
            blocked is not None or self.state in ASKING_STATES,
            live.may_block(),
            self._term_change(pending),
        )
        know(self.tenant, self.run_id, self._tape)
        await live.commit(batch, letting_go=letting_go)
        self._signed = (last.seq, last.hash, *signature)
        self._committed += len(pending)
        self._staged.clear()
        self._is_commit_due = False
        await live.tell_settled(batch)
        # A recorded dispatch is sent at once: a kill in between would leave its outcome unknown.
        if live.make_way and not letting_go and pending[-1].kind != "tool.dispatching":
            await live.make_way()

    def _term_change(self, pending: Sequence[Entry]) -> TermChange | None:
        """Return how the commit of these last entries changes the terms of the run, or None if it adds no term."""
        added = stated_terms(self._log[-len(pending) :]) if pending else set[int]()
        is_first, status = self._committed == 0, _STATUS_OF_STATE.get(self.state)
        if is_first:
            added.add(ANY_RUN)
        if is_first or status:
            added.update(standing_terms(self.state, status, ended=status is not None))
        removed = (LIVE,) if status and not is_first else ()
        return TermChange(tuple(added), removed, self._tape[0].at_us) if added else None

    async def wait(
        self, kinds: Sequence[str], key: str, *, wake_at_us: int, on_timeout: Timeout | None
    ) -> tuple[str, Any]:
        """Wait for the entry that another process appends for `key`. Returns (kind, answer).

        For an entry that any process could append and that does not fit, returns (`VOID_ANSWER`, why): it is void.

        After `wake_at_us` (Unix microseconds) `on_timeout` is appended, unless it is None. Raises `Parked` for a driver
        that keeps no suspended runs, and `ReplayMismatch` where the tape ends or has another entry.
        """
        while not self.on_tape:
            if self._live is None:
                raise ReplayMismatch(self._last.seq + 1, kinds[0], "the tape ends while the run waits")
            if on_timeout is not None and self._live.clock.now_us() >= wake_at_us:
                return await self._time_out(key, wake_at_us, on_timeout)
            if not self._live.can_suspend:
                raise Parked(wake_at_us)
            await Rest(wake_at_us)
        entry = self._next_entry()
        if fault := void_fault(entry, kinds, key):
            self._skip_entry(entry)
            return VOID_ANSWER, fault
        if entry.kind not in kinds:
            raise ReplayMismatch(entry.seq, entry.kind, f"the loop waits for one of {sorted(kinds)}")
        if entry.kind != "run.cancel_requested" and entry.key != key:
            raise ReplayMismatch(entry.seq, entry.kind, f"it answers `{entry.key}`, the loop waits for `{key}`")
        return entry.kind, self._consume(entry)["answer"]

    async def receive(
        self, kinds: Sequence[str], *, clean: Callable[[Any], Any], wake_at_us: int, on_timeout: Timeout
    ) -> Logged | None:
        """Wait for the next message of a session's agent (see `deliver`), and record what `clean` returns for it.

        Returns the entry of the message or of the timeout; None if the run was woken without a message, or if the next
        entry of a replay is not of one of `kinds`. Otherwise as `wait`.
        """
        was_woken = False
        while not self.on_tape:
            if self._live is None:
                raise ReplayMismatch(self._last.seq + 1, kinds[0], "the tape ends while the run waits")
            if self._live.clock.now_us() >= wake_at_us:
                await self._time_out("", wake_at_us, on_timeout)
                return self._log[-1]
            if message := self._live.take_message():
                self._go_live(message.kind)
                self._append_answer(message.kind, message.key, "agent", NO_QUESTION, clean(dict(message.answer)))
                return self._log[-1]
            if was_woken:
                return None
            if not self._live.can_suspend:
                raise Parked(wake_at_us)
            await Rest(wake_at_us)
            was_woken = True
        entry = self._peek_entry()
        if entry.kind not in kinds:
            return None
        self._consume(self._next_entry())
        return self._log[-1]

    def deliver(self, message: AgentMessage | None) -> None:
        """Set the next message of the session's agent, or None. It is dropped if the next drive does not take it."""
        assert self._live is not None, "a journal that is driven is live"
        self._live.message = message

    def goes_on(self, entries: Sequence[Entry], heads: Sequence[SignedHead], lease_version: int) -> bool:
        """Take in the entries that people appended while the run was suspended. Returns False if anything else has
        changed.

        Nothing has changed if the store has exactly the known entries, under the head that was signed last; these need
        no second verification.
        """
        known_count = len(self._tape)
        appended = entries[known_count:]
        is_unchanged = list(entries[:known_count]) == self._tape and tuple(heads[-1:]) == (self._signed,)
        if self._live is None or not is_unchanged or not all(map(is_unsigned, appended)):
            return False
        verify_chain(self.tenant, self.run_id, appended, after=self._tape[-1])
        self._tape.extend(appended)
        # A `run.resumed` at the end of what was read before can be unread.
        self._position = known_count if self._position == self._read_count else self._position
        self._tape_end = tape_end(self._tape)
        self._committed = self._read_count = len(self._tape)
        self._live.lease_version, self._announce = lease_version, True
        self._is_new = self._is_recording = False
        return True

    def goes_on_unread(self, behind_us: int) -> None:
        """Continue a session from the entries that this journal holds, for a message that is not on record.

        The next commit takes the lease. It fails if another process had the lease since the last commit.
        """
        self._is_new = False
        self.follows(0, 0, behind_us)

    async def _time_out(self, key: str, wake_at_us: int, on_timeout: Timeout) -> tuple[str, Any]:
        self._go_live(on_timeout.kind)
        request_digest = content_address({"deadline_us": wake_at_us})
        answer = self._append_answer(on_timeout.kind, key, "runtime", request_digest, {"expired": True})
        self.stage(*on_timeout.writes)
        await self.commit()
        return on_timeout.kind, answer

    def _go_live(self, kind: str) -> None:
        live = self._live
        if live is None:
            raise self._past_end(kind)
        if self._position < self._read_count:
            self._skip_resumed()
        # A replay has to know how far the clock was behind, also in the first drive of a run.
        if self._announce or (self._behind_us != live.behind_us and self._last.seq):
            self._announce = False
            self._append_answer("run.resumed", "", live.owner, NO_QUESTION, live.resumed())
        self._is_recording = self._behind_us == live.behind_us

    def _append_answer(self, kind: str, key: str, by: str, digest: str, answer: Any) -> Any:
        """Append an answer to the request with this `digest`. Returns the answer as written, because the caller
        could still change its own object. With `NO_QUESTION` the entry states no digest.
        """
        raw = canonical({"answer": answer} if digest is NO_QUESTION else {"answer": answer, "request_digest": digest})
        stored_answer = _loads(raw)["answer"]
        self._append(kind, key, by, raw, stored_answer)
        return stored_answer

    def _append(self, kind: str, key: str, by: str, raw: bytes, content: Any) -> None:
        live, last = self._live, self._last
        assert live is not None
        if last.seq >= MAX_ENTRIES:
            raise ChainBroken(self.run_id, last.seq, f"a run holds at most {MAX_ENTRIES} entries")
        at_us = live.time_us(last.at_us)
        # Kept for long: what `orjson` returns has a buffer of 4 KiB behind its text.
        draft = new_tuple(Draft, (kind, key, at_us, by, bytes(memoryview(raw)), live.entropy.take(SALT_BYTES)))
        entry = link(last.tenant, last.run, last.seq + 1, last.hash, draft)
        self._apply_entry(entry, content)
        self._tape.append(entry)
