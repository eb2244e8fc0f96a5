"""Exports: runs and the artifacts they pin, which can be verified and replayed with a public key alone.

Source: docs/design/journal.md, "Signed heads".
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from contextos.action.registry import Registry
from contextos.audit.replay import NO_PORTS, NO_SOURCES, ReplayResult, replay_tape
from contextos.context.estimator import BytesDiv4
from contextos.contracts.documents.catalog import ARTIFACTS
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.journal import CONTROL, ENTRY_FORMAT, Batch, Document, Draft, Entry
from contextos.contracts.model import Model, Name, Positive
from contextos.contracts.ports.outside import Keys
from contextos.control.catalog import Catalog
from contextos.errors import ChainBroken, InvalidInput, NotFound, ReplayMismatch, SignatureInvalid
from contextos.operations.deployment import Deployment
from contextos.runtime.environment import DeploymentFacts, RunArtifacts, RunEnvironment, RunLimits
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.signed_heads import read_signed, verify_heads
from contextos.trust.seal import decode_base64, open_sealed, seal

EXPORT_TYPE: Final = "application/vnd.contextos.export-manifest+json"
MAX_LINE_BYTES: Final = 1 << 24


async def export_runs(app: Deployment, tenant_id: str, run_ids: Sequence[str], *, by: str) -> bytes:
    """Runs as JSON lines: a signed manifest of every count and head, the entries, and the artifacts they pin.

    Before it returns, the export is recorded in the tenant's control stream, with the runs and `by`, which is not
    checked.

    Raises:
        NotFound: no such run in this tenant.
        ChainBroken: a run does not verify; nothing is exported.
    """
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
        digests |= {
            pin
            for entry in entries
            if entry.kind == "run.pinned" and entry.body
            for pin in orjson.loads(entry.body)["answer"].get("pins", {}).values()
        }
    for pin in sorted(digests):
        document = await ARTIFACTS.one(store, pin)
        if document:
            lines.append(canonical({"artifact": pin, "body": document.body}))
    manifest = {"tenant": tenant_id, "streams": streams, "lines": [digest(line) for line in lines[_entries(streams) :]]}
    sealed = seal(EXPORT_TYPE, canonical(manifest), app.ports.keys, "export")
    body = canonical({"by": by, "runs": {stream["stream"]: stream["head"] for stream in streams}})
    draft = Draft("runs.exported", "", app.ports.clock.now_us(), by, body, app.ports.entropy.take(16))
    await store.commit(Batch(run=CONTROL, shared=((CONTROL, draft),)))
    return b"\n".join([canonical({"manifest": sealed}), *lines]) + b"\n"


class ExportedStream(Model):
    """One stream of a manifest: the number of its entries and the hash of the last one."""

    stream: Name
    entries: Positive
    head: Name


class ExportManifest(Model):
    """The signed part of an export. The heads cover the entries, and `lines` covers the artifacts by digest."""

    tenant: Name
    streams: list[ExportedStream]
    lines: list[Name]


@dataclass(frozen=True, slots=True)
class Export:
    """A verified export: the entries of each run, and the artifacts that they pin, by digest."""

    streams: Mapping[str, tuple[Entry, ...]]
    artifacts: Mapping[str, bytes]


def read_export(raw: bytes, keys: Keys) -> Export:
    """The verified content of an export. Any changed byte is refused.

    Raises:
        SignatureInvalid: the manifest is not signed with a key that is trusted for exports.
        ChainBroken: an entry is missing, changed, swapped, added or out of place.
    """
    first, _, rest = raw.partition(b"\n")
    manifest = _manifest(first, keys)
    # The rest is split only now, after the signature is verified, because it can need much memory.
    rows = [first, *rest.split(b"\n")]
    if rows.pop() or len(rows) < 1:
        raise ChainBroken("export", len(rows) + 1, "has no end; export it again")
    streams: dict[str, tuple[Entry, ...]] = {}
    at = 1
    for stream in manifest.streams:
        name, count = stream.stream, stream.entries
        entries = tuple(_read(name, seq, row) for seq, row in enumerate(rows[at : at + count], start=1))
        head = verify_chain(manifest.tenant, name, entries)
        if (len(entries), head) != (count, stream.head):
            raise ChainBroken(name, len(entries) + 1, f"is missing: the manifest was signed over {count} entries")
        streams[name] = entries
        at += count
    for number, row in enumerate(rows[at:]):
        if number >= len(manifest.lines) or digest(row) != manifest.lines[number]:
            raise ChainBroken("export", at + number + 1, "is a line that the signed manifest does not cover")
    if len(rows) - at < len(manifest.lines):
        raise ChainBroken("export", len(rows) + 1, "is missing: the manifest was signed over one more line")
    return Export(streams, dict(map(_artifact, rows[at:])))


async def replay_export(export: Export) -> list[ReplayResult]:
    """Replay every run of an export from the export alone: without a store, a workspace or a key.

    Raises:
        ReplayMismatch, UnknownSemantics: as `audit.replay`.
        Integrity: an artifact that a run pins is missing, or is not what its digest says.
    """
    return [await _replay_alone(tape, export.artifacts) for tape in export.streams.values()]


async def _replay_alone(tape: Sequence[Entry], artifacts: Mapping[str, bytes]) -> ReplayResult:
    run_id = tape[0].run
    store: Any = _Artifacts(artifacts)
    catalog = Catalog(store, tenant_id=tape[0].tenant, open_envelope=_opened, runtime_version="")

    def environment(journal: RunJournal) -> RunEnvironment:
        return RunEnvironment(
            journal=journal,
            ports=NO_PORTS,
            sources=NO_SOURCES,
            artifacts=RunArtifacts(catalog, Registry(), {}, BytesDiv4()),
            deployment=DeploymentFacts(RunLimits(), runtime_version="", profile="", unsafe=(), unsafe_now=()),
        )

    try:
        return await replay_tape(tape, environment)
    except ReplayMismatch as error:
        raise ReplayMismatch(error.seq, error.kind, error.detail, run_id=run_id) from error
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        # A valid chain and signature do not prove a history: the holder of the key can sign anything.
        detail = f"holds what no runtime writes: {type(error).__name__}"
        raise ReplayMismatch(len(tape), tape[-1].kind, detail, run_id=run_id) from error


class _Artifacts:
    """The only part of a store that a catalog reads in a replay."""

    def __init__(self, artifacts: Mapping[str, bytes]) -> None:
        self._artifacts = artifacts

    async def scan(self, collection: str, *, key: str) -> Sequence[Document]:
        assert collection == ARTIFACTS.name, "a replay reads artifacts by digest and nothing else"
        return [Document(collection, key, 1, self._artifacts[key])] if key in self._artifacts else []


def _opened(envelope: Mapping[str, Any]) -> tuple[str, bytes]:
    """The media type and bytes of an artifact, without checking its signature.

    The catalog compares the digest with the one that is pinned in the verified journal.
    """
    return str(envelope["payloadType"]), decode_base64(envelope.get("payload"))


def _artifact(row: bytes) -> tuple[str, bytes]:
    line = loads(row, max_bytes=MAX_LINE_BYTES)
    if not isinstance(line, dict) or line.keys() != {"artifact", "body"} or not isinstance(line["artifact"], str):
        raise ChainBroken("export", 1, "is signed, but one of its lines is no artifact")
    return line["artifact"], canonical(line["body"])


def _entries(streams: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(stream["entries"]) for stream in streams)


def _manifest(row: bytes, keys: Keys) -> ExportManifest:
    """The manifest of a verified envelope. Refuses any other spelling of the envelope than that of `seal`."""
    try:
        sealed = loads(row, max_bytes=MAX_LINE_BYTES)["manifest"]
        (signature,) = sealed["signatures"]
        again = {**signature, "sig": base64.b64encode(decode_base64(signature["sig"])).decode()}
        exact = {"payloadType": EXPORT_TYPE, "payload": sealed["payload"], "signatures": [again]}
        whole = canonical({"manifest": exact}) == row and again.keys() == {"keyid", "sig"}
        named = signature["keyid"] in keys.kids("export")
    except (InvalidInput, SignatureInvalid, LookupError, TypeError, ValueError):
        raise ChainBroken("export", 1, "is no manifest; export it again") from None
    if not (whole and named):
        raise ChainBroken("export", 1, "is not the manifest as it was exported")
    try:
        return parse(ExportManifest, open_sealed(sealed, keys, "export", {EXPORT_TYPE}), max_bytes=MAX_LINE_BYTES)
    except InvalidInput as error:
        raise ChainBroken("export", 1, f"is signed, but is no manifest: {error}") from None


def _read(stream: str, seq: int, row: bytes) -> Entry:
    """The entry of a line. Refuses any other spelling of the same entry."""
    try:
        line = loads(row, max_bytes=MAX_LINE_BYTES)["entry"]
        entry = Entry(**{**line, "body": _bytes(line["body"]), "salt": _bytes(line["salt"])})
        whole = canonical({"entry": _line(entry)}) == row and _is_entry(entry)
    except (InvalidInput, LookupError, TypeError, ValueError):
        whole = False
    if not whole:
        raise ChainBroken(stream, seq, "is no journal entry as it was exported")
    if (entry.run, entry.seq) != (stream, seq):
        raise ChainBroken(stream, seq, f"is missing; entry {entry.seq} of `{entry.run[:64]}` is in its place")
    return entry


def _is_entry(entry: Entry) -> bool:
    """Whether the entry has the current format and each field of the header has its type."""
    texts = (entry.tenant, entry.run, entry.kind, entry.key, entry.by, entry.body_digest, entry.prev_hash, entry.hash)
    numbers = (entry.v, entry.seq, entry.at_us)
    typed = all(type(one) is str for one in texts) and all(type(one) is int for one in numbers)
    return typed and entry.v == ENTRY_FORMAT


def _line(entry: Entry) -> dict[str, Any]:
    """An entry as JSON; body and salt in Base64, absent when erased."""
    return {**entry._asdict(), "body": _text(entry.body), "salt": _text(entry.salt)}


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
