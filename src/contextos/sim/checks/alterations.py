"""What the owner of the database could alter in a journal without a key. `verify` must find each of it.

Each alteration is a copy of some streams as the owner would leave them; the store itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.journal import CONTROL, INDEX, Draft, Entry, SignedHead, StoredRun, genesis, link
from contextos.contracts.ports.storage import Store
from contextos.sim.scheduler import immediately


@dataclass(frozen=True, slots=True)
class AlteredStore:
    """A store as it reads after an alteration: `streams` and `heads` are in place of its own."""

    inner: Store
    streams: Mapping[str, Sequence[Entry]]
    heads: Mapping[str, Sequence[SignedHead]]

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries of a stream behind `after`."""
        if stream not in self.streams:
            return await self.inner.read(stream, after=after, limit=limit)
        return [entry for entry in self.streams[stream] if entry.seq > after][:limit]

    async def read_run(self, run: str) -> StoredRun:
        """Return what is stored about a run."""
        stored = await self.inner.read_run(run)
        entries, heads, lines = await self.read(run), await self.signed_heads(run), await self.lines(INDEX, run)
        return stored._replace(entries=tuple(entries), heads=heads, lines=lines)

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        """Return the entries of a shared stream that have one of these keys."""
        return [entry for entry in await self.read(stream) if entry.key in keys]

    async def signed_heads(self, stream: str) -> Sequence[SignedHead]:
        """Return the signed heads of a stream."""
        return self.heads[stream] if stream in self.heads else await self.inner.signed_heads(stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


Alteration = Callable[[Random, Store, str], AlteredStore | None]
"""Takes the store and a run that ended. None if there is nothing of the kind to alter."""


def _body_changed(rng: Random, store: Store, run: str) -> AlteredStore | None:
    def change(entry: Entry) -> Entry:
        assert entry.body is not None, "nothing is erased in a simulation"
        return entry._replace(body=entry.body + b" ")

    return _with_entry(rng, store, rng.choice((run, INDEX, CONTROL)), change)


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
    """The run goes back to an earlier head that the runtime signed."""
    heads = immediately(store.signed_heads(run))
    if len(heads) < 2:
        return None
    seq = rng.choice(heads[:-1])[0]
    return AlteredStore(store, {run: _read(store, run)[:seq]}, {run: [one for one in heads if one[0] <= seq]})


def _chain_forged(rng: Random, store: Store, run: str) -> AlteredStore | None:
    """A body of the run is replaced, and its chain and the index are computed again."""
    entries, index = _read(store, run), _read(store, INDEX)
    forged = _relinked(entries, rng.choice(entries), lambda body: body + b" ")
    hashes = {old.hash.encode(): new.hash.encode() for old, new in zip(entries, forged, strict=True)}
    for line in [line for line in index if line.key == run]:
        index = _relinked(index, index[line.seq - 1], lambda body: _replaced(body, hashes))
    return AlteredStore(store, {run: forged, INDEX: index}, {})


def _act_forged(rng: Random, store: Store, _: str) -> AlteredStore | None:
    """The body of an operator's act is replaced, and the chain computed again."""
    entries = _read(store, CONTROL)
    act = rng.choice([entry for entry in entries if entry.kind in ACT_ARGUMENTS])
    forged = _relinked(entries, act, lambda body: body.replace(b'"arguments":{', b'"arguments":{"x":1,', 1))
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


def _replaced(body: bytes, hashes: Mapping[bytes, bytes]) -> bytes:
    for old, new in hashes.items():
        body = body.replace(old, new)
    return body
