"""The journal's nouns: an entry, what links entries to a chain, and one atomic commit.

A stream is append-only and hash-chained. A tenant has one stream per run (named by its run id) and
two of its own: `index` (its runs, without gaps) and `control` (operator acts). The chain covers a
salted digest of each body, so a body can be erased by law and the chain still verifies.
Source: shared/design/journal.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

ENTRY_FORMAT: Final = 1
SEMANTICS: Final = 1
"""Pinned by every run; replay refuses a number that it does not know."""

INDEX: Final = "index"
CONTROL: Final = "control"

Ledger = str
CONTEXT, EFFECT, DECISION, NONE = "context", "effect", "decision", "none"


class Kind(NamedTuple):
    """What a kind of entry fixes: its ledger, and whether it is recorded (an answer from outside) or derived."""

    ledger: Ledger
    recorded: bool


KINDS: Final[dict[str, Kind]] = {
    "run.received": Kind(NONE, True),
    "run.resumed": Kind(NONE, True),
    "run.cancel_requested": Kind(NONE, True),
    "identity.resolved": Kind(CONTEXT, True),
    "run.pinned": Kind(CONTEXT, True),
    "run.context": Kind(CONTEXT, False),
    "intent.resolved": Kind(DECISION, False),
    "slot.asked": Kind(CONTEXT, False),
    "slot.answered": Kind(CONTEXT, True),
    "slot.selected": Kind(CONTEXT, True),
    "evidence.retrieved": Kind(CONTEXT, True),
    "memory.recalled": Kind(CONTEXT, True),
    "policy.decided": Kind(DECISION, False),
    "context.compiled": Kind(CONTEXT, False),
    "plan.proposed": Kind(DECISION, False),
    "plan.verified": Kind(DECISION, False),
    "session.checkpointed": Kind(NONE, False),
    "act.looked_up": Kind(EFFECT, True),
    "tool.refused": Kind(EFFECT, False),
    "tool.dispatching": Kind(EFFECT, False),
    "tool.returned": Kind(EFFECT, True),
    "effect.settled": Kind(EFFECT, True),
    "checkpoint.checked": Kind(DECISION, False),
    "evidence.frozen": Kind(EFFECT, False),
    "evidence.rechecked": Kind(EFFECT, True),
    "approval.asked": Kind(EFFECT, False),
    "approval.answered": Kind(EFFECT, True),
    "approval.expired": Kind(EFFECT, True),
    "approval.voided": Kind(EFFECT, False),
    "run.scored": Kind(DECISION, False),
    "memory.proposed": Kind(CONTEXT, False),
    "record.revised": Kind(DECISION, False),
    "replay.packed": Kind(DECISION, False),
    "run.ended": Kind(NONE, False),
}


class Draft(NamedTuple):
    """An entry that is not yet linked. `body` is canonical JSON; `salt` is 16 random bytes."""

    kind: str
    key: str
    at_us: int
    by: str
    body: bytes
    salt: bytes


class Entry(NamedTuple):
    """A linked entry. `body` and `salt` are None once erased; `at_us` is Unix time in microseconds."""

    tenant: str
    run: str
    seq: int
    kind: str
    key: str
    at_us: int
    by: str
    body_digest: str
    prev_hash: str
    hash: str
    body: bytes | None
    salt: bytes | None
    v: int = ENTRY_FORMAT


def body_digest(salt: bytes, body: bytes) -> str:
    """The salted digest that the chain covers: sha256(salt || body)."""
    return "sha256:" + hashlib.sha256(salt + body).hexdigest()


def genesis(tenant: str, run: str) -> str:
    """The hash that entry 1 links to; it binds tenant and run."""
    return _hash({"genesis": ENTRY_FORMAT, "tenant": tenant, "run": run})


def link(tenant: str, run: str, seq: int, prev_hash: str, draft: Draft) -> Entry:
    """Give `draft` its place in a stream. `seq` counts from 1."""
    digest = body_digest(draft.salt, draft.body)
    header = {
        "v": ENTRY_FORMAT,
        "tenant": tenant,
        "run": run,
        "seq": seq,
        "kind": draft.kind,
        "key": draft.key,
        "at_us": draft.at_us,
        "by": draft.by,
        "body_digest": digest,
        "prev_hash": prev_hash,
    }
    return Entry(
        tenant=tenant,
        run=run,
        seq=seq,
        kind=draft.kind,
        key=draft.key,
        at_us=draft.at_us,
        by=draft.by,
        body_digest=digest,
        prev_hash=prev_hash,
        hash=_hash(header),
        body=draft.body,
        salt=draft.salt,
    )


def open_header(tenant: str, run: str, digest: str, draft: Draft) -> tuple[str, str, str]:
    """What the hash of `draft` covers, in three parts: `prev_hash` goes after the first and `seq` after the second.

    For a store that finds both where the entry is inserted, and hashes there. `digest` is the draft's `body_digest`.
    """
    before = {"at_us": draft.at_us, "body_digest": digest, "by": draft.by, "key": draft.key, "kind": draft.kind}
    return (
        _spelled(before)[:-1] + ',"prev_hash":"',
        '",' + _spelled({"run": run})[1:-1] + ',"seq":',
        "," + _spelled({"tenant": tenant, "v": ENTRY_FORMAT})[1:],
    )


def header_hash(entry: Entry) -> str:
    """What `entry.hash` must be, recomputed from the entry's own header."""
    return _hash(
        {
            "v": entry.v,
            "tenant": entry.tenant,
            "run": entry.run,
            "seq": entry.seq,
            "kind": entry.kind,
            "key": entry.key,
            "at_us": entry.at_us,
            "by": entry.by,
            "body_digest": entry.body_digest,
            "prev_hash": entry.prev_hash,
        }
    )


def _hash(header: dict[str, Any]) -> str:
    # Only texts and integers under ASCII keys: orjson's sorted output is RFC 8785 as it is.
    return "sha256:" + hashlib.sha256(orjson.dumps(header, None, orjson.OPT_SORT_KEYS)).hexdigest()


def _spelled(part: dict[str, Any]) -> str:
    return orjson.dumps(part, None, orjson.OPT_SORT_KEYS).decode()


@dataclass(frozen=True, slots=True)
class Write:
    """One compare-and-set of a document.

    `expect` is the version that must be there now; 0 means absent. `body` None deletes nothing and only
    checks. The write also fails if the store's own clock is past `not_after_us`, or before `not_before_us`.
    """

    collection: str
    key: str
    expect: int
    body: bytes | None
    not_after_us: int | None = None
    not_before_us: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A document as stored: `version` counts from 1 with every write."""

    collection: str
    key: str
    version: int
    body: bytes


SignedHead = tuple[int, str, str, str]
"""A signed head of a stream: seq, hash, kid, signature in hex."""


class WitnessedHead(NamedTuple):
    """Where a tenant's stream stood at `at_us` (Unix time in microseconds), signed by the runtime as heads are."""

    tenant: str
    stream: str
    seq: int
    hash: str
    kid: str
    signature: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One atomic commit: it happens whole, or `Conflict` says what stood in the way and nothing happened.

    `entries` continue stream `run` at exactly the sequence they carry. `shared` drafts are linked by the
    store to the heads of the tenant's `index` or `control` stream. `wake_at_us` is when `due` shall name
    this run (None leaves it as it is, 0 means never again). `signature` is a signed head of the run's stream
    (kid, hex) and lies outside the chain. A lease is a document in `leases` and its version is the fencing
    token: every batch of a driver carries the write that renews it.
    """

    run: str
    entries: tuple[Entry, ...] = ()
    writes: tuple[Write, ...] = ()
    shared: tuple[tuple[str, Draft], ...] = ()
    wake_at_us: int | None = None
    signature: tuple[str, str] | None = None


class Logged(NamedTuple):
    """An entry as the loop sees it: its body parsed. Of an asked entry, `body` is the answer."""

    seq: int
    kind: str
    key: str
    at_us: int
    by: str
    body: Any
    hash: str


@dataclass(frozen=True, slots=True)
class Timeout:
    """What the loop itself records when nobody answered in time, and the writes that arbitrate it."""

    kind: str
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class Rest:
    """Awaited by a loop that waits: it reaches the driver, who drives on when an answer may be there.

    Nothing depends on its being kept: a loop that is dropped here is derived again from its journal.
    """

    wake_at_us: int

    def __await__(self) -> Generator[Rest, None, None]:
        yield self


class Parked(Exception):
    """The run waits and its drive ends here. `wake_at_us` 0: until somebody wakes it. Only drivers catch this."""

    def __init__(self, wake_at_us: int) -> None:
        self.wake_at_us = wake_at_us
        super().__init__(f"parked until {wake_at_us}")


@dataclass(frozen=True, slots=True)
class Advance:
    """How far one drive came. `wake_at_us` is None when the run has ended, 0 when only an answer wakes it."""

    state: str
    wake_at_us: int | None
