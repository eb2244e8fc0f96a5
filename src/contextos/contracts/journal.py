"""The types of the journal: an entry, the hash that links it to the one before, and one atomic commit.

A stream is append-only and hash-chained. A tenant has one stream per run (named by its run id) and two of its own:
`index` (every run, without gaps) and `control` (what operators did). The chain covers a salted digest of each body, so
a body can be erased by law and the chain still verifies.
Source: docs/design/journal.md.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, NamedTuple

import orjson

from contextos.contracts.model import final_fields

_dumps: Final = orjson.dumps
new_tuple: Final = tuple.__new__
"""Makes a named tuple from its fields in order, without the cost of the Python function behind `Entry(...)`."""

ENTRY_FORMAT: Final = 1
SEMANTICS: Final = 10
"""The version of the rules under which new runs are made. Every run pins the version of its rules, and a runtime
refuses a version that it does not know.
"""
KNOWN_SEMANTICS: Final = (SEMANTICS,)

INDEX: Final = "index"
CONTROL: Final = "control"
SHARED_STREAMS: Final = (INDEX, CONTROL)
"""The streams that a tenant has besides its runs. Their bodies are never erased."""

ENTRY_ERASED: Final = "entry.erased"
"""The kind of the `control` entry with which the body of an entry is erased; its key is `erasure_key`."""

PERSON_LISTED: Final = "person.listed"
"""The kind of the `control` entry that states how the directory lists a person who signs; its key is the person's id.
"""

DIRECTORY_USED: Final = "directory.used"
"""The kind and the key of the `control` entry that states which version of a signed directory is used."""

SALT_BYTES: Final = 16

VOID_ANSWER: Final = "void"
"""The value in place of the kind of an answer, if the entry that somebody appended does not answer the waiting run."""

CLOCK_MARGIN_US: Final = 5_000_000
"""How far the clock of a process can be from the store's, in microseconds. A process whose clock is further ahead
writes no lease, and a process whose clock is further behind sends no effect. A call counts as "never sent" only when
its time and this margin are over by the store's clock."""

CONTEXT, EFFECT, DECISION, NONE = "context", "effect", "decision", "none"
LEDGERS: Final = (CONTEXT, EFFECT, DECISION)


class Draft(NamedTuple):
    """An entry that is not linked to a stream yet. `body` is canonical JSON; `salt` is 16 random bytes."""

    kind: str
    key: str
    at_us: int
    by: str
    body: bytes
    salt: bytes


_HEADER: Final = ("at_us", "body_digest", "by", "key", "kind", "prev_hash", "run", "seq", "tenant", "v")
"""The fields that the hash of an entry covers, in the order of RFC 8785: orjson writes texts and integers in that form.
"""
_header_of: Final = attrgetter(*_HEADER)


class Entry(NamedTuple):
    """An entry of a stream. `body` and `salt` are None after an erasure; `at_us` is Unix time in microseconds."""

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
    """Return the salted digest that the chain covers: SHA-256 of salt and body, each after its length in bytes.

    So no byte of the salt can count as a byte of the body. A salt has `SALT_BYTES` bytes.
    """
    return "sha256:" + sha256(b"%d:%b%d:%b" % (len(salt), salt, len(body), body)).hexdigest()


def erasure_key(run: str, seq: int) -> str:
    """Return the key of the `control` entry that records the erasure of one entry."""
    return f"{run}/{seq}"


def genesis(tenant: str, run: str) -> str:
    """Return the `prev_hash` of the first entry of a stream. It is derived from the tenant and the run."""
    return "sha256:" + sha256(_dumps({"genesis": ENTRY_FORMAT, "run": run, "tenant": tenant})).hexdigest()


def link(tenant: str, run: str, seq: int, prev_hash: str, draft: Draft) -> Entry:
    """Link `draft` to the end of a stream: return the entry with the number `seq` (from 1)."""
    kind, key, at_us, by, body, salt = draft
    digest = body_digest(salt, body)
    header = {
        "at_us": at_us,
        "body_digest": digest,
        "by": by,
        "key": key,
        "kind": kind,
        "prev_hash": prev_hash,
        "run": run,
        "seq": seq,
        "tenant": tenant,
        "v": ENTRY_FORMAT,
    }
    entry_hash = "sha256:" + sha256(_dumps(header)).hexdigest()
    return new_tuple(
        Entry, (tenant, run, seq, kind, key, at_us, by, digest, prev_hash, entry_hash, body, salt, ENTRY_FORMAT)
    )


def open_header(tenant: str, run: str, digest: str, draft: Draft) -> tuple[str, str, str]:
    """Return the text that the hash of `draft` covers, in three parts with two gaps.

    `prev_hash` belongs between the first and the second part, `seq` between the second and the third.

    A store uses the parts to compute the hash inside its insert, where `prev_hash` and `seq` become known. `digest` is
    the draft's `body_digest`.
    """
    known_fields = {"at_us": draft.at_us, "body_digest": digest, "by": draft.by, "key": draft.key, "kind": draft.kind}
    return (
        _header_json(known_fields)[:-1] + ',"prev_hash":"',
        '",' + _header_json({"run": run})[1:-1] + ',"seq":',
        "," + _header_json({"tenant": tenant, "v": ENTRY_FORMAT})[1:],
    )


def header_hash(entry: Entry) -> str:
    """Compute the hash of an entry's header; it must equal `entry.hash`."""
    return "sha256:" + sha256(_dumps(dict(zip(_HEADER, _header_of(entry), strict=True)))).hexdigest()


def _header_json(part: dict[str, Any]) -> str:
    return orjson.dumps(part, None, orjson.OPT_SORT_KEYS).decode()


@final_fields
class Write:
    """One compare-and-set of a document.

    `expect` is the required current version; 0 means that the document must not exist. With `body` None the version is
    checked and nothing is written. The write also fails if the store's clock is past `not_after_us` or before
    `not_before_us` (Unix time in microseconds).
    """

    collection: str
    key: str
    expect: int
    body: bytes | None
    not_after_us: int | None = None
    not_before_us: int | None = None


@final_fields
class Document:
    """A document as stored. `version` is 1 after the first write and rises with each further one."""

    collection: str
    key: str
    version: int
    body: bytes


SignedHead = tuple[int, str, str, str]
"""A signed head of a stream: seq, hash, kid, signature in hex."""


class StoredRun(NamedTuple):
    """The data of one run in a store at one moment: its entries, its signed heads, its lines of the stream `index`, and
    the document that says which process drives it (None: no document).
    """

    entries: tuple[Entry, ...]
    heads: Sequence[SignedHead]
    lines: Sequence[Entry]
    lease: Document | None


class Look(NamedTuple):
    """The result of `Store.look`: the documents that exist, by (collection, key), and lines of `control` in order."""

    documents: Mapping[tuple[str, str], Document]
    lines: Sequence[Entry]


class WitnessedHead(NamedTuple):
    """The last entry of a tenant's stream at `at_us` (Unix time in microseconds), signed by the runtime."""

    tenant: str
    stream: str
    seq: int
    hash: str
    kid: str
    signature: str
    at_us: int


class Sought(NamedTuple):
    """A search for runs by `Store.found`. A run fits if it has at least one term of each group in `terms`; the first
    group is a single term.

    The numbers of the runs are below `after` (0: no bound). The runs began at `from_us` or later and before `before_us`
    (Unix microseconds; None: no bound).
    """

    terms: Sequence[Sequence[int]]
    after: int = 0
    from_us: int = 0
    before_us: int | None = None


class TermChange(NamedTuple):
    """The change that a commit makes to the terms by which a search finds its run (`contracts.entries.terms`).

    `began_us` is when the run began, in Unix microseconds; a search by time reads it.
    """

    added: Sequence[int] = ()
    removed: Sequence[int] = ()
    began_us: int = 0


@final_fields
class Batch:
    """One atomic commit: all of it is stored, or nothing is and the store raises `Conflict`.

    `entries` continue the stream `run` at exactly their sequence numbers. `shared` are pairs of a stream (`index` or
    `control`) and a draft, which the store links to the head of that stream. `wake_at_us` is the time from which `due`
    lists this run (None leaves it unchanged, 0 means never). `signature` is the signed head of the run's stream (key
    id, signature in hex) and is not part of the chain. `waiting` says whether the run waits for a person from this
    commit on (None leaves it unchanged); `Store.waiting` lists those runs. `terms` changes the terms by which
    `Store.found` finds the run, whose first line in `index` is in this batch or stored. `may_block`: the process drives
    no other run, so the store can block the event loop until the batch is durable. A lease is a document in `leases`,
    and its version is the fencing token: every batch of a driver has the write that renews it.
    """

    run: str
    entries: tuple[Entry, ...] = ()
    writes: tuple[Write, ...] = ()
    shared: tuple[tuple[str, Draft], ...] = ()
    wake_at_us: int | None = None
    signature: tuple[str, str] | None = None
    waiting: bool | None = None
    may_block: bool = False
    terms: TermChange | None = None


class Logged(NamedTuple):
    """A journal entry as the run reads it: `body` is parsed JSON; in a recorded entry it is only the answer."""

    seq: int
    kind: str
    key: str
    at_us: int
    by: str
    body: Any
    hash: str


@final_fields
class AgentMessage:
    """What an agent says in its session: the kind and key of the entry that records it, and the answer in it."""

    kind: str
    key: str
    answer: Mapping[str, Any]


@final_fields
class Timeout:
    """The entry that a waiting run appends if no answer came in time. Its writes fail if an answer was faster."""

    kind: str
    writes: tuple[Write, ...] = ()


@final_fields
class Rest:
    """What a waiting run awaits, as in `await Rest(...)`: it suspends the coroutine and returns control to its
    driver.

    The driver can drop the suspended coroutine at any time; the run is then rebuilt from its journal.
    """

    wake_at_us: int

    def __await__(self) -> Generator[Rest, None, None]:
        yield self


class Parked(Exception):
    """Raised to the driver where a run has to wait and is not kept in memory. With `wake_at_us` 0 only an answer wakes
    the run; otherwise it is due at that time (Unix microseconds). `operation` is the operation of another run that it
    waits for: its key (`operation_key`) and the version of its row. Without `keeps`, the answers that were obtained
    since the last commit are out of date and are obtained anew.
    """

    def __init__(self, wake_at_us: int, *, operation: tuple[str, int] | None = None, keeps: bool = True) -> None:
        self.wake_at_us, self.operation, self.keeps = wake_at_us, operation, keeps
        super().__init__(f"parked until {wake_at_us}")


@final_fields
class Advance:
    """The result of driving a run once. `wake_at_us` is when the run is due again (Unix microseconds); 0: when an
    answer arrives; None: the run has ended.
    """

    state: str
    wake_at_us: int | None
