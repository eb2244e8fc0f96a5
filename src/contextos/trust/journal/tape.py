"""The tape: the entries of a run that were recorded before, which are read back and compared.

`ledger.RunJournal` records new entries after the end of the tape. Source: docs/design/journal.md.
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

_kind_of, _kind_and_key_of = attrgetter("kind"), attrgetter("kind", "key")

Transition = Callable[[str, str, Mapping[str, Any]], str | None]
"""(state, kind, body) -> next state, or None where the run table refuses."""


def digest_of(request: Any) -> str:
    """Return the digest of a request."""
    return content_address(request) if request != {} else NO_QUESTION


class Tape:
    """The recorded entries of one run, read in order. Each entry moves the run to its next state in the run table.

    Refuses an entry that the run's state does not allow, or that differs from what the run computes again.
    """

    def __init__(self, tenant: str, run: str, tape: Sequence[Entry], step: Transition, start: str) -> None:
        self.tenant, self.run_id, self.state = tenant, run, start
        self.missing: list[int] = []
        self._tape, self._step = list(tape), step
        self._position, self._tape_end, self._read_count = 0, tape_end(tape), len(tape)
        # The last entry so far. Before the first entry: an empty one, to which the first is linked.
        self._last = Entry(tenant, run, 0, "", "", 0, "", "", "", genesis(tenant, run), None, None)
        self._behind_us = 0
        self._log: list[Logged] = []
        self.account = RunAccount(run)
        self._sized_count = self._bytes = self._noted_count = 0
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
        return self._position < self._tape_end

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
        self._bytes += entries_size(self._tape[self._sized_count :])
        self._sized_count = len(self._tape)
        return self._bytes

    def has(self, kind: str, *key: str) -> bool:
        """Return whether there is an entry of a kind, with this key if a key is given. In a replay, entries that are
        not read yet count, too.
        """
        # Entries are only added, so a session of many calls does not look through all of them at each call.
        new_entries = self._tape[self._noted_count :]
        self._noted_count += len(new_entries)
        self._stored.update(zip(map(_kind_of, new_entries)), map(_kind_and_key_of, new_entries))
        return (kind, *key) in self._stored

    def _next_entry(self) -> Entry:
        self._skip_resumed()
        return self._tape[self._position]

    def _peek_entry(self) -> Entry:
        index = self._position
        while self._tape[index].kind == "run.resumed":
            index += 1
        return self._tape[index]

    def _skip_resumed(self) -> None:
        while self._position < self._read_count and self._tape[self._position].kind == "run.resumed":
            self._consume(self._tape[self._position])

    def _consume(self, entry: Entry) -> Any:
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
        self._position += 1
        self._apply_entry(entry, answer)
        return body

    def _read_recorded(self, kind: str, key: str, request: Any) -> Any:
        return self._consume_answer(self._expected_entry(kind, key), request)

    def _consume_answer(self, entry: Entry, request: Any) -> Any:
        body = self._consume(entry)
        if body.get("request_digest", NO_QUESTION) != digest_of(request):
            raise ReplayMismatch(entry.seq, entry.kind, f"`{entry.key}` asks something else than was recorded")
        return self._log[-1].body

    def _compare_derived(self, kind: str, key: str, body: Any) -> None:
        entry = self._expected_entry(kind, key)
        raw = canonical(body)
        if entry.body is None:
            self.missing.append(entry.seq)
        elif raw != entry.body:
            raise ReplayMismatch(entry.seq, kind, first_difference(loads(entry.body, max_bytes=1 << 26), body))
        self._position += 1
        self._apply_entry(entry, body)

    def _expected_entry(self, kind: str, key: str) -> Entry:
        if not self.on_tape:
            raise self._past_end(kind)
        entry = self._next_entry()
        if (entry.kind, entry.key) != (kind, key):
            raise ReplayMismatch(
                entry.seq, entry.kind, f"the loop has `{kind}` of `{key}` where the tape has `{entry.key}`"
            )
        return entry

    def _past_end(self, kind: str) -> ReplayMismatch:
        """Return the error for a loop that needs a new entry of a kind where nothing can be recorded."""
        return ReplayMismatch(self._last.seq + 1, kind, "the loop goes on where the tape ends")

    def _skip_entry(self, entry: Entry) -> None:
        """Move past an entry that is void: it changes no state."""
        self._position += 1
        self._last = entry

    def _apply_entry(self, entry: Entry, content: Any) -> None:
        """Move past an entry and apply it to state and account; `content` is its body, or the answer in it."""
        kind = entry.kind
        state = self._step(self.state, kind, content)
        if state is None:
            raise ReplayMismatch(entry.seq, kind, f"the run table refuses it in state `{self.state}`")
        self.state = state
        self._last = entry
        if kind == "run.resumed":
            self._behind_us = LiveDriver.stated_behind_us(content)
        logged = new_tuple(Logged, (entry.seq, kind, entry.key, entry.at_us, entry.by, content, entry.hash))
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
        for index, (recorded_item, derived_item) in enumerate(zip(recorded, derived, strict=True)):
            if recorded_item != derived_item:
                return first_difference(recorded_item, derived_item, f"{where}/{index}")
    return f"differs from what was recorded at `{where or '/'}`"
