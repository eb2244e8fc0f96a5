"""The tape: the entries of a run that were recorded before, which are read back and compared.

`ledger.RunJournal` goes on from its end. Source: docs/design/journal.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import orjson

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.kinds import fold_entry
from contextos.contracts.entries.linked import entries_size
from contextos.contracts.journal import Entry, Logged, genesis, new_tuple
from contextos.errors import ReplayMismatch
from contextos.trust.journal.live_driver import LiveDriver

NO_QUESTION: Final = content_address({})
"""The digest of a request that the kind and key of the entry state in full, or of no request. No entry states it."""

_kind, _place = attrgetter("kind"), attrgetter("kind", "key")

Transition = Callable[[str, str, Mapping[str, Any]], str | None]
"""(state, kind, body) -> next state, or None where the run table refuses."""


def digest_of(request: Any) -> str:
    """Return the digest of a request."""
    return content_address(request) if request != {} else NO_QUESTION


class Tape:
    """The recorded entries of one run, read in order. Each moves the run on in its table.

    Refuses an entry that the run's state does not allow, or that differs from what the run computes again.
    """

    def __init__(self, tenant: str, run: str, tape: Sequence[Entry], step: Transition, start: str) -> None:
        self.tenant, self.run_id, self.state = tenant, run, start
        self.missing: list[int] = []
        self._tape, self._step = list(tape), step
        self._at, self._tape_end, self._read_count = 0, tape_end(tape), len(tape)
        # The last entry so far. Before the first entry: an empty one, to which the first is linked.
        self._last = Entry(tenant, run, 0, "", "", 0, "", "", "", genesis(tenant, run), None, None)
        self._behind_us = 0
        self._log: list[Logged] = []
        self.account = RunAccount(run)
        self._sized = self._bytes = self._noted = 0
        self._stored = set[tuple[str, ...]]()

    @property
    def now_us(self) -> int:
        """Return the time of the last journal entry in Unix microseconds. A run reads no other clock."""
        return self._last.at_us

    @property
    def clock_us(self) -> int:
        """Return `now_us` by the clock of the process that wrote the last entry, which can be behind the record."""
        return self._last.at_us - self._behind_us

    @property
    def on_tape(self) -> bool:
        """Return whether the next entry was recorded by an earlier drive of the run, so that it is only replayed now.

        Reading this changes nothing. A `run.resumed` entry is consumed together with the entry after it, because both
        were written at the same time.
        """
        return self._at < self._tape_end

    @property
    def head(self) -> str:
        """Return the hash of the last entry."""
        return self._last.hash

    def log(self) -> Sequence[Logged]:
        """Return every entry so far, in order, with its parsed body."""
        return self._log

    @property
    def entries(self) -> Sequence[Entry]:
        """Return every entry as it is stored; in a replay also the entries that are not read yet."""
        return self._tape

    def stored_bytes(self) -> int:
        """Return about how many bytes all entries take."""
        # Entries are only added, so each is counted once.
        self._bytes += entries_size(self._tape[self._sized :])
        self._sized = len(self._tape)
        return self._bytes

    def has(self, kind: str, *key: str) -> bool:
        """Return whether there is an entry of a kind, with this key if a key is given. In a replay, entries that are
        not read yet count, too.
        """
        # Entries are only added, so a session of many calls does not look through all of them at each call.
        new = self._tape[self._noted :]
        self._noted += len(new)
        self._stored.update(zip(map(_kind, new)), map(_place, new))
        return (kind, *key) in self._stored

    def _next(self) -> Entry:
        self._skip_resumed()
        return self._tape[self._at]

    def _ahead(self) -> Entry:
        at = self._at
        while self._tape[at].kind == "run.resumed":
            at += 1
        return self._tape[at]

    def _skip_resumed(self) -> None:
        while self._at < self._read_count and self._tape[self._at].kind == "run.resumed":
            self._take(self._tape[self._at])

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
        if not isinstance(answer, dict | list):
            raise ReplayMismatch(entry.seq, entry.kind, "it holds no answer; stop and find out which process wrote it")
        self._at += 1
        self._push(entry, answer)
        return body

    def _read_recorded(self, kind: str, key: str, request: Any) -> Any:
        return self._take_answer(self._expect(kind, key), request)

    def _take_answer(self, entry: Entry, request: Any) -> Any:
        body = self._take(entry)
        if body.get("request_digest", NO_QUESTION) != digest_of(request):
            raise ReplayMismatch(entry.seq, entry.kind, f"`{entry.key}` asks something else than was recorded")
        return self._log[-1].body

    def _compare_derived(self, kind: str, key: str, body: Any) -> None:
        entry = self._expect(kind, key)
        raw = canonical(body)
        if entry.body is None:
            self.missing.append(entry.seq)
        elif raw != entry.body:
            raise ReplayMismatch(entry.seq, kind, first_difference(loads(entry.body, max_bytes=1 << 26), body))
        self._at += 1
        self._push(entry, body)

    def _expect(self, kind: str, key: str) -> Entry:
        if not self.on_tape:
            raise self._beyond_tape(kind)
        entry = self._next()
        if (entry.kind, entry.key) != (kind, key):
            raise ReplayMismatch(
                entry.seq, entry.kind, f"the loop has `{kind}` of `{key}` where the tape has `{entry.key}`"
            )
        return entry

    def _beyond_tape(self, kind: str) -> ReplayMismatch:
        """Return the error for a loop that goes on with an entry of a kind where nothing can be recorded."""
        return ReplayMismatch(self._last.seq + 1, kind, "the loop goes on where the tape ends")

    def _pass_over(self, entry: Entry) -> None:
        """Go on behind an entry that states nothing."""
        self._at += 1
        self._last = entry

    def _push(self, entry: Entry, seen: Any) -> None:
        """Go on behind an entry; `seen` is its body, or the answer in it."""
        kind = entry.kind
        state = self._step(self.state, kind, seen)
        if state is None:
            raise ReplayMismatch(entry.seq, kind, f"the run table refuses it in state `{self.state}`")
        self.state = state
        self._last = entry
        if kind == "run.resumed":
            self._behind_us = LiveDriver.stated_behind_us(seen)
        logged = new_tuple(Logged, (entry.seq, kind, entry.key, entry.at_us, entry.by, seen, entry.hash))
        self._log.append(logged)
        fold_entry(self.account, logged)


def tape_end(tape: Sequence[Entry]) -> int:
    """Return how many entries of `tape` the loop replays: all up to the last that is not a `run.resumed`."""
    end = len(tape)
    while end and tape[end - 1].kind == "run.resumed":
        end -= 1
    return end


def first_difference(recorded: Any, derived: Any, where: str = "") -> str:
    """Return a sentence that names the first place (JSON Pointer) where two JSON values differ, keys in order."""
    if isinstance(recorded, dict) and isinstance(derived, dict):
        for name in sorted(recorded.keys() | derived.keys()):
            if recorded.get(name) != derived.get(name):
                return first_difference(recorded.get(name), derived.get(name), f"{where}/{name}")
    if isinstance(recorded, list) and isinstance(derived, (list, tuple)) and len(recorded) == len(derived):
        for index, (one, other) in enumerate(zip(recorded, derived, strict=True)):
            if one != other:
                return first_difference(one, other, f"{where}/{index}")
    return f"differs from what was recorded at `{where or '/'}`"
