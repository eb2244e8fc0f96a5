"""Exports: runs and the artifacts they pin, which can be verified and replayed with a public key alone.

Source: docs/design/journal.md, "Signed heads".
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.action.registry import Registry
from contextos.audit.replay import NO_PORTS, NO_SOURCES, ReplayResult, replay_tape
from contextos.context.estimator import BytesDiv4
from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.catalog import ARTIFACTS
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CONTROL, ENTRY_FORMAT, Batch, Document, Entry
from contextos.contracts.model import Model, Name, Positive, Seq
from contextos.contracts.ports.outside import Keys
from contextos.control.catalog import Catalog
from contextos.errors import ChainBroken, InvalidInput, Problem, ReplayMismatch, SignatureInvalid
from contextos.operations.acts.act import Actor, prove_act
from contextos.operations.acts.checks import no_run
from contextos.operations.deployment import Deployment
from contextos.runtime.environment import DeploymentFacts, RunArtifacts, RunEnvironment, RunLimits
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.entry_acts import refuse_unerased, require_acts
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed
from contextos.trust.seal import decode_base64, open_sealed, seal

EXPORT_TYPE: Final = "application/vnd.contextos.export-manifest+json"
MAX_EXPORT_BYTES: Final = 64 << 20
"""The longest file that the command line reads back."""

MAX_EXPORT_RUNS: Final = 10_000
MAX_LINE_BYTES: Final = 1 << 24
MANIFEST_BYTES: Final = 2_048
MANIFEST_BYTES_PER_LINE: Final = 512
"""An upper bound of what a run or an artifact adds to the manifest."""

MANIFEST_BYTES_PER_ERASURE: Final = 16


@dataclass(frozen=True, slots=True)
class SignedExport:
    """One export file: its bytes, and the runs in it, each with the hash of its last entry."""

    raw: bytes
    runs: Mapping[str, str]


async def export_runs(app: Deployment, tenant_id: str, run_ids: Sequence[str], *, by: Actor) -> bytes:
    """Runs as one export file. Before it returns, the export is recorded as `record_export` says.

    Raises:
        ApprovalRefused: as `prove_act`.
        NotFound, ChainBroken, InvalidInput: as `signed_exports`; also `InvalidInput` if one file cannot hold the runs.
    """
    files = await signed_exports(app, tenant_id, run_ids)
    if len(files) != 1:
        raise _too_large(f"these runs need {len(files)} export files")
    await record_export(app, tenant_id, files, by=by)
    return files[0].raw


async def signed_exports(app: Deployment, tenant_id: str, run_ids: Sequence[str]) -> list[SignedExport]:
    """Runs as JSON lines: a signed manifest of every count and head, the entries, and the artifacts they pin.

    Each file is at most `MAX_EXPORT_BYTES` long and complete by itself; a run is in one of them. Nothing is recorded:
    the caller writes the files and then calls `record_export`.

    Raises:
        ApprovalRefused: as `prove_act`.
        NotFound: no such run in this tenant.
        ChainBroken: a run does not verify; nothing is exported.
        InvalidInput: a run is too large for a file that can be verified.
    """
    files: list[_File] = [_File({}, {}, {}, {})]
    for run_id in run_ids:
        one = await _file_of(app, tenant_id, run_id)
        joined = files[-1].joined(one)
        if joined.fits():
            files[-1] = joined
        elif one.fits():
            files.append(one)
        else:
            raise _too_large(f"`{run_id}` is larger than {MAX_EXPORT_BYTES} bytes, or one of its entries is too large")
    return [file.signed(tenant_id, app.ports.keys) for file in files if file.heads]


async def record_export(app: Deployment, tenant_id: str, files: Sequence[SignedExport], *, by: Actor) -> None:
    """Record in the tenant's control stream which runs were exported, as an act of `by`. Raises as `prove_act`."""
    heads = {run_id: head for file in files for run_id, head in file.runs.items()}
    control = await prove_act(app.ports, app.config, tenant_id, ProposedAct("runs.exported", "", {"runs": heads}), by)
    await app.ports.stores.tenant(tenant_id).commit(Batch(run=CONTROL, shared=(control,)))


@dataclass(frozen=True, slots=True)
class _File:
    """The lines of a file before it is signed: heads and lines of each run, and the line of each artifact by digest."""

    heads: Mapping[str, str]
    erased: Mapping[str, Sequence[int]]
    entries: Mapping[str, Sequence[bytes]]
    artifacts: Mapping[str, bytes]

    def joined(self, other: _File) -> _File:
        return _File(
            {**self.heads, **other.heads},
            {**self.erased, **other.erased},
            {**self.entries, **other.entries},
            {**self.artifacts, **other.artifacts},
        )

    def fits(self) -> bool:
        """Whether `read_export` and `verify` take it. The manifest is in Base64, so it counts one and a third times."""
        lines = [*(line for listed in self.entries.values() for line in listed), *self.artifacts.values()]
        manifest = MANIFEST_BYTES + MANIFEST_BYTES_PER_LINE * (len(self.heads) + len(self.artifacts))
        manifest += MANIFEST_BYTES_PER_ERASURE * sum(map(len, self.erased.values()))
        return (
            len(self.heads) <= MAX_EXPORT_RUNS
            and max(map(len, lines)) <= MAX_LINE_BYTES
            and manifest + sum(map(len, lines)) + len(lines) <= MAX_EXPORT_BYTES
        )

    def signed(self, tenant_id: str, keys: Keys) -> SignedExport:
        streams = [
            {"stream": run_id, "entries": len(self.entries[run_id]), "head": head, "erased": list(self.erased[run_id])}
            for run_id, head in self.heads.items()
        ]
        artifacts = [self.artifacts[pin] for pin in sorted(self.artifacts)]
        manifest = {"tenant": tenant_id, "streams": streams, "lines": [digest(line) for line in artifacts]}
        sealed = seal(EXPORT_TYPE, canonical(manifest), keys, "export")
        lines = [line for listed in self.entries.values() for line in listed]
        return SignedExport(b"\n".join([canonical({"manifest": sealed}), *lines, *artifacts]) + b"\n", self.heads)


async def _file_of(app: Deployment, tenant_id: str, run_id: str) -> _File:
    store = app.ports.stores.tenant(tenant_id)
    entries, heads, lines, _ = await store.read_run(run_id)
    if not entries:
        raise no_run(run_id)
    erased = await require_acts(store, entries, app.ports.keys)
    await refuse_unerased(store, entries, app.ports.keys)
    head = verify_chain(tenant_id, run_id, entries)
    verify_indexed(run_id, entries, lines)
    verify_heads(tenant_id, run_id, entries, heads, app.ports.keys)
    pins = {
        pin
        for entry in entries
        if entry.kind == "run.pinned" and entry.body
        for pin in read_body(entry).get("pins", {}).values()
    }
    found = {pin: await ARTIFACTS.one(store, pin) for pin in sorted(pins)}
    artifacts = {pin: canonical({"artifact": pin, "body": one.body}) for pin, one in found.items() if one}
    rows = [canonical({"entry": _line(entry)}) for entry in entries]
    return _File({run_id: head}, {run_id: erased}, {run_id: rows}, artifacts)


def _too_large(detail: str) -> InvalidInput:
    return InvalidInput(Problem("", "too_large", detail, "export fewer runs at a time"))


class ExportedStream(Model):
    """One journal stream in an export: the number of its entries, the hash of the last one, and which were erased."""

    stream: Name
    entries: Positive
    head: Name
    erased: Seq[Positive]


class ExportManifest(Model):
    """The signed part of an export. The hashes in it cover the entries, and `lines` covers the artifacts by digest."""

    tenant: Name
    streams: list[ExportedStream]
    lines: list[Name]


@dataclass(frozen=True, slots=True)
class Export:
    """A verified export: the entries of each run, and the artifacts (packs, policies) that the runs use, by digest."""

    streams: Mapping[str, tuple[Entry, ...]]
    artifacts: Mapping[str, bytes]


def read_export(raw: bytes, keys: Keys) -> Export:
    """Verify the bytes of an export and return its content. Any changed byte is refused.

    Raises:
        SignatureInvalid: the manifest is not signed with a key that is trusted for exports, or its key was retired
            before the last entry.
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
        if gap := next((one.seq for one in entries if one.body is None and one.seq not in stream.erased), None):
            raise ChainBroken(name, gap, "has no body, and the signed manifest does not say that it was erased")
        if (len(entries), head) != (count, stream.head):
            raise ChainBroken(name, len(entries) + 1, f"is missing: the manifest was signed over {count} entries")
        streams[name] = entries
        at += count
    _manifest(first, keys, at_us=max((entries[-1].at_us for entries in streams.values()), default=None))
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
        Integrity: an artifact that a run uses is missing, or does not have its digest.
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


def _manifest(row: bytes, keys: Keys, *, at_us: int | None = None) -> ExportManifest:
    """The manifest of a verified envelope, whose key was not retired before `at_us` (Unix microseconds). Refuses any
    other spelling of the envelope than that of `seal`.
    """
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
        payload = open_sealed(sealed, keys, "export", {EXPORT_TYPE}, at_us=at_us)
        return parse(ExportManifest, payload, max_bytes=MAX_LINE_BYTES)
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
