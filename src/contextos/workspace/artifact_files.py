"""Reads the artifacts in the files of a workspace.

Signed artifacts are `*.json`. The artifacts that the runtime signs itself are `*.yaml`: short forms of packs, and
profiles and routing rules of models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ports.outside import Keys
from contextos.control.artifacts import PACK_TYPE, GovernedArtifact, ref_of, tenant_of
from contextos.errors import InvalidInput
from contextos.files import read_regular_file
from contextos.trust.seal import seal
from contextos.workspace.settings import Settings
from contextos.workspace.settings.reading import invalid_setting

if TYPE_CHECKING:
    from contextos.packs.expansion import Expansion

MAX_ARTIFACT_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class UnsignedArtifact:
    """An artifact that nobody signed: its payload type, its JSON, and its expansion if the file is a short form."""

    payload_type: str
    document: dict[str, Any]
    artifact: GovernedArtifact
    expansion: Expansion | None = None

    @classmethod
    def of(cls, expansion: Expansion) -> UnsignedArtifact:
        return cls(PACK_TYPE, dict(expansion.document), expansion.pack, expansion)

    @property
    def tenant(self) -> str | None:
        return tenant_of(self.artifact)

    def signed(self, settings: Settings, keys: Keys) -> dict[str, Any]:
        """Return its envelope, signed with the key of the runtime. Raises `InvalidSettings` in a service."""
        if settings.profile == "service":
            detail = f"nobody signed `{ref_of(self.artifact)}`, and the runtime of a service signs no pack"
            raise invalid_setting("/profile", "unsigned_pack", detail, "its author signs it: `contextos pack sign`")
        return seal(self.payload_type, canonical(self.document), keys, "pack")


def signed_artifacts(settings: Settings) -> list[Any]:
    """Return the content of each signed file. Raises `InvalidSettings`, `MalformedJson`."""
    return [loads(_read_file(path), max_bytes=MAX_ARTIFACT_BYTES) for path in _artifact_paths(settings, "*.json")]


def unsigned_artifacts(
    settings: Settings, definitions: Callable[[], Iterable[AdapterDefinition]]
) -> Iterator[UnsignedArtifact]:
    """Yield the artifact of each unsigned file. Short forms are expanded for the tools of `definitions`.

    Raises:
        InvalidInput: a file is not an artifact of these kinds; names the file.
        InvalidSettings: a file cannot be read.
    """
    from contextos.packs.checking import payload_type_of, read_unsigned

    for path in _artifact_paths(settings, "*.yaml"):
        raw = _read_file(path)
        try:
            artifact, expansion = read_unsigned(raw, definitions)
        except InvalidInput as error:
            raise type(error)(*error.in_file(path.name)) from None
        if expansion is not None:
            yield UnsignedArtifact.of(expansion)
        else:
            document = artifact.to_json()
            yield UnsignedArtifact(payload_type_of(document) or PACK_TYPE, document, artifact)


def _artifact_paths(settings: Settings, pattern: str) -> list[Path]:
    return [path for folder in settings.packs for path in sorted((settings.workspace / folder).glob(pattern))]


def _read_file(path: Path) -> bytes:
    try:
        return read_regular_file(path, MAX_ARTIFACT_BYTES)
    except OSError as error:
        detail = f"`{path.name}` cannot be read: {(error.strerror or str(error)).lower()}"
        raise invalid_setting("/packs", "unreadable", detail, "correct or remove the file") from None
