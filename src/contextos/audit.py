"""What auditors do: verify a tenant's journal, replay a run, export both so that they need not trust us.

Replay drives the same loop from the tape: no adapter, no directory, no graph and no clock is within its reach, and what
it derives is compared byte for byte. Source: shared/design/journal.md; contextos-facts.md, section 17.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import orjson

from contextos.contracts.codec import canonical, digest, loads, parse
from contextos.contracts.journal import INDEX, Entry, Parked
from contextos.contracts.ports import Keys, Store
from contextos.contracts.run import InvokeRequest
from contextos.decision import machine
from contextos.deployment import Deployment, transition
from contextos.errors import ChainBroken, Integrity, InvalidInput, NotFound, ReplayMismatch
from contextos.runtime import invoke_agent
from contextos.trust.chain import refuse_unknown_semantics, verify_chain
from contextos.trust.heads import read_signed, verify_heads
from contextos.trust.ledger import RunJournal
from contextos.trust.seal import open_sealed, seal

EXPORT_TYPE: Final = "application/vnd.contextos.export-manifest+json"
MAX_LINE_BYTES: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Verified:
    """A stream that verifies: how long it is, its head, and which bodies were erased."""

    stream: str
    entries: int
    head: str
    erased: tuple[int, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay that came to the recorded end. `missing` are erased bodies that could be derived again."""

    run_id: str
    status: str
    record_hash: str
    compared: int
    missing: tuple[int, ...]


class Unreachable:
    """Stands where the outside was. Whatever a replay reaches for, it gets this error instead."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Integrity(f"a replay reached for `{name}` of the outside; that is a defect of the runtime")


async def verify_tenant(store: Store, tenant_id: str, keys: Keys) -> list[Verified]:
    """Verify the index, every run it names and every signed head. Raises `ChainBroken` naming the entry."""
    # What must be covered is read before what covers it: runs go on while an auditor looks.
    leased = [run_id async for run_id in _leased(store)]
    index = await store.read(INDEX)
    seen = [_verified(tenant_id, INDEX, index)]
    runs = {orjson.loads(line.body or b"{}").get("run", line.key) for line in index}
    closed = {line.key: orjson.loads(line.body) for line in index if line.kind == "run.closed" and line.body}
    for run_id in leased:
        if run_id not in runs:
            missing = f"is missing: `{run_id}` was driven and the index does not name it"
            raise ChainBroken(INDEX, len(index) + 1, missing)
    for run_id in sorted(runs):
        entries, heads = await read_signed(store, run_id)
        seen.append(_verified(tenant_id, run_id, entries, closed.get(run_id)))
        verify_heads(tenant_id, run_id, entries, heads, keys)
    control = await store.read("control")
    return [*seen, _verified(tenant_id, "control", control)]


async def _leased(store: Store) -> AsyncIterator[str]:
    """Every run that was ever driven: its first commit leaves a lease, and an index line."""
    after = ""
    while page := await store.scan("leases", after=after):
        for document in page:
            yield document.key
        after = page[-1].key


def _verified(
    tenant_id: str, stream: str, entries: Sequence[Entry], closed: Mapping[str, Any] | None = None
) -> Verified:
    head = verify_chain(tenant_id, stream, entries)
    if closed and (closed["entries"], closed["head"]) != (len(entries), head):
        raise ChainBroken(
            stream, len(entries) + 1, f"is missing: the index closed the run at {closed['entries']} entries"
        )
    if stream.startswith("run_") and not entries:
        raise ChainBroken(stream, 1, "is missing: the index names the run")
    ended = bool(entries) and entries[-1].kind == "run.ended"
    return Verified(stream, len(entries), head, tuple(e.seq for e in entries if e.body is None), ended)


async def replay(app: Deployment, tenant_id: str, run_id: str, entries: Sequence[Entry] | None = None) -> Replayed:
    """Drive the loop from the tape and compare everything it derives, the DecisionRecord included.

    Raises:
        ReplayMismatch: the first entry that differs, or whose erased body cannot be derived.
        UnknownSemantics: the run was made under rules that this runtime does not know.
    """
    tape = tuple(entries if entries is not None else await app.ports.stores.tenant(tenant_id).read(run_id))
    if not tape:
        raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
    verify_chain(tenant_id, run_id, tape)
    refuse_unknown_semantics(tape)
    if tape[0].body is None:
        raise ReplayMismatch(1, tape[0].kind, "its body was erased, and what was asked cannot be derived")
    received = orjson.loads(tape[0].body)["answer"]
    journal = RunJournal(tenant_id, run_id, tape, transition, machine.START, None)
    nowhere: Any = Unreachable()
    world = replace(
        app.world(tenant_id, journal), clock=nowhere, keys=nowhere, directory=nowhere, knowledge=nowhere,
        memory=nowhere, adapters={}, store=nowhere,
    )  # fmt: skip
    try:
        record = await invoke_agent(parse(InvokeRequest, received["request"]), received["fingerprint"], world)
    except Parked:
        raise ReplayMismatch(len(tape) + 1, tape[-1].kind, "the run has not ended; replay it when it has") from None
    if journal.on_tape:
        raise ReplayMismatch(len(journal.log()) + 1, tape[-1].kind, "the tape goes on after the run ended")
    return Replayed(run_id, record.status, record.record_hash or "", len(tape), tuple(journal.missing))


async def export(app: Deployment, tenant_id: str, run_ids: Sequence[str]) -> bytes:
    """Runs as JSON lines: a signed manifest over every count and head, the entries, and the artifacts they pin."""
    store = app.ports.stores.tenant(tenant_id)
    streams: list[dict[str, Any]] = []
    lines: list[bytes] = []
    digests: set[str] = set()
    for run_id in run_ids:
        entries, heads = await read_signed(store, run_id)
        if not entries:
            raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs`")
        head = verify_chain(tenant_id, run_id, entries)
        verify_heads(tenant_id, run_id, entries, heads, app.ports.keys)
        streams.append({"stream": run_id, "entries": len(entries), "head": head})
        lines += [canonical({"entry": _line(entry)}) for entry in entries]
        digests |= {pin for entry in entries if entry.kind == "run.pinned" and entry.body
                    for pin in orjson.loads(entry.body)["answer"].get("pins", {}).values()}  # fmt: skip
    for pin in sorted(digests):
        for document in await store.scan("artifacts", key=pin):
            lines.append(canonical({"artifact": pin, "body": orjson.loads(document.body)}))
    manifest = {"tenant": tenant_id, "streams": streams, "lines": [digest(line) for line in lines[_entries(streams) :]]}
    sealed = seal(EXPORT_TYPE, canonical(manifest), app.ports.keys, "export")
    return b"\n".join([canonical({"manifest": sealed}), *lines]) + b"\n"


def read_export(raw: bytes, keys: Keys) -> dict[str, tuple[Entry, ...]]:
    """The verified streams of an export, by name. Every byte counts: what is not as it was exported is refused.

    Raises:
        SignatureInvalid: the manifest is not by a key that is trusted for exports.
        ChainBroken: an entry is missing, changed, swapped, added, or does not stand where it belongs.
    """
    rows = raw.split(b"\n")
    if rows.pop() or len(rows) < 1:
        raise ChainBroken("export", len(rows) + 1, "has no end; export it again")
    manifest = _manifest(rows[0], keys)
    streams: dict[str, tuple[Entry, ...]] = {}
    at = 1
    for stream in manifest["streams"]:
        name, count = stream["stream"], stream["entries"]
        entries = tuple(_read(name, seq, row) for seq, row in enumerate(rows[at : at + count], start=1))
        head = verify_chain(manifest["tenant"], name, entries)
        if (len(entries), head) != (count, stream["head"]):
            raise ChainBroken(name, len(entries) + 1, f"is missing: the manifest was signed over {count} entries")
        streams[name] = entries
        at += count
    for number, row in enumerate(rows[at:]):
        if number >= len(manifest["lines"]) or digest(row) != manifest["lines"][number]:
            raise ChainBroken("export", at + number + 1, "is a line that the signed manifest does not cover")
    if len(rows) - at < len(manifest["lines"]):
        raise ChainBroken("export", len(rows) + 1, "is missing: the manifest was signed over one more line")
    return streams


def _entries(streams: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(stream["entries"]) for stream in streams)


def _manifest(row: bytes, keys: Keys) -> Any:
    try:
        sealed = loads(row, max_bytes=MAX_LINE_BYTES)["manifest"]
        whole = canonical({"manifest": sealed}) == row
        named = {signature["keyid"] for signature in sealed["signatures"]} <= set(keys.kids("export"))
    except (InvalidInput, LookupError, TypeError):
        raise ChainBroken("export", 1, "is no manifest; export it again") from None
    if not (whole and named):
        raise ChainBroken("export", 1, "is not the manifest as it was exported")
    return loads(open_sealed(sealed, keys, "export", {EXPORT_TYPE}), max_bytes=MAX_LINE_BYTES)


def _read(stream: str, seq: int, row: bytes) -> Entry:
    """The entry of a line; a line that spells the same entry otherwise is not the one that was exported."""
    try:
        line = loads(row, max_bytes=MAX_LINE_BYTES)["entry"]
        entry = Entry(**{**line, "body": _bytes(line["body"]), "salt": _bytes(line["salt"])})
        whole = canonical({"entry": _line(entry)}) == row
    except (InvalidInput, LookupError, TypeError, ValueError):
        whole = False
    if not whole:
        raise ChainBroken(stream, seq, "is no journal entry as it was exported")
    if (entry.run, entry.seq) != (stream, seq):
        raise ChainBroken(stream, seq, f"is missing; entry {entry.seq} of `{entry.run[:64]}` stands in its place")
    return entry


def _line(entry: Entry) -> dict[str, Any]:
    """An entry as JSON; body and salt in Base64, absent when erased."""
    return {**entry._asdict(), "body": _text(entry.body), "salt": _text(entry.salt)}


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
