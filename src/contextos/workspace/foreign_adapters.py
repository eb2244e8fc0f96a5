"""Load the adapters of foreign servers from their files, which the settings pin by digest, and keep them by tenant.

A credential belongs to one tenant. It serves all tenants only if the settings say so. Otherwise the settings name the
credentials of each tenant, or the directory has only one tenant. A process or session is never shared.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NoReturn

from contextos.adapters.code import SourceCode
from contextos.adapters.foreign.adapter_file import AdapterFile, credential_names, read_adapter_file, with_credentials
from contextos.adapters.function.loading import LoadedAdapters
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.jcs import digest as digest_of
from contextos.contracts.encoding.yaml_text import lines_in
from contextos.contracts.facts import name_remedy
from contextos.contracts.ports.outside import Adapter, Directory
from contextos.control.artifacts import ADAPTER_TYPE
from contextos.errors import InvalidInput, InvalidSettings, Problem, SignatureInvalid
from contextos.files import read_regular_file
from contextos.trust.seal import MAX_ENVELOPE_BYTES, KeyRing, open_sealed
from contextos.workspace.settings import Settings
from contextos.workspace.settings.calls import AdapterSetting
from contextos.workspace.settings.reading import invalid_setting

SDKS: Final = {
    "mcp": ("mcp", "mcp-types"),
    "openapi": ("httpx", "httpcore", "h11"),
    "a2a": ("a2a-sdk", "protobuf", "httpx", "httpcore", "h11"),
}
"""The installed packages that an adapter of each kind runs on; their versions are part of its code digest."""


_REMEDY: Final = "name the tenants and their variables in `tenants` of the adapter, or say `shared = true`"


def make_adapter(file: AdapterFile, folder: Path) -> Adapter:
    """Make the adapter of a file in the workspace `folder`; nothing is connected yet.

    Raises:
        InvalidInput: the connection or an operation does not fit the kind of the adapter, or the extra of this kind is
            not installed.
    """
    if file.connection["kind"] == "mcp":
        from contextos.adapters.mcp.adapter import mcp_adapter

        return mcp_adapter(file, folder)
    if file.connection["kind"] == "openapi":
        from contextos.workspace.openapi_files import require_http

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
    """The adapter of an adapter file. `source` is the file as written, `file` the file with its credentials."""

    file: AdapterFile = field(kw_only=True)
    source: AdapterFile = field(kw_only=True)

    @property
    def is_per_tenant(self) -> bool:
        """Return whether each tenant has an adapter of its own: it has credentials, or a session or process."""
        return self.file.connection["kind"] == "mcp" or bool(credential_names(self.file))


def load_adapter_file(
    path: str, digest: str | None, *, root: Path, authors: Sequence[str], names: Mapping[str, str] | None = None
) -> LoadedFile:
    """Load the adapter of a file below `root`. `digest` is the digest that the file must have; None accepts any.
    `names` maps each variable or file that the adapter file names to the variable or file of a tenant. If there are
    `authors` (public keys in hex), one of them must have signed the file.

    Raises:
        InvalidSettings: the file cannot be read, is outside `root`, has another digest, or is not valid.
    """
    place = (root / path).resolve()
    if not place.is_relative_to(root.resolve()):
        _refuse(path, "outside_root", "the file is outside the workspace", "move it inside")
    try:
        raw = read_regular_file(place, MAX_ENVELOPE_BYTES)
    except OSError as error:
        _refuse(path, "unreadable", f"it cannot be read: {(error.strerror or str(error)).lower()}", "check the path")
    actual = digest_of(raw)
    if digest is not None and actual != digest:
        remedy = f"review the change, then `contextos adapters publish {path}`"
        _refuse(path, "digest_mismatch", f"the file has the digest `{actual}`", remedy)
    try:
        with lines_in(raw):
            source = read_adapter_file(_signed_content(raw, authors))
            return _load_file(source, with_credentials(source, names or {}), actual, root)
    except InvalidInput as error:
        raise InvalidSettings(*error.in_file(path[:200], "/adapters")) from None


def _signed_content(raw: bytes, authors: Sequence[str]) -> bytes:
    """Return the content of an adapter file: all of it if there are no `authors`, else the payload of its envelope.
    Raises `InvalidInput` if none of the authors signed it, or if it is signed and there are no authors.
    """
    value = loads(raw, max_bytes=MAX_ENVELOPE_BYTES)
    in_envelope = isinstance(value, dict) and "payloadType" in value
    if not authors and not in_envelope:
        return raw
    if not authors:
        detail, remedy = "it is signed, and nobody says whose signatures count", "list the author in `adapter_authors`"
        raise InvalidInput(Problem("", "unknown_author", detail, remedy))
    if not in_envelope:
        detail, remedy = "it is not signed", "sign it with `contextos adapters sign`, and publish what that writes"
        raise InvalidInput(Problem("", "not_signed", detail, remedy))
    try:
        keys = KeyRing({}, {"pack": [bytes.fromhex(author) for author in authors]})
        return open_sealed(value, keys, "pack", (ADAPTER_TYPE,))
    except SignatureInvalid as error:
        remedy = "have one of `adapter_authors` sign it with `contextos adapters sign`"
        raise InvalidInput(Problem("", "bad_signature", str(error), remedy)) from None


def _load_file(source: AdapterFile, file: AdapterFile, digest: str, root: Path) -> LoadedFile:
    adapter = make_adapter(file, root)
    versions = {name: metadata.version(name) for name in SDKS[file.definition.type]}
    code_digest = content_address({"file": digest, "packages": versions})
    return LoadedFile((adapter,), code_digest, made=True, file=file, source=source)


def _refuse(path: str, code: str, detail: str, remedy: str) -> NoReturn:
    raise InvalidSettings(Problem("/adapters", code, f"`{path[:200]}`: {detail}", remedy))


class TenantAdapters:
    """Returns the adapters of a tenant by id, always the same mapping. `shared` are the ids of the adapters with one
    set of credentials for every tenant.

    Raises:
        InvalidSettings: the settings do not say to which tenant the credentials of an adapter belong, or what they say
            does not fit the adapter.
    """

    def __init__(
        self,
        settings: Settings,
        loaded: Sequence[LoadedAdapters],
        adapters: Mapping[str, Adapter],
        code: SourceCode,
        directory: Directory,
    ) -> None:
        self._root, self._code, self._adapters = settings.workspace, code, adapters
        self._files: dict[str, tuple[LoadedFile, AdapterSetting]] = {}
        self._owners: dict[str, str] = {}
        self._by_tenant: dict[str, dict[str, Adapter]] = {}
        self._lock = threading.Lock()
        shared, credential_owners = [], dict[str, str]()
        for number, (setting, loaded_file) in enumerate(zip(settings.adapters, loaded, strict=True)):
            if not isinstance(loaded_file, LoadedFile):
                continue
            _check_tenants(setting, loaded_file, f"/adapters/{number}", credential_owners)
            adapter_id = loaded_file.file.definition.adapter_id
            if setting.shared:
                shared.append(adapter_id)
            if loaded_file.is_per_tenant:
                self._files[adapter_id] = loaded_file, setting
            if credential_names(loaded_file.file) and not (setting.tenants or setting.shared):
                self._owners[adapter_id] = _only_tenant(directory, adapter_id, f"/adapters/{number}")
        self.shared = tuple(sorted(shared))
        for tenant_id in {tenant_id for _, setting in self._files.values() for tenant_id in setting.tenants}:
            self(tenant_id)

    def __call__(self, tenant_id: str) -> Mapping[str, Adapter]:
        if not self._files:
            return self._adapters
        with self._lock:
            if tenant_id not in self._by_tenant:
                self._by_tenant[tenant_id] = self._make_adapters(tenant_id)
            return self._by_tenant[tenant_id]

    def close(self) -> None:
        """Close the adapters of every tenant."""
        for adapters in self._by_tenant.values():
            for adapter_id in self._files.keys() & adapters.keys():
                close: Any = getattr(adapters[adapter_id], "close", None)
                if close is not None:
                    close()

    def _make_adapters(self, tenant_id: str) -> dict[str, Adapter]:
        adapters = {name: adapter for name, adapter in self._adapters.items() if name not in self._files}
        for adapter_id, (loaded_file, setting) in self._files.items():
            serves = not setting.tenants or tenant_id in setting.tenants
            if serves and self._owners.get(adapter_id, tenant_id) == tenant_id:
                adapters[adapter_id] = self._make_instance(loaded_file, setting.tenants.get(tenant_id, {}), self._root)
        return {name: adapters[name] for name in self._adapters if name in adapters}

    def _make_instance(self, loaded_file: LoadedFile, names: Mapping[str, str], root: Path) -> Adapter:
        template, file = loaded_file.adapters[0], with_credentials(loaded_file.source, names)
        adapter = make_adapter(file, root)
        self._code.also(adapter, loaded_file)
        assert adapter.describe().adapter_id == template.describe().adapter_id, "both are of one file"
        return adapter


def _check_tenants(setting: AdapterSetting, file: LoadedFile, place: str, credential_owners: dict[str, str]) -> None:
    """Refuse settings about the tenants of an adapter file that the file has no use for. `credential_owners` maps each
    variable and file that was named for a tenant to that tenant, for all adapters together.
    """
    names = credential_names(file.source)
    if (setting.tenants or setting.shared) and not names:
        option = "tenants" if setting.tenants else "shared"
        detail = "the adapter has no credentials"
        raise invalid_setting(f"{place}/{option}", "no_effect", detail, f"leave out `{option}`")
    for tenant_id, credentials in setting.tenants.items():
        for name in sorted(credentials.keys() ^ names):
            detail = f"`{setting.path[:200]}` {'lacks' if name in credentials else 'has'} the credential `{name[:80]}`"
            raise invalid_setting(f"{place}/tenants/{tenant_id}", "other_credentials", detail, name_remedy(name, names))
        for name, source in credentials.items():
            owner = credential_owners.setdefault(posixpath.normpath(source), tenant_id)
            if owner != tenant_id:
                detail = f"`{owner}` and `{tenant_id}` have the same credential, which is `{source}`"
                remedy = "give each its own, or say `shared = true` and leave out `tenants`"
                raise invalid_setting(f"{place}/tenants/{tenant_id}/{name}", "shared_credential", detail, remedy)


def _only_tenant(directory: Directory, adapter_id: str, pointer: str) -> str:
    list_tenants = getattr(directory, "tenants", None)
    tenants = list_tenants() if list_tenants is not None else ()
    if len(tenants) != 1:
        detail = f"`{adapter_id}` has credentials, and nobody says to which tenant they belong"
        raise invalid_setting(f"{pointer}/tenants", "whose_credentials", detail, _REMEDY)
    return str(next(iter(tenants)))
