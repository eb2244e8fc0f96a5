"""Read an export: verify everything in it against public keys, and replay its runs from the file alone.

Source: docs/reference/export.md; docs/adr/0063-an-export-carries-what-proves-it.md.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from contextos.action.barrier import Barrier
from contextos.action.registry import Registry
from contextos.audit.export import EXPORT_FORMAT, EXPORT_TYPE, MAX_EXPORT_LINES, MAX_LINE_BYTES, ExportManifest
from contextos.audit.export_acts import counting_listings, decision_views, matched_acts, needed_acts, needed_listings
from contextos.audit.export_lines import (
    NotALine,
    read_artifact_line,
    read_control,
    read_entry,
    read_export_line,
    read_head_line,
    sealed_line,
)
from contextos.audit.history import verify_history, verify_ledgers
from contextos.audit.replay import NO_PORTS, NO_SOURCES, ReplayResult, replay_tape
from contextos.context.estimator import BytesDiv4
from contextos.contracts.acts import OperatorAct, RecordedAct
from contextos.contracts.documents.catalog import ARTIFACTS
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical, content_address, digest
from contextos.contracts.entries.bodies import ACT_ARGUMENTS, body_fault
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import CONTROL, PERSON_LISTED, Document, Entry, genesis, link
from contextos.contracts.ports.outside import Keys
from contextos.contracts.scope import ADAPTER
from contextos.control.catalog import Catalog
from contextos.control.loading import pinned_refs
from contextos.deployment.queries.decisions import DecisionView
from contextos.errors import ChainBroken, InvalidInput, ReplayMismatch, SignatureInvalid
from contextos.runtime.environment import DeploymentFacts, RunArtifacts, RunEnvironment, RunLimits
from contextos.trust.approvals.acts import read_act
from contextos.trust.approvals.people import ListedPeople
from contextos.trust.approvals.signers import NO_PERSONS, Persons, actor_fault, verify_signers
from contextos.trust.journal.entry_acts import acts_on_end
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.journal.signed_heads import is_signed
from contextos.trust.seal import decode_base64, open_sealed

PROVING: Final = ("head", "act", "pack")
"""The purposes of the keys that prove the content of an export. The key that signs an export has another purpose."""

UNSIGNED_PACKS: Final = "unsafe_unsigned_packs"
"""The setting of a deployment that admits packs without a signature; a run records the setting when it begins."""

ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True)
class Export:
    """A verified export: the entries of each run, and the artifacts (packs, policies) that the runs use, by digest.

    `acts` are the operator acts on which the runs rest, and the acts about the decisions with which the runs ended.
    `decisions` has the state of each such decision after the acts. `unproved` names the purposes of `PROVING` for which
    the reader has no key: these signatures were not checked, so only the key for exports vouches for them. `unsigned`
    names the answers and acts that no key of a person signed. `signers` are the people who signed or were looked up.
    """

    tenant: str
    streams: Mapping[str, tuple[Entry, ...]]
    acts: tuple[OperatorAct, ...]
    decisions: Mapping[str, DecisionView]
    artifacts: Mapping[str, bytes]
    unproved: tuple[str, ...]
    unsigned: tuple[str, ...]
    signers: tuple[str, ...]


def read_export(raw: bytes, keys: Keys, *, persons: Persons = NO_PERSONS) -> Export:
    """Verify the bytes of an export and return its content. Any changed byte is refused.

    `keys` needs a key for exports, and should have one for each of `PROVING` (`Export.unproved`: the missing ones). A
    person in `persons` must have signed with a key given there. The keys of all others come from the operator.

    Raises:
        SignatureInvalid: the manifest is not signed with a key that is trusted for exports, or its key was retired
            before the last entry.
        ChainBroken: a line is missing, changed, swapped, added or out of place, or its content is not proved.
    """
    first, _, rest = raw.partition(b"\n")
    manifest = _read_manifest(first, keys)
    # The rest is split only now, after the signature is verified, because it can need much memory.
    rows = rest.split(b"\n")
    if rows.pop():
        raise ChainBroken("export", len(rows) + 2, "has no end; export it again")
    for number, row in enumerate(rows):
        if number >= len(manifest.lines) or digest(row) != manifest.lines[number]:
            raise ChainBroken("export", number + 2, "is not the line that the signed manifest has there")
    if len(rows) < len(manifest.lines):
        raise ChainBroken("export", len(rows) + 2, "is missing: the manifest was signed over one more line")
    reader_keys, lines = _ReaderKeys(keys), _Lines(rows)
    streams = _read_runs(lines, manifest.tenant, reader_keys)
    control = _read_control(lines, manifest.tenant)
    acts = _require_exact_control(streams, control, reader_keys)
    decisions = decision_views(streams, manifest.tenant, [(line, recorded.act) for line, recorded in acts])
    _verify_people(streams, control, acts, reader_keys, persons)
    artifacts = _read_artifacts(lines, streams, reader_keys)
    lines.end()
    _read_manifest(first, keys, at_us=max((entries[-1].at_us for entries in streams.values()), default=None))
    unsigned_acts = (
        f"`{recorded.act.kind}` of `{recorded.act.actor}`" for _, recorded in acts if recorded.assertion.token is None
    )
    return Export(
        tenant=manifest.tenant,
        streams=streams,
        acts=tuple(recorded.act for _, recorded in acts),
        decisions=decisions,
        artifacts=artifacts,
        unproved=reader_keys.unproved,
        unsigned=(*_unsigned_entries(streams), *unsigned_acts),
        signers=tuple(sorted({line.key for line in control if line.kind == PERSON_LISTED})),
    )


def public_keys(keys: Keys) -> dict[str, list[str]]:
    """Return the public keys (hex) by purpose with which an export of this runtime is read."""
    return {
        purpose: [key.hex() for kid in keys.kids(purpose) if (key := keys.public_key(purpose, kid)) is not None]
        for purpose in ("export", *PROVING)
    }


class _ReaderKeys:
    """The keys that a reader has. Where the reader has no key for a purpose of `PROVING`, every signature for it counts
    unchecked. So a caller has to show the reader these purposes (`unproved`).
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.unproved = tuple(purpose for purpose in PROVING if not keys.kids(purpose))

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        return self._keys.sign(purpose, payload)

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes, *, at_us: int | None = None) -> bool:
        return purpose in self.unproved or self._keys.verify(purpose, kid, payload, signature, at_us=at_us)

    def kids(self, purpose: str) -> Sequence[str]:
        return self._keys.kids(purpose)

    def public_key(self, purpose: str, kid: str) -> bytes | None:
        return self._keys.public_key(purpose, kid)


class _Lines:
    """The lines of an export after the manifest, read in order."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows, self._row = rows, 0
        self._next: tuple[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The kind of the next line, or "" after the last line. Raises `ChainBroken` if the line cannot be read."""
        if self._row == len(self._rows):
            return ""
        if self._next is None:
            with self.reading():
                self._next = read_export_line(self._rows[self._row])
        return self._next[0]

    def take(self, kind: str, read: Callable[[Any], ReadT], *, entry_place: tuple[str, int] | None = None) -> ReadT:
        """Read the next line, which must be of this kind, and return the result of `read`. Raises `ChainBroken`, which
        names the entry `entry_place` (stream, number), or else the line.
        """
        with self.reading(entry_place):
            if self.kind != kind:
                raise NotALine(f"is missing: no line `{kind}` is in its place")
            assert self._next is not None, "the kind was read"
            result = read(self._next[1])
        self._row, self._next = self._row + 1, None
        return result

    def all_of(self, kind: str, read: Callable[[Any], ReadT], place: Callable[[ReadT], Any]) -> Iterator[ReadT]:
        """Yield the result of `read` for each next line of this kind. Raises `ChainBroken` if `place` does not grow."""
        previous = None
        while self.kind == kind:
            result = self.take(kind, read)
            if previous is not None and place(result) <= previous:
                raise ChainBroken("export", self._row + 1, f"is out of place: each `{kind}` is there once, and sorted")
            previous = place(result)
            yield result

    def end(self) -> None:
        """Refuse a further line. Raises `ChainBroken`."""
        if self.kind:
            raise ChainBroken("export", self._row + 2, f"is out of place: no line `{self.kind}` belongs here")

    @contextmanager
    def reading(self, entry_place: tuple[str, int] | None = None) -> Iterator[None]:
        stream, seq = entry_place or ("export", self._row + 2)
        try:
            yield
        except NotALine as error:
            raise ChainBroken(stream, seq, str(error)) from None
        except (InvalidInput, SignatureInvalid, ValidationError) as error:
            raise ChainBroken(stream, seq, f"does not hold what it should: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # A signature does not prove a form: the holder of the key can sign anything.
            raise ChainBroken(stream, seq, f"holds what no runtime writes: {type(error).__name__}") from None


def _read_runs(lines: _Lines, tenant_id: str, keys: Keys) -> dict[str, tuple[Entry, ...]]:
    """Return the entries of each run of a file by run id, each run verified by itself. Raises `ChainBroken`."""
    streams: dict[str, tuple[Entry, ...]] = {}
    while lines.kind == "entry":
        entries: list[Entry] = []
        while lines.kind == "entry":
            last = entries[-1] if entries else None
            place = (last.run, last.seq + 1) if last else None
            entries.append(lines.take("entry", partial(read_entry, last=last, tenant_id=tenant_id), entry_place=place))
        last = entries[-1]
        head = lines.take("head", partial(read_head_line, last=last), entry_place=(last.run, last.seq + 1))
        if not is_signed(head, tenant_id, last.run, keys, at_us=last.at_us):
            detail = "has a signed head whose signature does not verify, or whose key was retired"
            raise ChainBroken(last.run, last.seq, detail)
        if streams and last.run <= max(streams):
            raise ChainBroken(last.run, 1, "is out of place: each run is there once, and sorted")
        verify_history(last.run, entries)
        verify_ledgers(last.run, entries)
        streams[last.run] = tuple(entries)
    return streams


def _read_control(lines: _Lines, tenant_id: str) -> list[Entry]:
    """Return the lines of `control` in a file as linked entries, numbered from 1. Raises `ChainBroken`."""
    control = list[Entry]()

    def read(fields: Any) -> Entry:
        draft, last_hash = read_control(fields), control[-1].hash if control else genesis(tenant_id, CONTROL)
        if fault := body_fault(CONTROL, draft.kind, draft.body):
            raise NotALine(f"is nothing that the runtime writes to `control`: {fault}")
        return link(tenant_id, CONTROL, len(control) + 1, last_hash, draft)

    for line in lines.all_of("control", read, lambda entry: (entry.at_us, sealed_line(entry))):
        control.append(line)
    return control


def _require_exact_control(
    streams: Mapping[str, Sequence[Entry]], control: Sequence[Entry], keys: Keys
) -> list[tuple[Entry, RecordedAct]]:
    """Require that the lines of `control` are exactly the lines on which the runs rest; return the acts among them.

    Raises:
        ChainBroken: a line is missing, surplus or not sealed.
    """
    acts = [(line, read_act(line, keys)) for line in control if line.kind in ACT_ARGUMENTS]
    operator_acts = [(line, recorded.act) for line, recorded in acts]
    needed_lines = {line for entries in streams.values() for line in matched_acts(needed_acts(entries), operator_acts)}
    needed_lines.update(line for entries in streams.values() for line in acts_on_end(entries, operator_acts))
    needed_lines.update(counting_listings(control, needed_listings(streams.values(), [line for line, _ in acts])))
    for line in control:
        if line not in needed_lines:
            raise ChainBroken(CONTROL, line.seq, f"is surplus: no run in the file rests on this `{line.kind}`")
    return acts


def _verify_people(
    streams: Mapping[str, Sequence[Entry]],
    control: Sequence[Entry],
    acts: Sequence[tuple[Entry, RecordedAct]],
    keys: Keys,
    persons: Persons,
) -> None:
    """Check who gave every answer and act, against how the directory listed these people. Raises `ChainBroken`."""
    for entries in streams.values():
        verify_signers(entries, control, keys, persons=persons)
    people = ListedPeople(keys, control)
    for line, recorded in acts:
        if fault := actor_fault(recorded, line, people, persons):
            raise ChainBroken(CONTROL, line.seq, f"is an act that does not count: {fault}")


def _read_artifacts(lines: _Lines, streams: Mapping[str, Sequence[Entry]], keys: Keys) -> dict[str, bytes]:
    """Return the artifacts and adapter definitions by digest. Raises `ChainBroken` unless the runs pin just these."""
    pinned, signed_only = _pinned_artifacts(streams)
    artifacts: dict[str, bytes] = {}
    present = set[tuple[str, str]]()

    def read(fields: Any) -> tuple[str, bytes]:
        stored = read_artifact_line(fields, keys)
        if not fields["signatures"] and stored.digest in signed_only:
            raise NotALine(f"is the artifact `{stored.ref}`, which nobody signed")
        present.add((stored.ref, stored.digest))
        return stored.digest, canonical(fields)

    def read_adapter(fields: Any) -> tuple[str, bytes]:
        definition = AdapterDefinition.model_validate(fields)
        pin = content_address(fields)
        present.add((ADAPTER + definition.adapter_id, pin))
        return pin, canonical(fields)

    artifacts.update(lines.all_of("artifact", read, itemgetter(0)))
    artifacts.update(lines.all_of("definition", read_adapter, itemgetter(0)))
    for name, pin in sorted(present - pinned):
        raise ChainBroken("export", 1, f"has `{name}` as `{pin}`, and no run pins it")
    for name, pin in sorted(pinned - present):
        raise ChainBroken("export", 1, f"is without `{name}` as `{pin}`, and a run pins it")
    return artifacts


def _pinned_artifacts(streams: Mapping[str, Sequence[Entry]]) -> tuple[set[tuple[str, str]], set[str]]:
    """Return all pins of the runs as (name, digest), and the digests pinned where no unsigned pack is admitted."""
    pinned, signed_only = set[tuple[str, str]](), set[str]()
    for entries in streams.values():
        received = read_body(entries[0])
        admits_unsigned = received is not None and UNSIGNED_PACKS in received["deployment"]["unsafe"]
        for entry in entries:
            pins = read_body(entry).get("pins", {}) if entry.kind == "run.pinned" and entry.body else {}
            refs = pinned_refs(pins)
            pinned.update(refs.items(), ((name, pin) for name, pin in pins.items() if name.startswith(ADAPTER)))
            signed_only.update(() if admits_unsigned else refs.values())
    return pinned, signed_only


def _unsigned_entries(streams: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    """Describe each entry of a person which states that no key of this person signed it."""
    for run_id, entries in streams.items():
        for entry in entries:
            body = read_body(entry) if entry.kind in ("approval.answered", "effect.settled", "slot.answered") else None
            kind = (body.get("assertion") or {"kind": "unsafe_local"})["kind"] if body else ""
            if kind in ("unsafe_local", "oidc"):
                yield f"`{entry.kind}` of `{entry.by}` in `{run_id}` ({kind})"


async def replay_export(export: Export) -> list[ReplayResult]:
    """Replay every run of an export from the export alone: without a store, a workspace or a key.

    Raises:
        ReplayMismatch, UnknownSemantics: as `audit.replay`.
        Integrity: an artifact that a run uses is missing, or does not have its digest.
    """
    return [await _replay_run(tape, export.artifacts) for tape in export.streams.values()]


async def _replay_run(tape: Sequence[Entry], artifacts: Mapping[str, bytes]) -> ReplayResult:
    run_id = tape[0].run
    store: Any = _ArtifactStore(artifacts)
    catalog = Catalog(store, tenant_id=tape[0].tenant, open_envelope=_open_unverified, runtime_version="")

    def environment(journal: RunJournal) -> RunEnvironment:
        return RunEnvironment(
            journal=journal,
            ports=NO_PORTS,
            sources=NO_SOURCES,
            artifacts=RunArtifacts(catalog, Registry(), RecentlyUsed(0), BytesDiv4()),
            deployment=DeploymentFacts(
                RunLimits(), runtime_version="", profile="", environment="", unsafe=(), unsafe_now=()
            ),
            barrier=Barrier(store, run_id, dict),
        )

    try:
        return await replay_tape(tape, environment)
    except ReplayMismatch as error:
        raise ReplayMismatch(error.seq, error.kind, error.detail, run_id=run_id) from error
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        # A valid chain and signature do not prove a history: the holder of the key can sign anything.
        detail = f"holds what no runtime writes: {type(error).__name__}"
        raise ReplayMismatch(len(tape), tape[-1].kind, detail, run_id=run_id) from error


class _ArtifactStore:
    """The only part of a store that a catalog reads in a replay."""

    def __init__(self, artifacts: Mapping[str, bytes]) -> None:
        self._artifacts = artifacts

    async def scan(self, collection: str, *, key: str) -> Sequence[Document]:
        assert collection == ARTIFACTS.name, "a replay reads artifacts by digest and nothing else"
        return [Document(collection, key, 1, self._artifacts[key])] if key in self._artifacts else []


def _open_unverified(envelope: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the media type and bytes of an artifact, without checking its signature.

    The catalog compares the digest with the digest that the verified journal pins.
    """
    return str(envelope["payloadType"]), decode_base64(envelope.get("payload"))


def _read_manifest(row: bytes, keys: Keys, *, at_us: int | None = None) -> ExportManifest:
    """Verify the envelope and return its manifest; its key must not be retired before `at_us` (Unix microseconds).
    Raises `SignatureInvalid` or `ChainBroken`, also where the envelope is not spelled as `seal` spells it.
    """
    try:
        sealed = loads(row, max_bytes=MAX_LINE_BYTES)["manifest"]
        (signature,) = sealed["signatures"]
        reencoded = {**signature, "sig": base64.b64encode(decode_base64(signature["sig"])).decode()}
        envelope = {"payloadType": EXPORT_TYPE, "payload": sealed["payload"], "signatures": [reencoded]}
        is_exact = canonical({"manifest": envelope}) == row and reencoded.keys() == {"keyid", "sig"}
        is_known_key = signature["keyid"] in keys.kids("export")
    except (InvalidInput, SignatureInvalid, LookupError, TypeError, ValueError):
        detail = "is not the manifest that an export begins with; name a file that `contextos runs export` wrote"
        raise ChainBroken("export", 1, detail) from None
    if not (is_exact and is_known_key):
        raise ChainBroken("export", 1, "is not the manifest as it was exported")
    try:
        payload = open_sealed(sealed, keys, "export", {EXPORT_TYPE}, at_us=at_us)
        manifest = parse(ExportManifest, payload, max_bytes=MAX_LINE_BYTES, max_nodes=2 * MAX_EXPORT_LINES)
    except InvalidInput as error:
        raise ChainBroken("export", 1, f"is signed, but is not a manifest: {error}") from None
    if manifest.v != EXPORT_FORMAT or canonical(manifest.to_json()) != payload:
        raise ChainBroken("export", 1, f"is signed, but is not a manifest of the format {EXPORT_FORMAT}")
    return manifest
