"""The setting of an adapter: its file, the digest that it must have, and whose its credentials are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contextos.errors import InvalidSettings, Problem
from contextos.port_settings.checks import bad, check_public_key, check_text


@dataclass(frozen=True, slots=True)
class AdapterSetting:
    """An adapter, and the SHA-256 that its file must have: `path` is `module.py:attribute` of a trusted function
    adapter, or the adapter file (`.json`) of a foreign server.

    `files` are the helpers beside a function adapter that it imports: the path of each, and its digest.

    `tenants` are the tenants that an adapter file with credentials serves: for each, the variables and files of the
    runtime in place of those that the file names. `shared` says instead that one set of credentials serves every
    tenant.
    """

    path: str
    digest: str
    files: Mapping[str, str] = field(default_factory=dict)
    tenants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shared: bool = False


def is_adapter_file(adapter: AdapterSetting) -> bool:
    """Return whether an adapter is the file of a foreign server and not a function adapter."""
    return adapter.path.endswith(".json")


def check_adapter(adapter: Any, at: str) -> None:
    """Check the setting of an adapter, however it was made. Raises `InvalidSettings`."""
    check_text(getattr(adapter, "path", None), f"{at}/path")
    check_text(getattr(adapter, "digest", None), f"{at}/digest")
    _check_files(getattr(adapter, "files", None), f"{at}/files")
    if is_adapter_file(adapter) and adapter.files:
        detail = "an adapter file imports no helpers"
        raise bad(f"{at}/files", detail, "remove `files`")
    _check_tenants(adapter, at)


def check_adapters(adapters: Sequence[Any], authors: Sequence[str]) -> None:
    """Check the settings `adapters` and `adapter_authors`, however they were made. Raises `InvalidSettings`."""
    for at, adapter in enumerate(adapters):
        check_adapter(adapter, f"/adapters/{at}")
    for at, public_key in enumerate(authors):
        check_public_key(public_key, f"/adapter_authors/{at}")


def _check_files(files: Any, at: str) -> None:
    if not isinstance(files, Mapping):
        detail = f"`{at}` is not a table of paths and digests"
        raise bad(at, detail, 'write it like `{ "rates.py" = "sha256:…" }`')
    for name, pinned in files.items():
        check_text(name, at)
        check_text(pinned, f"{at}/{name}")


def _check_tenants(adapter: AdapterSetting, at: str) -> None:
    tenants, shared = getattr(adapter, "tenants", None), getattr(adapter, "shared", None)
    if not isinstance(tenants, Mapping) or not all(isinstance(one, Mapping) for one in tenants.values()):
        detail = f"`{at}/tenants` is not a table with a table for each tenant"
        raise bad(f"{at}/tenants", detail, 'write `acme = { CRM_TOKEN = "ACME_CRM_TOKEN" }`')
    if not isinstance(shared, bool):
        raise bad(f"{at}/shared", f"`{at}/shared` is not true or false", "write `true`")
    for tenant, names in tenants.items():
        for name, own in names.items():
            check_text(name, f"{at}/tenants/{tenant}")
            check_text(own, f"{at}/tenants/{tenant}/{name}")
    if (tenants or shared) and not is_adapter_file(adapter):
        detail = "the code of a function adapter receives the tenant of each call, and has its secrets itself"
        place = f"{at}/{'tenants' if tenants else 'shared'}"
        raise InvalidSettings(Problem(place, "no_effect", detail, "leave it out"))
    if tenants and shared:
        detail = "credentials that every tenant shares are those of no tenant"
        raise bad(f"{at}/shared", detail, "leave out `shared` or `tenants`")
