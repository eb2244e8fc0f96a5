"""Exports: runs, and what proves them, as files that others verify and replay with public keys alone.

`audit.exported` reads them. Source: docs/reference/export.md; docs/adr/0063-an-export-carries-what-proves-it.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.audit.export_acts import acts_of, listings_of
from contextos.audit.export_lines import artifact_line, definition_line, entry_line, head_line, sealed_line
from contextos.audit.history import verify_history, verify_ledgers
from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.catalog import ARTIFACTS
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CONTROL, Batch, Entry
from contextos.contracts.model import Model, Name, Seq
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import ADAPTER
from contextos.control.catalog import pinned_refs
from contextos.deployment.acts.act import Actor, prove_act
from contextos.deployment.acts.checks import no_run
from contextos.deployment.deployment import Deployment
from contextos.errors import Integrity, InvalidInput, Problem
from contextos.trust.approvals.signers import require_signers
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.entry_acts import refuse_unerased, require_acts
from contextos.trust.journal.signed_heads import verify_heads, verify_indexed
from contextos.trust.seal import seal

EXPORT_TYPE: Final = "application/vnd.contextos.export-manifest+json"
EXPORT_FORMAT: Final = 1
MAX_EXPORT_BYTES: Final = 64 << 20
"""The longest file that the command line reads back."""

MAX_EXPORT_RUNS: Final = 10_000
MAX_EXPORT_LINES: Final = 150_000
MAX_LINE_BYTES: Final = 1 << 24
MANIFEST_BYTES: Final = 2_048
MANIFEST_BYTES_PER_LINE: Final = 100
"""An upper bound of what a line adds to the manifest, which is in Base64."""


class ExportManifest(Model):
    """The signed part of an export: the tenant, and the digest of each further line. `v` is the format."""

    v: int
    tenant: Name
    lines: Seq[Name]


@dataclass(frozen=True, slots=True)
class SignedExport:
    """One export file: its bytes, and the runs in it, each with the hash of its last entry."""

    raw: bytes
    runs: Mapping[str, str]


async def export_runs(app: Deployment, tenant_id: str, run_ids: Sequence[str], *, by: Actor) -> bytes:
    """Runs as one export file. Before it returns, the export is recorded as `record_export` says.

    Raises:
        ApprovalRefused: as `prove_act`.
        NotFound, Integrity, InvalidInput: as `signed_exports`; also `InvalidInput` if one file cannot hold the runs.
    """
    files = await signed_exports(app, tenant_id, run_ids)
    if len(files) != 1:
        raise _too_large(f"these runs need {len(files)} export files")
    await record_export(app, tenant_id, files, by=by)
    return files[0].raw


async def signed_exports(app: Deployment, tenant_id: str, run_ids: Sequence[str]) -> list[SignedExport]:
    """Runs as JSON lines, by run id: a signed manifest of all lines, the entries of each run up to its last signed head
    and that head, the lines of `control` that they rest on, and the artifacts they pin.

    Each file is at most `MAX_EXPORT_BYTES` long and complete by itself; a run is in one of them. Nothing is recorded:
    the caller writes the files and then calls `record_export`.

    Raises:
        ApprovalRefused: as `prove_act`.
        NotFound: no such run in this tenant.
        Integrity: a run does not verify, or what it rests on is missing; nothing is exported.
        InvalidInput: a run is too large for a file that can be verified.
    """
    files = [_File()]
    for run_id in sorted(set(run_ids)):
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


def signed_file(tenant_id: str, lines: Sequence[bytes], keys: Keys) -> bytes:
    """Return the file with these lines behind a manifest that covers each of them."""
    manifest = {"v": EXPORT_FORMAT, "tenant": tenant_id, "lines": [digest(line) for line in lines]}
    sealed = seal(EXPORT_TYPE, canonical(manifest), keys, "export")
    return b"\n".join([canonical({"manifest": sealed}), *lines]) + b"\n"


@dataclass(frozen=True, slots=True)
class _File:
    """The lines of a file before it is signed: the last hash and the lines of each run, those of `control` by what
    orders them, and the artifacts and definitions by digest.
    """

    heads: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    control: Mapping[tuple[int, bytes], bytes] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    definitions: Mapping[str, bytes] = field(default_factory=dict)

    def joined(self, other: _File) -> _File:
        return _File(
            {**self.heads, **other.heads},
            {**self.runs, **other.runs},
            {**self.control, **other.control},
            {**self.artifacts, **other.artifacts},
            {**self.definitions, **other.definitions},
        )

    def lines(self) -> list[bytes]:
        run_lines = [line for _, lines in sorted(self.runs.items()) for line in lines]
        sorted_by: Sequence[Mapping[Any, bytes]] = (self.control, self.artifacts, self.definitions)
        return run_lines + [lines[place] for lines in sorted_by for place in sorted(lines)]

    def fits(self) -> bool:
        """Whether `read_export` and `verify` take it."""
        lines = self.lines()
        manifest = MANIFEST_BYTES + MANIFEST_BYTES_PER_LINE * len(lines)
        return (
            len(self.heads) <= MAX_EXPORT_RUNS
            and len(lines) <= MAX_EXPORT_LINES
            and max(map(len, lines)) <= MAX_LINE_BYTES
            and manifest + sum(map(len, lines)) + len(lines) <= MAX_EXPORT_BYTES
        )

    def signed(self, tenant_id: str, keys: Keys) -> SignedExport:
        return SignedExport(signed_file(tenant_id, self.lines(), keys), self.heads)


async def _file_of(app: Deployment, tenant_id: str, run_id: str) -> _File:
    store, keys = app.ports.stores.tenant(tenant_id), app.ports.keys
    entries, heads, lines, _ = await store.read_run(run_id)
    if not entries:
        raise no_run(run_id)
    await require_acts(store, entries, keys)
    await refuse_unerased(store, entries, keys)
    verify_chain(tenant_id, run_id, entries)
    verify_history(run_id, entries)
    verify_ledgers(run_id, entries)
    verify_indexed(run_id, entries, lines)
    verify_heads(tenant_id, run_id, entries, heads, keys)
    await require_signers(store, entries, keys)
    # Nothing in a file is without a signature. What a person appended since the last one is in the next export.
    signed = entries[: heads[-1][0]]
    acts = await acts_of(store, signed, keys)
    stated = [*acts, *await listings_of(store, signed, acts)]
    control = {(one.at_us, line): line for one in stated for line in [sealed_line(one)]}
    artifacts, definitions = await _pinned(store, signed, keys)
    rows = [*map(entry_line, signed), head_line(run_id, heads[-1])]
    return _File({run_id: signed[-1].hash}, {run_id: rows}, control, artifacts, definitions)


async def _pinned(store: Store, entries: Sequence[Entry], keys: Keys) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The lines of the artifacts and of the adapter definitions that a run pins, by digest."""
    artifacts: dict[str, bytes] = {}
    definitions: dict[str, bytes] = {}
    for entry in entries:
        pins = read_body(entry).get("pins", {}) if entry.kind == "run.pinned" and entry.body else {}
        for pin in pinned_refs(pins).values():
            artifacts[pin] = artifact_line(await _stored(store, pin), keys)
        for pin in (pin for name, pin in pins.items() if name.startswith(ADAPTER)):
            definitions[pin] = definition_line(await _stored(store, pin))
    return artifacts, definitions


async def _stored(store: Store, pin: str) -> dict[str, object]:
    if (document := await ARTIFACTS.one(store, pin)) is None:
        raise Integrity(f"the artifact with the digest `{pin}` is missing from the catalog; restore it")
    return document.body


def _too_large(detail: str) -> InvalidInput:
    return InvalidInput(Problem("", "too_large", detail, "export fewer runs at a time"))
