"""The hash chain of a journal stream: append an entry, verify every link, and check the version of its rules.

Each entry contains the hash of the entry before it. Refuses a stream with a missing, moved or changed entry.
Source: docs/design/journal.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from contextos.contracts.encoding.jcs import canonical, is_canonical
from contextos.contracts.entries.kinds import UNSIGNED_KINDS
from contextos.contracts.entries.linked import know, known
from contextos.contracts.entries.reading import environment_of, read_body
from contextos.contracts.journal import (
    KNOWN_SEMANTICS,
    SALT_BYTES,
    SHARED_STREAMS,
    Draft,
    Entry,
    body_digest,
    genesis,
    header_hash,
    link,
)
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, OtherEnvironment, UnknownSemantics
from contextos.trust.pages import stream_pages


def append(entries: Sequence[Entry], kind: str, key: str, *, by: str, answer: Any, at_us: int, salt: bytes) -> Entry:
    """Build the entry with which a person (an approver, an operator) wakes a suspended run.

    `entries` is the stream so far, `by` the person's id, `answer` a JSON value. `at_us` is Unix microseconds;
    a time before that of the last entry is raised to it.
    """
    last = entries[-1]
    body = canonical({"answer": answer})
    return link(
        last.tenant, last.run, last.seq + 1, last.hash, Draft(kind, key, max(at_us, last.at_us), by, body, salt)
    )


def verify_chain(tenant: str, stream: str, entries: Sequence[Entry], *, after: Entry | None = None) -> str:
    """Verify every entry of a stream and return the hash of the last one.

    `entries` starts at the first entry of the stream, or with the entry after the verified entry `after`.

    Raises:
        ChainBroken: an entry is missing, moved or changed; names the first bad one.
    """
    last_hash, last_seq = (after.hash, after.seq) if after else (genesis(tenant, stream), 0)
    for number, entry in enumerate(entries, start=last_seq + 1):
        if (entry.tenant, entry.run) != (tenant, stream):
            raise ChainBroken(stream, number, "belongs to another stream; restore the stream from a good copy")
        if entry.seq != number:
            raise ChainBroken(stream, number, f"is missing; entry {entry.seq} is in its place")
        if entry.prev_hash != last_hash:
            raise ChainBroken(stream, number, "does not continue the entry before it")
        if header_hash(entry) != entry.hash:
            raise ChainBroken(stream, number, "has a header that its hash does not cover")
        if (entry.body is None) != (entry.salt is None):
            raise ChainBroken(stream, number, "is half erased")
        if entry.body is None and stream in SHARED_STREAMS:
            raise ChainBroken(stream, number, "has no body, and this stream is never erased")
        if entry.salt is not None and len(entry.salt) != SALT_BYTES:
            raise ChainBroken(stream, number, f"has a salt of {len(entry.salt)} bytes and not of {SALT_BYTES}")
        if entry.body is not None and entry.salt is not None:
            if body_digest(entry.salt, entry.body) != entry.body_digest:
                raise ChainBroken(stream, number, "has a body that its digest does not cover")
            # Two readers could read another spelling differently, such as a member that is there twice. An entry that
            # any process can append to a run is judged where it is read, so that it stops no run.
            is_appended = entry.kind in UNSIGNED_KINDS and stream not in SHARED_STREAMS
            if not is_appended and not is_canonical(entry.body):
                raise ChainBroken(stream, number, "has a body that is not canonical JSON")
        last_hash = entry.hash
    return last_hash


def verify_once(tenant: str, stream: str, entries: Sequence[Entry]) -> None:
    """As `verify_chain`, from the first entry on, but skips the entries that this process linked or verified."""
    known_count = known(tenant, stream, entries)
    if known_count < len(entries):
        verify_chain(tenant, stream, entries[known_count:], after=entries[known_count - 1] if known_count else None)
        know(tenant, stream, entries)


async def verified_pages(
    store: Store, tenant: str, stream: str, *, after: Entry | None = None, upto: int | None = None
) -> AsyncIterator[Sequence[Entry]]:
    """As `stream_pages`, after the verified entry `after`. Each page is verified before it is returned.

    Raises:
        ChainBroken: as `verify_chain`.
    """
    async for page in stream_pages(store, stream, after=after.seq if after else 0, upto=upto):
        verify_chain(tenant, stream, page, after=after)
        yield page
        after = page[-1]


def refuse_unknown_semantics(tape: Sequence[Entry]) -> None:
    """Raise `UnknownSemantics` if the run was recorded under another version of the rules than this runtime's."""
    for entry in tape:
        if entry.body is None or entry.kind not in ("run.received", "run.pinned"):
            continue
        body = read_body(entry)
        # A run is pinned under the rules of the process that received it.
        pinned_rules = body["deployment"] if entry.kind == "run.received" else body
        if "failure" not in pinned_rules and pinned_rules.get("semantics") not in KNOWN_SEMANTICS:
            known = " and ".join(str(number) for number in KNOWN_SEMANTICS)
            raise UnknownSemantics(
                f"the run has semantics {pinned_rules.get('semantics')}, this runtime knows {known};"
                " replay it with the runtime that made it"
            )


def refuse_other_environment(tape: Sequence[Entry], served: str) -> None:
    """Raise `OtherEnvironment` if the run was begun in another environment than the deployment serves."""
    received = read_body(tape[0])
    environment = environment_of(received) if received is not None else served
    if environment != served:
        raise OtherEnvironment(f"`{tape[0].run}`", environment, served)
