"""The journal of one run: record, then use. One loop, three worlds: live, tape, simulated.

A `RunJournal` starts with the entries that exist (the tape). On the tape, `record` returns the recorded answers and
`derive` compares. After the last entry the journal is live if it has a `LiveDriver`; without one it raises
`ReplayMismatch`. So recovery is a replay up to the last entry, and live from there.
Source: docs/design/journal.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from contextos.contracts.documents.runs import LEASES, Lease
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.journal import (
    INDEX,
    KINDS,
    Batch,
    Draft,
    Entry,
    Logged,
    Parked,
    Rest,
    SignedHead,
    Timeout,
    Write,
    genesis,
    link,
)
from contextos.contracts.ports.concurrency import Concurrency, Sequential
from contextos.contracts.ports.outside import Clock, Entropy, Keys
from contextos.contracts.ports.seams import Ask, RecordRequest
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, ContextOSError, ReplayMismatch
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.signed_heads import UNSIGNED_KINDS, head_payload

Transition = Callable[[str, str, Mapping[str, Any]], str | None]
"""(state, kind, body) -> next state, or None where the run table refuses."""

MAX_ENTRIES: Final = 10_000

ASKING_STATES: Final = frozenset({"waiting", "choosing"})
"""The states of the run table in which a person is asked: about an effect, or for a selection."""


@dataclass(slots=True)
class LiveDriver:
    """What a journal needs to go on after the tape.

    `lease_version` is the fencing token: the version of the run's lease document that this driver has read (0: none).
    `signed` is the last signed head of the tape, verified. `can_suspend` is true for a driver that handles `Rest`; for
    any other driver a waiting loop ends with `Parked`. `silence_us` returns how long (µs) this driver can be silent
    before others take it for dead; 0 or None means that only its lease counts. `make_way` is awaited after a commit so
    that other runs can go first, unless the run ends, waits or is about to send a call. `concurrency` runs the calls of
    `record_all`.
    """

    store: Store
    clock: Clock
    entropy: Entropy
    keys: Keys
    owner: str
    lease_ttl_us: int
    lease_version: int = 0
    cause: str = "recovery"
    can_suspend: bool = False
    signed: SignedHead | None = None
    silence_us: Callable[[], int] | None = None
    make_way: Callable[[], Awaitable[None]] | None = None
    concurrency: Concurrency = field(default_factory=Sequential)


class RunJournal:
    """The `Journal` port of one run. Refuses what the run table does not allow and what differs from the tape."""

    def __init__(
        self, tenant: str, run: str, tape: Sequence[Entry], step: Transition, start: str, live: LiveDriver | None
    ) -> None:
        self.tenant, self.run_id, self.state = tenant, run, start
        self.missing: list[int] = []
        self._tape, self._step, self._live = list(tape), step, live
        self._signed = live.signed if live else None
        self._at = 0
        self._head, self._seq, self._now_us = genesis(tenant, run), 0, 0
        self._log: list[Logged] = []
        self._pending: list[Entry] = []
        self._staged: list[Write] = []
        self._announce = bool(tape)

    @property
    def now_us(self) -> int:
        """The time of the last entry: the only time a plane knows."""
        return self._now_us

    @property
    def on_tape(self) -> bool:
        """Whether the next entry comes from the tape. Reading this changes nothing, not even `now_us`.

        A `run.resumed` entry is consumed together with the entry after it, because live it was written then.
        """
        return self._past_resumed() < len(self._tape)

    @property
    def head(self) -> str:
        """The hash of the last entry."""
        return self._head

    def log(self) -> Sequence[Logged]:
        """Every entry so far, in order."""
        return self._log

    @property
    def entries(self) -> Sequence[Entry]:
        """Every entry as it is stored; on a tape also the entries that are not read yet."""
        return self._tape

    async def record(self, kind: str, key: str, request: Any, call: Ask, *, by: str = "runtime") -> Any:
        """Obtain an answer from outside, record it and return it. On a tape, return the recorded one."""
        assert KINDS[kind].recorded, f"`{kind}` is derived, not recorded"
        if self.on_tape:
            return self._read_recorded(kind, key, request)
        if self._live is None:
            raise ReplayMismatch(self._seq + 1, kind, "the loop goes on where the tape ends")
        # A call that raises "not yet" records nothing; a run that waits for another would fill its journal.
        answer = await call()
        self._go_live(kind)
        self._append(kind, key, by, {"request_digest": content_address(request), "answer": answer})
        return self._log[-1].body

    async def record_all(self, group: Sequence[RecordRequest]) -> list[Any]:
        """Obtain several answers at once and record each when it arrives.

        When recorded entries are replayed, each answer is found by its kind and key, in any order."""
        assert all(KINDS[request.kind].recorded for request in group), "only answers are recorded"
        missing = {(request.kind, request.key): request for request in group}
        assert len(missing) == len(group), "each answer of a group has a kind and key of its own"
        answers: dict[tuple[str, str], Any] = {}
        while missing and self.on_tape:
            entry = self._next()
            place = (entry.kind, entry.key)
            if place not in missing:
                awaited = ", ".join(f"`{kind}` of `{key}`" for kind, key in missing)
                detail = f"it is of `{entry.key}`, and the loop waits for {awaited}"
                raise ReplayMismatch(entry.seq, entry.kind, detail)
            answers[place] = self._take_answer(entry, missing.pop(place).request)
        if missing:
            await self._record_live(tuple(missing.values()), answers)
        return [answers[request.kind, request.key] for request in group]

    async def _record_live(self, group: Sequence[RecordRequest], answers: dict[tuple[str, str], Any]) -> None:
        live = self._live
        if live is None:
            raise ReplayMismatch(self._seq + 1, group[0].kind, "the loop goes on where the tape ends")

        async def one(request: RecordRequest) -> None:
            answer = await request.call()
            self._go_live(request.kind)
            body = {"request_digest": content_address(request.request), "answer": answer}
            self._append(request.kind, request.key, "runtime", body)
            answers[request.kind, request.key] = self._log[-1].body

        try:
            await live.concurrency.gather([partial(one, request) for request in group])
        except ContextOSError:
            # The answers that did arrive are kept, so that the next drive obtains only the others.
            await self.commit()
            raise

    def derive(self, kind: str, key: str, body: Any) -> None:
        """Record a derived value. On a tape, compare it with the recorded one."""
        assert not KINDS[kind].recorded, f"`{kind}` is recorded, not derived"
        if self.on_tape:
            self._compare_derived(kind, key, body)
            return
        self._go_live(kind)
        self._append(kind, key, "runtime", body)

    def stage(self, *writes: Write) -> None:
        """Add writes to the commit of the last entry. On a tape they are in the store already, so nothing is added."""
        if self._pending:
            self._staged.extend(writes)

    def hand_over(self) -> None:
        """End a drive that has recorded something, so that an engine drives the run on. On a tape, go on."""
        if self._pending:
            raise Parked(self._now_us)

    async def take_over(self) -> None:
        """Commit that this driver goes on, before it does anything that another driver could still be doing."""
        self._go_live("run.resumed")
        await self.commit()

    async def commit(self, *, wake_at_us: int | None = None) -> None:
        """Make everything pending durable. On the tape there is nothing to do: its entries are durable."""
        live = self._live
        # A person's commit wakes a run that waits for that person, and a later commit here must not undo it.
        sleeps = bool(wake_at_us) and self.state != "waiting"
        if live is None or not (self._pending or sleeps):
            return
        self._skip_resumed()
        letting_go = wake_at_us is not None
        now_us, silence_us = live.clock.now_us(), live.silence_us() if live.silence_us else 0
        until = 0 if letting_go else now_us + live.lease_ttl_us
        silent = (now_us, now_us + silence_us) if silence_us and not letting_go else ()
        lease = LEASES.write(self.run_id, live.lease_version, Lease(live.owner, until, *silent))
        kid, signature = live.keys.sign("head", head_payload(self.tenant, self.run_id, self._seq, self._head))
        batch = Batch(
            run=self.run_id,
            entries=tuple(self._pending),
            writes=(lease, *self._staged),
            shared=self._index(live),
            wake_at_us=wake_at_us if letting_go else until,
            signature=(kid, signature.hex()),
            waiting=self.state in ASKING_STATES,
        )
        await live.store.commit(batch)
        self._signed = (self._seq, self._head, kid, signature.hex())
        live.lease_version += 1
        self._pending.clear()
        self._staged.clear()
        # A recorded dispatch is sent at once: a kill in between would leave its outcome unknown.
        if live.make_way and not letting_go and batch.entries[-1].kind != "tool.dispatching":
            await live.make_way()

    def _index(self, live: LiveDriver) -> tuple[tuple[str, Draft], ...]:
        """The entries that this commit adds to the tenant's index: a run began, or a run ended at this head."""
        lines: list[tuple[str, dict[str, Any]]] = []
        if self._pending and self._pending[0].seq == 1:
            lines.append(("run.indexed", {"run": self.run_id}))
        if self._pending and self._pending[-1].kind == "run.ended":
            lines.append(("run.closed", {"run": self.run_id, "entries": self._seq, "head": self._head}))
        return tuple(
            (INDEX, Draft(kind, self.run_id, self._now_us, "runtime", canonical(body), live.entropy.take(16)))
            for kind, body in lines
        )

    async def wait(
        self, kinds: Sequence[str], key: str, *, wake_at_us: int, on_timeout: Timeout | None
    ) -> tuple[str, Any]:
        """Return the entry that another process appended for `key`; append `on_timeout` when it is late; or park."""
        while not self.on_tape:
            if self._live is None:
                raise ReplayMismatch(self._seq + 1, kinds[0], "the tape ends while the run waits")
            if on_timeout is not None and self._live.clock.now_us() >= wake_at_us:
                return await self._time_out(key, wake_at_us, on_timeout)
            if not self._live.can_suspend:
                raise Parked(wake_at_us)
            await Rest(wake_at_us)
        entry = self._next()
        if entry.kind not in kinds:
            raise ReplayMismatch(entry.seq, entry.kind, f"the loop waits for one of {sorted(kinds)}")
        if entry.kind != "run.cancel_requested" and entry.key != key:
            raise ReplayMismatch(entry.seq, entry.kind, f"it answers `{entry.key}`, the loop waits for `{key}`")
        return entry.kind, self._take(entry)["answer"]

    def goes_on(self, entries: Sequence[Entry], heads: Sequence[SignedHead], lease_version: int) -> bool:
        """Take in the entries that people appended while the run was suspended. False if anything else has changed.

        Nothing has changed if the store has exactly the known entries, under the head that was signed last; these need
        no second verification.
        """
        known = len(self._tape)
        appended = entries[known:]
        as_left = list(entries[:known]) == self._tape and tuple(heads[-1:]) == (self._signed,)
        if self._live is None or not as_left or any(entry.kind not in UNSIGNED_KINDS for entry in appended):
            return False
        verify_chain(self.tenant, self.run_id, appended, after=self._tape[-1])
        self._tape.extend(appended)
        self._live.lease_version, self._announce = lease_version, True
        return True

    async def _time_out(self, key: str, wake_at_us: int, on_timeout: Timeout) -> tuple[str, Any]:
        self._go_live(on_timeout.kind)
        body = {"request_digest": content_address({"deadline_us": wake_at_us}), "answer": {"expired": True}}
        self._append(on_timeout.kind, key, "runtime", body)
        self.stage(*on_timeout.writes)
        await self.commit()
        return on_timeout.kind, self._log[-1].body

    def _go_live(self, kind: str) -> None:
        if self._live is None:
            raise ReplayMismatch(self._seq + 1, kind, "the loop goes on where the tape ends")
        self._skip_resumed()
        if self._announce:
            self._announce = False
            body = {"request_digest": content_address({}), "answer": {"cause": self._live.cause}}
            self._append("run.resumed", "", self._live.owner, body)

    def _append(self, kind: str, key: str, by: str, body: Any) -> None:
        assert self._live is not None
        if self._seq >= MAX_ENTRIES:
            raise ChainBroken(self.run_id, self._seq, f"a run holds at most {MAX_ENTRIES} entries")
        at_us = max(self._live.clock.now_us(), self._now_us)
        raw = canonical(body)
        entry = link(
            self.tenant,
            self.run_id,
            self._seq + 1,
            self._head,
            Draft(kind, key, at_us, by, raw, self._live.entropy.take(16)),
        )
        # The answer that is used is the one that was written: the caller could still change its own object.
        self._push(entry, orjson.loads(raw) if KINDS[kind].recorded else body)
        self._pending.append(entry)
        self._tape.append(entry)
        self._at += 1

    def _next(self) -> Entry:
        self._skip_resumed()
        return self._tape[self._at]

    def _past_resumed(self) -> int:
        at = self._at
        while at < len(self._tape) and self._tape[at].kind == "run.resumed":
            at += 1
        return at

    def _skip_resumed(self) -> None:
        for entry in self._tape[self._at : self._past_resumed()]:
            self._take(entry)

    def _take(self, entry: Entry) -> Any:
        if entry.body is None:
            raise ReplayMismatch(
                entry.seq, entry.kind, "its body was erased, and a recorded answer cannot be derived again"
            )
        # A process that can only append must not be able to crash the loop with a malformed answer.
        try:
            body = orjson.loads(entry.body)
        except orjson.JSONDecodeError:
            body = None
        answer = body.get("answer") if isinstance(body, dict) else None
        if not isinstance(answer, dict | list) or "request_digest" not in body:
            raise ReplayMismatch(entry.seq, entry.kind, "it holds no answer; stop and find out which process wrote it")
        self._at += 1
        self._push(entry, body)
        return body

    def _read_recorded(self, kind: str, key: str, request: Any) -> Any:
        return self._take_answer(self._expect(kind, key), request)

    def _take_answer(self, entry: Entry, request: Any) -> Any:
        body = self._take(entry)
        if body["request_digest"] != content_address(request):
            raise ReplayMismatch(entry.seq, entry.kind, f"`{entry.key}` asks something else than was recorded")
        return self._log[-1].body

    def _compare_derived(self, kind: str, key: str, body: Any) -> None:
        entry = self._expect(kind, key)
        raw = canonical(body)
        if entry.body is None:
            self.missing.append(entry.seq)
        elif raw != entry.body:
            raise ReplayMismatch(entry.seq, kind, _first_difference(loads(entry.body, max_bytes=1 << 26), body))
        self._at += 1
        self._push(entry, body)

    def _expect(self, kind: str, key: str) -> Entry:
        entry = self._next()
        if (entry.kind, entry.key) != (kind, key):
            raise ReplayMismatch(
                entry.seq, entry.kind, f"the loop has `{kind}` of `{key}` where the tape has `{entry.key}`"
            )
        return entry

    def _push(self, entry: Entry, body: Any) -> None:
        seen = body["answer"] if KINDS[entry.kind].recorded else body
        state = self._step(self.state, entry.kind, seen)
        if state is None:
            raise ReplayMismatch(entry.seq, entry.kind, f"the run table refuses it in state `{self.state}`")
        self.state = state
        self._head, self._seq, self._now_us = entry.hash, entry.seq, entry.at_us
        self._log.append(Logged(entry.seq, entry.kind, entry.key, entry.at_us, entry.by, seen, entry.hash))


def _first_difference(recorded: Any, derived: Any, where: str = "") -> str:
    """The pointer of the first place where two JSON values differ."""
    if isinstance(recorded, dict) and isinstance(derived, dict):
        for name in sorted(recorded.keys() | derived.keys()):
            if recorded.get(name) != derived.get(name):
                return _first_difference(recorded.get(name), derived.get(name), f"{where}/{name}")
    if isinstance(recorded, list) and isinstance(derived, (list, tuple)) and len(recorded) == len(derived):
        for index, (one, other) in enumerate(zip(recorded, derived, strict=True)):
            if one != other:
                return _first_difference(one, other, f"{where}/{index}")
    return f"differs from what was recorded at `{where or '/'}`"
