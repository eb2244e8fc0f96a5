"""What the owner of the database could alter in a journal without a key. `verify` must find each of it.

Each alteration is a copy of some streams as the owner would leave them; the store itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from random import Random
from typing import Any, Final

import orjson

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.bodies import ACT_ARGUMENTS, body_fault
from contextos.contracts.journal import CONTROL, INDEX, Draft, Entry, SignedHead, StoredRun, genesis, link
from contextos.contracts.ports.storage import Store
from contextos.deployment.queries.run_terms import run_terms
from contextos_sim import example
from contextos_sim.scheduler import immediately


@dataclass(frozen=True, slots=True)
class AlteredStore:
    """A store as it reads after an alteration: `streams`, `heads` and the terms of runs are in place of its own."""

    inner: Store
    streams: Mapping[str, Sequence[Entry]]
    heads: Mapping[str, Sequence[SignedHead]]
    terms_of: Mapping[int, frozenset[int]] = field(default_factory=dict)

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries of a stream behind `after`."""
        if stream not in self.streams:
            return await self.inner.read(stream, after=after, limit=limit)
        return [entry for entry in self.streams[stream] if entry.seq > after][:limit]

    async def read_run(self, run: str) -> StoredRun:
        """Return what is stored about a run."""
        stored = await self.inner.read_run(run)
        entries, heads, lines = await self.read(run), self.heads.get(run, stored.heads), await self.lines(INDEX, run)
        return stored._replace(entries=tuple(entries), heads=heads, lines=lines)

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        """Return the entries of a shared stream that have one of these keys."""
        return [entry for entry in await self.read(stream) if entry.key in keys]

    async def terms(self, first: int, last: int) -> Sequence[tuple[int, int, int]]:
        """Return (number, term, when the run began) of the runs with these numbers."""
        rows = await self.inner.terms(first, last)
        began = {number: at_us for number, _, at_us in rows if number in self.terms_of}
        fitting = [(number, term, at_us) for number, at_us in began.items() for term in self.terms_of[number]]
        return sorted([*(row for row in rows if row[0] not in began), *fitting])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


Alteration = Callable[[Random, Store, str], AlteredStore | None]
"""Takes the store and a run that ended. None if there is nothing of the kind to alter."""


def _body_changed(rng: Random, store: Store, run: str) -> AlteredStore | None:
    """An entry says something else, in a body that the runtime could have written there."""
    stream = rng.choice((run, INDEX, CONTROL))
    return _with_entry(rng, store, stream, lambda entry: entry._replace(body=_other_body(rng, entry)))


def _salt_moved(rng: Random, store: Store, run: str) -> AlteredStore | None:
    """The first byte of a body becomes the last of its salt."""

    def move(entry: Entry) -> Entry:
        assert entry.body is not None and entry.salt is not None, "nothing is erased in a simulation"
        return entry._replace(body=entry.body[1:], salt=entry.salt + entry.body[:1])

    return _with_entry(rng, store, rng.choice((run, INDEX, CONTROL)), move)


def _body_emptied(rng: Random, store: Store, run: str) -> AlteredStore | None:
    return _with_entry(
        rng, store, rng.choice((run, INDEX, CONTROL)), lambda entry: entry._replace(body=None, salt=None)
    )


def _entry_removed(rng: Random, store: Store, run: str) -> AlteredStore | None:
    entries = _read(store, run)
    gone = rng.choice(entries)
    return AlteredStore(store, {run: [one for one in entries if one is not gone]}, {})


def _run_cut(rng: Random, store: Store, run: str) -> AlteredStore | None:
    """The run goes back to an earlier head that the runtime signed, and a search finds it as it was then."""
    heads = immediately(store.read_run(run)).heads
    if len(heads) < 2:
        return None
    seq = rng.choice(heads[:-1])[0]
    entries, (begun, *_) = _read(store, run)[:seq], immediately(store.lines(INDEX, run))
    terms = immediately(run_terms(store, entries, example.keys()))
    return AlteredStore(store, {run: entries}, {run: [one for one in heads if one[0] <= seq]}, {begun.seq: terms})


def _chain_forged(rng: Random, store: Store, run: str) -> AlteredStore | None:
    """An entry of the run says something else, and its chain and the index are computed again."""
    entries, index = _read(store, run), _read(store, INDEX)
    at = rng.choice(entries)
    forged = _relinked(entries, at, lambda _: _other_body(rng, at))
    hashes = {old.hash.encode(): new.hash.encode() for old, new in zip(entries, forged, strict=True)}
    for line in [line for line in index if line.key == run]:
        index = _relinked(index, index[line.seq - 1], lambda body: _replaced(body, hashes))
    return AlteredStore(store, {run: forged, INDEX: index}, {})


def _act_forged(rng: Random, store: Store, _: str) -> AlteredStore | None:
    """An operator's act says something else, and the chain is computed again."""
    entries = _read(store, CONTROL)
    act = rng.choice([entry for entry in entries if entry.kind in ACT_ARGUMENTS])
    forged = _relinked(entries, act, lambda _: _other_body(rng, act))
    return AlteredStore(store, {CONTROL: forged}, {})


ALTERATIONS: Final[dict[str, Alteration]] = {
    "body changed": _body_changed,
    "salt moved": _salt_moved,
    "body emptied": _body_emptied,
    "entry removed": _entry_removed,
    "run cut": _run_cut,
    "chain forged": _chain_forged,
    "act forged": _act_forged,
}


def _read(store: Store, stream: str) -> Sequence[Entry]:
    entries: Sequence[Entry] = immediately(store.read(stream))
    return entries


def _with_entry(rng: Random, store: Store, stream: str, change: Callable[[Entry], Entry]) -> AlteredStore:
    entries = list(_read(store, stream))
    at = rng.randrange(len(entries))
    entries[at] = change(entries[at])
    return AlteredStore(store, {stream: entries}, {})


def _relinked(entries: Sequence[Entry], at: Entry, change: Callable[[bytes], bytes]) -> list[Entry]:
    """The stream with another body of entry `at`, linked again."""
    made: list[Entry] = []
    for entry in entries:
        assert entry.body is not None and entry.salt is not None, "nothing is erased in a simulation"
        body = change(entry.body) if entry is at else entry.body
        head = made[-1].hash if made else genesis(at.tenant, at.run)
        draft = Draft(entry.kind, entry.key, entry.at_us, entry.by, body, entry.salt)
        made.append(link(at.tenant, at.run, entry.seq, head, draft))
    return made


def _other_body(rng: Random, entry: Entry) -> bytes:
    """The body of an entry with one other value, in a form that is canonical and of its kind. So no check of the form
    finds it. With a space behind it if no value of it can be another one.
    """
    assert entry.body is not None, "nothing is erased in a simulation"
    places = list(_values(orjson.loads(entry.body)))
    for place in rng.sample(places, len(places)):
        body = canonical(_changed(orjson.loads(entry.body), place))
        if body_fault(entry.run, entry.kind, body) is None:
            return body
    return entry.body + b" "


def _values(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of the texts, numbers and truth values in a body, each by its names and numbers from outside in."""
    if isinstance(value, dict | list):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _values(one, (*place, name))
    elif value is not None and place:
        yield place


def _changed(body: Any, place: Sequence[Any]) -> Any:
    within = reduce(getitem, place[:-1], body)
    value = within[place[-1]]
    if isinstance(value, bool):
        within[place[-1]] = not value
    elif isinstance(value, str):
        within[place[-1]] = value[:-1] + ("1" if value.endswith("0") else "0")
    else:
        within[place[-1]] = value + 1
    return body


def _replaced(body: bytes, hashes: Mapping[bytes, bytes]) -> bytes:
    for old, new in hashes.items():
        body = body.replace(old, new)
    return body
