"""Who could sign when: the people and the versions of the directory as `control` states them, sealed by the runtime.

A record states the keys of the person who signed it, but a process that can write the record could write other keys. So
a person who signs is stated in `control` before anything rests on them, under the seal of acts, and again when the
directory lists them otherwise or not any more. A signature counts only with a key of the line that is in force.
Source: docs/adr/0062-who-signed-is-proved-by-control.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from contextos.contracts.acts import ActSeal, ListedPerson, UsedDirectory
from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import Approver
from contextos.contracts.journal import (
    CLOCK_MARGIN_US,
    CONTROL,
    DIRECTORY_USED,
    PERSON_LISTED,
    SALT_BYTES,
    Batch,
    Draft,
    Entry,
)
from contextos.contracts.ports.outside import Directory, Keys
from contextos.errors import ChainBroken
from contextos.trust.approvals.acts import read_sealed, sealed_act
from contextos.trust.pages import stream_pages
from contextos.trust.recorded_time import TimePorts, recorded_now_us

StatedT = TypeVar("StatedT")
ReadLines = Callable[..., Awaitable[Sequence[Entry]]]
"""Reads as `Store.lines`."""


class _UnsealedLine(NamedTuple):
    """A line of `control` to be written, without its seal."""

    kind: str
    key: str
    body: Mapping[str, Any]


_SKEW_US = 2 * CLOCK_MARGIN_US
"""How far the times of two entries can contradict their order, because two clocks made them."""


class SealingPorts(TimePorts, Protocol):
    """The ports that write sealed lines of `control`."""

    @property
    def keys(self) -> Keys: ...


class PeoplePorts(SealingPorts, Protocol):
    """The ports that list people and that seal how they are listed."""

    @property
    def directory(self) -> Directory: ...


async def signer(
    ports: PeoplePorts, tenant_id: str, person_id: str, looked: ReadLines | None = None
) -> Approver | None:
    """Return the person as the directory lists them now, or None. Before the return, `control` states this listing: a
    line is written unless the last line about the person, read with `looked`, states the same.

    Raises:
        Unavailable: the directory or the store did not answer; nothing rests on the person yet.
    """
    person = await ports.directory.approver(tenant_id, person_id)
    await state_person(ports, tenant_id, person_id, person, looked)
    return person


async def state_person(
    ports: SealingPorts, tenant_id: str, person_id: str, person: Approver | None, looked: ReadLines | None = None
) -> None:
    """Let `control` state how the directory lists `person` (None: not any more), if its last line says otherwise."""
    await _commit(ports, tenant_id, await unstated_person(ports, tenant_id, person_id, person, looked))


async def unstated_person(
    ports: SealingPorts, tenant_id: str, person_id: str, person: Approver | None, looked: ReadLines | None = None
) -> tuple[Draft, ...]:
    """Return the line of `control` that states how the directory lists `person`; empty if its last line says so."""
    lines = await (looked or ports.stores.tenant(tenant_id).lines)(CONTROL, person_id)
    if _newest_person(lines, ports.keys) == person:
        return ()
    return await _seal_lines(ports, tenant_id, [_listing(person_id, person)])


async def state_directory(
    ports: SealingPorts, tenant_id: str, version: int, digest: str, approvers: Mapping[str, Approver], *, write: bool
) -> tuple[int, str]:
    """Return the newest version of a signed directory that `control` states, with the digest of its content: (0, "") if
    there is none. If `write` allows it, a newer `version` is stated before this returns. The same commit states each
    person in force whom `approvers` list otherwise, or not any more.

    If two processes state a version at the same time, the line that comes first counts. So both look again.
    """
    store = ports.stores.tenant(tenant_id)
    newest = _newest_directory(await store.lines(CONTROL, DIRECTORY_USED), ports.keys)
    if not write or version <= newest[0]:
        return newest
    people: dict[str, list[Entry]] = {}
    async for page in stream_pages(store, CONTROL):
        for line in page:
            if line.kind == PERSON_LISTED:
                people.setdefault(line.key, []).append(line)
    in_force = {name: _newest_person(lines, ports.keys) for name, lines in people.items()}
    changed_people = [
        _listing(name, approvers.get(name)) for name, old in in_force.items() if old not in (None, approvers.get(name))
    ]
    directory_line = _UnsealedLine(DIRECTORY_USED, DIRECTORY_USED, {"version": version, "digest": digest})
    await _commit(ports, tenant_id, await _seal_lines(ports, tenant_id, [*changed_people, directory_line]))
    return _newest_directory(await store.lines(CONTROL, DIRECTORY_USED), ports.keys)


def _listing(person_id: str, person: Approver | None) -> _UnsealedLine:
    return _UnsealedLine(PERSON_LISTED, person_id, {"person": person.to_json() if person else None})


async def _seal_lines(ports: SealingPorts, tenant_id: str, lines: Iterable[_UnsealedLine]) -> tuple[Draft, ...]:
    at_us = await recorded_now_us(ports, tenant_id)
    drafts = []
    for kind, key, body in lines:
        draft = Draft(kind, key, at_us, "runtime", b"", ports.entropy.take(SALT_BYTES))
        drafts.append(sealed_act(tenant_id, draft, body, ports.keys))
    return tuple(drafts)


async def _commit(ports: SealingPorts, tenant_id: str, drafts: Sequence[Draft]) -> None:
    if drafts:
        shared = tuple((CONTROL, draft) for draft in drafts)
        await ports.stores.tenant(tenant_id).commit(Batch(run=CONTROL, shared=shared))


def _newest_person(lines: Sequence[Entry], keys: Keys) -> Approver | None:
    """Return the person as the newest sealed line states them; None also if there is no such line."""
    for line in reversed(lines):
        if line.kind == PERSON_LISTED:
            try:
                return read_person(line, keys).person
            except ChainBroken:
                # Anybody who writes to the store can add such a line, and `verify` names it.
                continue
    return None


def _newest_directory(lines: Sequence[Entry], keys: Keys) -> tuple[int, str]:
    # The highest sealed version counts, and the first of two lines about it: mostly one signature is verified.
    for line in sorted(lines, key=lambda row: (-_stated_version(row), row.seq)):
        with suppress(ChainBroken):
            directory = _read_directory(line, keys)
            return directory.version, directory.digest
    return 0, ""


def _stated_version(line: Entry) -> int:
    """Return the version that a line states, also an unsealed line; 0 for a line without a version."""
    return 0 if body_fault(CONTROL, line.kind, line.body or b"") else int(read_body(line).get("version", 0))


def _read_directory(line: Entry, keys: Keys) -> UsedDirectory:
    if (line.kind, line.by) != (DIRECTORY_USED, "runtime"):
        raise ChainBroken(CONTROL, line.seq, f"is not a `{DIRECTORY_USED}` of the runtime")
    return read_sealed(line, UsedDirectory, keys)


def read_person(line: Entry, keys: Keys) -> ListedPerson:
    """Return what a line of `control` states about a person, sealed by the runtime. Raises `ChainBroken`."""
    listing = read_sealed(line, ListedPerson, keys)
    if line.by != "runtime" or (listing.person is not None and listing.person.approver_id != line.key):
        raise ChainBroken(CONTROL, line.seq, "states another person than its key names")
    return listing


class ListedPeople:
    """The people and the directory of a tenant as lines of `control` state them, in the order of the lines.

    Raises:
        ChainBroken: from `add`: a line is not sealed, or is a copy of an earlier one.
    """

    def __init__(self, keys: Keys, lines: Iterable[Entry] = ()) -> None:
        self._keys, self._seals = keys, set[str]()
        self._lines: dict[str, list[tuple[int, Approver | None]]] = {}
        self._versions: list[tuple[int, int]] = []
        for line in lines:
            self.add(line)

    def add(self, line: Entry) -> None:
        """Add a line of `control`. A line of another kind is ignored."""
        if line.kind == PERSON_LISTED:
            listing = read_person(line, self._keys)
            self._lines.setdefault(line.key, []).append((line.at_us, listing.person))
            self._refuse_copy(line, listing.seal)
        elif line.kind == DIRECTORY_USED:
            directory = _read_directory(line, self._keys)
            # A version that is not newer, stated at the same time, counted for nobody.
            if not self._versions or directory.version > self._versions[-1][1]:
                self._versions.append((line.at_us, directory.version))
            self._refuse_copy(line, directory.seal)

    def _refuse_copy(self, line: Entry, seal: ActSeal) -> None:
        if seal.signature in self._seals:
            raise ChainBroken(CONTROL, line.seq, f"is a copy of an earlier `{line.kind}`")
        self._seals.add(seal.signature)

    def in_force(self, person_id: str, since_us: int, until_us: int) -> list[Approver]:
        """Return how the person was listed between two times (Unix microseconds), newest first; empty for nobody."""
        people = _in_force_between(self._lines.get(person_id, ()), since_us, until_us)
        return [person for person in people if person is not None]

    def versions(self, since_us: int, until_us: int) -> list[int]:
        """Return the versions of the directory that were used between two times (Unix microseconds), newest first."""
        return list(_in_force_between(self._versions, since_us, until_us))


def _in_force_between(lines: Sequence[tuple[int, StatedT]], since_us: int, until_us: int) -> Iterator[StatedT]:
    """Yield the statements in force between two times, newest first. Each statement ends the one before it."""
    end_us = inf
    for at_us, statement in reversed(lines):
        if counts_between(at_us, end_us, since_us, until_us):
            yield statement
        end_us = at_us


def counts_between(at_us: int, end_us: float, since_us: int, until_us: int) -> bool:
    """Return whether a statement made at `at_us` and replaced at `end_us` (infinite: not yet) was in force between two
    times (Unix microseconds), with a margin for two clocks.
    """
    return at_us <= until_us + _SKEW_US and end_us > since_us - _SKEW_US
