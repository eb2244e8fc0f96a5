"""Exports: runs, and what proves them, as files that others verify and replay with public keys alone.

`audit.exported` reads them. Source: docs/reference/export.md; docs/adr/0063-an-export-carries-what-proves-it.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.audit.export_acts import acts_of, listings_of
from contextos.audit.export_lines import artifact_line, definition_line, entry_line, head_line, sealed_line
from contextos.audit.history import verify_stored_run
from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.catalog import ARTIFACTS
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.contracts.model import Model, Name, Seq
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import ADAPTER
from contextos.control.loading import pinned_refs
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_commit
from contextos.deployment.acts.checks import no_run
from contextos.deployment.deployment import Deployment
from contextos.errors import Integrity, InvalidInput, Problem
from contextos.trust.seal import seal

EXPORT_TYPE: Final = "application/vnd.contextos.export-manifest+json"
EXPORT_FORMAT: Final = 1
MAX_EXPORT_BYTES: Final = 64 << 20
"""The longest file, in bytes, that the command line reads back."""

MAX_EXPORT_RUNS: Final = 10_000
MAX_EXPORT_LINES: Final = 150_000
MAX_LINE_BYTES: Final = 1 << 24
MANIFEST_BYTES: Final = 2_048
MANIFEST_BYTES_PER_LINE: Final = 100
"""The most bytes that a line adds to the manifest, which is in Base64."""

_Place = tuple[Any, ...]
"""The place of a line in a file: the number of its part, and its sort key in that part."""
_RUN, _CONTROL, _ARTIFACT, _DEFINITION = range(4)


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


@Act
async def export_runs(app: Deployment, tenant_id: str, run_ids: Sequence[str], *, by: Actor) -> ActProposal[bytes]:
    """Export runs as one file. The export is recorded (`record_export`) before the file is returned.

    Raises:
        ApprovalRefused: as `prove_act`.
        NotFound, Integrity, InvalidInput: as `signed_exports`; also `InvalidInput` if one file cannot hold the runs.
    """
    files = await signed_exports(app, tenant_id, run_ids)
    if len(files) != 1:
        raise _too_large(f"these runs need {len(files)} export files")

    async def return_file(_: None) -> bytes:
        return files[0].raw

    return (await record_export.propose(app, tenant_id, files, by=by)).then(return_file)


async def signed_exports(app: Deployment, tenant_id: str, run_ids: Sequence[str]) -> list[SignedExport]:
    """Return files of JSON lines: a signed manifest of all lines, the entries of each run up to its last signed head
    and that head, the lines of `control` on which the runs rest, and the artifacts that they pin.

    Each file is at most `MAX_EXPORT_BYTES` long and complete by itself. Each run is in one file. Nothing is recorded:
    the caller writes the files and then calls `record_export`.

    Raises:
        ApprovalRefused: as `prove_act`.
        NotFound: no such run in this tenant.
        Integrity: a run does not verify, or what it rests on is missing; nothing is exported.
        InvalidInput: a run is too large for a file that can be verified.
    """
    files = [_File()]
    for run_id in sorted(set(run_ids)):
        run_file = await _run_file(app, tenant_id, run_id)
        joined = files[-1].joined(run_file)
        if joined.fits():
            files[-1] = joined
        elif run_file.fits():
            files.append(run_file)
        else:
            raise _too_large(f"`{run_id}` is larger than {MAX_EXPORT_BYTES} bytes, or one of its entries is too large")
    return [file.signed(tenant_id, app.ports.keys) for file in files if file.heads]


@Act
async def record_export(
    app: Deployment, tenant_id: str, files: Sequence[SignedExport], *, by: Actor
) -> ActProposal[None]:
    """Record in the tenant's control stream which runs were exported, as an act of `by`. Raises as `prove_act`."""
    heads = {run_id: head for file in files for run_id, head in file.runs.items()}
    proposed = ProposedAct("runs.exported", "", {"runs": heads})
    return propose_commit(app.ports, app.config, tenant_id, proposed, by)


def signed_file(tenant_id: str, lines: Sequence[bytes], keys: Keys) -> bytes:
    """Return the file with these lines after a manifest that covers each line."""
    manifest = {"v": EXPORT_FORMAT, "tenant": tenant_id, "lines": [digest(line) for line in lines]}
    sealed = seal(EXPORT_TYPE, canonical(manifest), keys, "export")
    return b"\n".join([canonical({"manifest": sealed}), *lines]) + b"\n"


@dataclass(frozen=True, slots=True)
class _File:
    """A file before it is signed: the last hash of each run, and the lines by their place."""

    heads: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[_Place, bytes] = field(default_factory=dict)

    def joined(self, other: _File) -> _File:
        return _File({**self.heads, **other.heads}, {**self.lines, **other.lines})

    def fits(self) -> bool:
        """Whether `read_export` and `verify` accept the file."""
        lines = self.lines.values()
        manifest = MANIFEST_BYTES + MANIFEST_BYTES_PER_LINE * len(lines)
        return (
            len(self.heads) <= MAX_EXPORT_RUNS
            and len(lines) <= MAX_EXPORT_LINES
            and max(map(len, lines)) <= MAX_LINE_BYTES
            and manifest + sum(map(len, lines)) + len(lines) <= MAX_EXPORT_BYTES
        )

    def signed(self, tenant_id: str, keys: Keys) -> SignedExport:
        lines = [self.lines[place] for place in sorted(self.lines)]
        return SignedExport(signed_file(tenant_id, lines, keys), self.heads)


async def _run_file(app: Deployment, tenant_id: str, run_id: str) -> _File:
    store, keys = app.ports.stores.tenant(tenant_id), app.ports.keys
    stored = await store.read_run(run_id)
    if not stored.entries:
        raise no_run(run_id)
    await verify_stored_run(store, tenant_id, run_id, stored, keys)
    # Every entry in a file is under a signed head. Entries that a person appended since are in the next export.
    head = stored.heads[-1]
    signed = stored.entries[: head[0]]
    acts = await acts_of(store, signed, keys)
    control_entries = [*acts, *await listings_of(store, signed, acts)]
    rows = [*map(entry_line, signed), head_line(run_id, head)]
    lines: dict[_Place, bytes] = {(_RUN, run_id, number): row for number, row in enumerate(rows)}
    lines |= {(_CONTROL, line.at_us, row): row for line in control_entries for row in [sealed_line(line)]}
    return _File({run_id: signed[-1].hash}, lines | await _pinned_lines(store, signed, keys))


async def _pinned_lines(store: Store, entries: Sequence[Entry], keys: Keys) -> dict[_Place, bytes]:
    """Return the lines of the artifacts and of the adapter definitions that a run pins."""
    lines: dict[_Place, bytes] = {}
    for entry in entries:
        pins = read_body(entry).get("pins", {}) if entry.kind == "run.pinned" and entry.body else {}
        for pin in pinned_refs(pins).values():
            lines[_ARTIFACT, pin] = artifact_line(await _stored_artifact(store, pin), keys)
        for pin in (pin for name, pin in pins.items() if name.startswith(ADAPTER)):
            lines[_DEFINITION, pin] = definition_line(await _stored_artifact(store, pin))
    return lines


async def _stored_artifact(store: Store, pin: str) -> dict[str, object]:
    if (document := await ARTIFACTS.one(store, pin)) is None:
        raise Integrity(f"the artifact with the digest `{pin}` is missing from the catalog; restore it")
    return document.body


def _too_large(detail: str) -> InvalidInput:
    return InvalidInput(Problem("", "too_large", detail, "export fewer runs at a time"))
