"""Load the adapter of a foreign server from its file, which the settings pin by digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final, NoReturn

from contextos.adapters.foreign.adapter_file import AdapterFile, credential_names, read_adapter_file, with_credentials
from contextos.adapters.function.loading import LoadedAdapters
from contextos.contracts.encoding.codec import MAX_BYTES
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.jcs import digest as digest_of
from contextos.contracts.ports.outside import Adapter
from contextos.errors import InvalidInput, InvalidSettings, Problem
from contextos.files import read_regular_file

SDKS: Final = {
    "mcp": ("mcp", "mcp-types"),
    "openapi": ("httpx", "httpcore", "h11"),
    "a2a": ("a2a-sdk", "protobuf", "httpx", "httpcore", "h11"),
}
"""The installed packages that an adapter of each kind runs on; their versions are part of its code digest."""


def make_adapter(file: AdapterFile, folder: Path) -> Adapter:
    """Make the adapter of a file in the workspace `folder`; nothing is connected yet.

    Raises:
        InvalidInput: the connection or an operation is not of its kind, or the extra of the kind is not installed.
    """
    if file.connection["kind"] == "mcp":
        from contextos.adapters.mcp.adapter import mcp_adapter

        return mcp_adapter(file, folder)
    if file.connection["kind"] == "openapi":
        from contextos.app.openapi_files import require_http

        require_http()
        from contextos.adapters.openapi.adapter import openapi_adapter

        return openapi_adapter(file.connection, file.definition, file.operations, folder)
    if file.connection["kind"] == "a2a":
        from contextos.adapters.a2a.adapter import a2a_adapter

        return a2a_adapter(file)
    detail = f"no adapter of the kind `{str(file.connection['kind'])[:40]}` can be made from a file"
    raise InvalidInput(Problem("/connection/kind", "unknown_kind", detail, "use `mcp`, `openapi` or `a2a`"))


@dataclass(frozen=True, slots=True)
class LoadedFile(LoadedAdapters):
    """The adapter of an adapter file. `source` is the file as it is, and `file` with the credentials of the adapter."""

    file: AdapterFile = field(kw_only=True)
    source: AdapterFile = field(kw_only=True)

    @property
    def is_per_tenant(self) -> bool:
        """Return whether each tenant has an adapter of its own: it has credentials, or a session or process."""
        return self.file.connection["kind"] == "mcp" or bool(credential_names(self.file))


def load_adapter_file(
    path: str, digest: str | None, *, root: Path, names: Mapping[str, str] | None = None
) -> LoadedFile:
    """Load the adapter of a file below `root`. `digest` is that of its bytes; None trusts any. `names` are the
    variables and files of one tenant, by those that the file names.

    Raises:
        InvalidSettings: the file cannot be read, is outside `root`, has another digest, or is not valid.
    """
    place = (root / path).resolve()
    if not place.is_relative_to(root.resolve()):
        _refuse(path, "outside_root", "the file is outside the workspace", "move it inside")
    try:
        raw = read_regular_file(place, MAX_BYTES)
    except OSError as error:
        _refuse(path, "unreadable", f"it cannot be read: {(error.strerror or str(error)).lower()}", "check the path")
    found = digest_of(raw)
    if digest is not None and found != digest:
        remedy = f"review the change, then `contextos adapters publish {path}`"
        _refuse(path, "digest_mismatch", f"the file has the digest `{found}`", remedy)
    try:
        source = read_adapter_file(raw)
        return _loaded(source, with_credentials(source, names or {}), found, root)
    except InvalidInput as error:
        first = error.problems[0]
        _refuse(path, first.code, f"{first.pointer}: {first.detail}" if first.pointer else first.detail, first.remedy)


def _loaded(source: AdapterFile, file: AdapterFile, digest: str, root: Path) -> LoadedFile:
    adapter = make_adapter(file, root)
    versions = {name: metadata.version(name) for name in SDKS[file.definition.type]}
    code_digest = content_address({"file": digest, "packages": versions})
    return LoadedFile((adapter,), code_digest, made=True, file=file, source=source)


def _refuse(path: str, code: str, detail: str, remedy: str) -> NoReturn:
    raise InvalidSettings(Problem("/adapters", code, f"`{path[:200]}`: {detail}", remedy))
