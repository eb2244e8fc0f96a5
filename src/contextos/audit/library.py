"""Verify the artifacts of context slots: each row is as the acts in `control` left it, and none is gone.

The text of a revision is compared with its digest wherever it is read.
Source: docs/design/rows.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.artifacts import Artifact, ExtensionManifest, NewAssertion, StoredLibrary
from contextos.contracts.journal import CONTROL, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import ArtifactStore, Store
from contextos.errors import ChainBroken
from contextos.trust.approvals.acts import read_act
from contextos.trust.pages import stream_pages
from contextos.trust.rows.memories import MAX_READS

ArtifactPlace = tuple[str, str]
"""(organisation id, artifact id)"""


async def verify_library(artifacts: ArtifactStore, store: Store, keys: Keys) -> None:
    """Check the artifacts of a tenant, their revisions and types, and the installed types against the acts.

    Raises:
        ChainBroken: a row is missing, made up or altered; names it.
        Integrity: a row is malformed.
    """
    for _ in range(MAX_READS):
        stored = await artifacts.stored()
        library = _StatedLibrary()
        await library.read(stream_pages(store, CONTROL), keys)
        fault = library.fault(stored)
        if fault is None:
            return
        if await store.length(CONTROL) == library.entries and await artifacts.stored() == stored:
            raise ChainBroken(CONTROL, library.entries, f"is the last, and {fault}")


@dataclass(slots=True)
class _StatedLibrary:
    """The artifacts as the acts of the people who maintain them left them."""

    entries: int = 0
    manifests: dict[str, ExtensionManifest] = field(default_factory=dict)
    artifacts: dict[ArtifactPlace, Artifact] = field(default_factory=dict)
    deleted: set[ArtifactPlace] = field(default_factory=set)
    revisions: dict[ArtifactPlace, list[tuple[int, str, str, int]]] = field(default_factory=lambda: defaultdict(list))
    assertions: dict[ArtifactPlace, list[tuple[str, NewAssertion]]] = field(default_factory=lambda: defaultdict(list))

    async def read(self, control: AsyncIterable[Sequence[Entry]], keys: Keys) -> None:
        """Apply the acts of these pages."""
        async for page in control:
            for entry in page:
                if entry.kind.startswith("slots."):
                    act = read_act(entry, keys).act
                    self._apply_act(entry.kind, dict(act.arguments), act.actor)
            self.entries = page[-1].seq

    def fault(self, stored: StoredLibrary) -> str | None:
        """Return how the rows differ from the acts, or None."""
        comparisons: list[tuple[str, Any, Any]] = [
            ("the installed types", {manifest.extension: manifest for manifest in stored.extensions}, self.manifests),
            ("the artifact", {_place(artifact): artifact for artifact, _ in stored.artifacts}, self.artifacts),
            (
                "the tombstone",
                {_place(artifact): True for artifact, is_deleted in stored.artifacts if is_deleted},
                dict.fromkeys(self.deleted, True),
            ),
            ("a revision of", _by_place((row[:2], row[2:]) for row in stored.revisions), _sort_lists(self.revisions)),
            (
                "a type of",
                _by_place((_place(row), (row.eligibility, NewAssertion(**_fields(row)))) for row in stored.assertions),
                _sort_lists(self.assertions),
            ),
        ]
        for label, rows, stated_rows in comparisons:
            for name in sorted(rows.keys() | stated_rows.keys()):
                if rows.get(name) != stated_rows.get(name):
                    return f"{label} `{'/'.join(name) if isinstance(name, tuple) else name}` is not as an act left it"
        return None

    def _apply_act(self, kind: str, arguments: dict[str, Any], actor: str) -> None:
        if kind == "slots.extension_registered":
            manifest = parse(ExtensionManifest, arguments)
            self.manifests[manifest.extension] = manifest
            return
        place = arguments["org_id"], arguments["artifact_id"]
        if kind == "slots.artifact_added":
            self.artifacts[place] = parse(Artifact, arguments)
        elif kind == "slots.artifact_revised":
            number = len(self.revisions[place]) + 1
            self.revisions[place].append((number, arguments["digest"], actor, arguments["created_at_us"]))
        elif kind == "slots.artifact_classified":
            assertion = parse(NewAssertion, arguments)
            self._archive(place, assertion.extension)
            self.assertions[place].append(("draft" if assertion.asserted_by == "matcher" else "eligible", assertion))
        elif kind == "slots.assertion_archived":
            self._archive(place, arguments["extension"])
        elif kind == "slots.artifact_deleted":
            self.deleted.add(place)
            self._archive(place, None)

    def _archive(self, place: ArtifactPlace, extension: str | None) -> None:
        self.assertions[place] = [
            ("archived" if extension in (None, item.extension) else state, item)
            for state, item in self.assertions[place]
        ]


def _place(row: Any) -> ArtifactPlace:
    return row.org_id, row.artifact_id


def _fields(assertion: Any) -> dict[str, Any]:
    return {name: getattr(assertion, name) for name in NewAssertion.model_fields}


def _by_place(rows: Any) -> dict[ArtifactPlace, list[Any]]:
    groups: dict[ArtifactPlace, list[Any]] = defaultdict(list)
    for place, row in rows:
        groups[place].append(row)
    return _sort_lists(groups)


def _sort_lists(groups: dict[ArtifactPlace, list[Any]]) -> dict[ArtifactPlace, list[Any]]:
    return {place: sorted(rows, key=repr) for place, rows in groups.items() if rows}
