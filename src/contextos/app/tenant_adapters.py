"""The adapters of each tenant: those of all, and its own of each file with credentials, a session or a process.

A credential belongs to a tenant. One serves all tenants only if the settings say so; otherwise they name those of each
tenant, or it is that of the only tenant of the directory. A process is never shared.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from contextos.adapters.code import SourceCode
from contextos.adapters.foreign.adapter_file import credential_names, with_credentials
from contextos.adapters.function.loading import LoadedAdapters
from contextos.app.foreign_adapters import LoadedFile, make_adapter
from contextos.contracts.facts import name_remedy
from contextos.contracts.ports.outside import Adapter, Directory
from contextos.settings import AdapterSetting, Settings, invalid_setting

_REMEDY: Final = "name the tenants and their variables in `tenants` of the adapter, or say `shared = true`"


class TenantAdapters:
    """Returns the adapters of a tenant by id, always the same mapping. `shared` are the ids of the adapters with one
    set of credentials for every tenant.

    Raises:
        InvalidSettings: nobody says whose the credentials of an adapter are, or what is said does not fit it.
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
        self._owner: dict[str, str] = {}
        self._made: dict[str, dict[str, Adapter]] = {}
        self._making = threading.Lock()
        shared = []
        for at, (setting, one) in enumerate(zip(settings.adapters, loaded, strict=True)):
            if not isinstance(one, LoadedFile):
                continue
            _check(setting, one, f"/adapters/{at}")
            adapter_id = one.file.definition.adapter_id
            if setting.shared:
                shared.append(adapter_id)
            if one.is_per_tenant:
                self._files[adapter_id] = one, setting
            if credential_names(one.file) and not (setting.tenants or setting.shared):
                self._owner[adapter_id] = _only_tenant(directory, adapter_id, f"/adapters/{at}")
        self.shared = tuple(sorted(shared))
        for tenant in {tenant for _, setting in self._files.values() for tenant in setting.tenants}:
            self(tenant)

    def __call__(self, tenant_id: str) -> Mapping[str, Adapter]:
        if not self._files:
            return self._adapters
        with self._making:
            if tenant_id not in self._made:
                self._made[tenant_id] = self._of(tenant_id)
            return self._made[tenant_id]

    def close(self) -> None:
        """Close the adapters of every tenant."""
        for adapters in self._made.values():
            for adapter_id in self._files.keys() & adapters.keys():
                close: Any = getattr(adapters[adapter_id], "close", None)
                if close is not None:
                    close()

    def _of(self, tenant_id: str) -> dict[str, Adapter]:
        own = {name: one for name, one in self._adapters.items() if name not in self._files}
        for adapter_id, (loaded, setting) in self._files.items():
            serves = not setting.tenants or tenant_id in setting.tenants
            if serves and self._owner.get(adapter_id, tenant_id) == tenant_id:
                own[adapter_id] = self._instance(loaded, setting.tenants.get(tenant_id, {}), self._root)
        return {name: own[name] for name in self._adapters if name in own}

    def _instance(self, loaded: LoadedFile, names: Mapping[str, str], root: Path) -> Adapter:
        first, file = loaded.adapters[0], with_credentials(loaded.source, names)
        adapter = make_adapter(file, root)
        self._code.also(adapter, loaded)
        assert adapter.describe().adapter_id == first.describe().adapter_id, "both are of one file"
        return adapter


def _check(setting: AdapterSetting, loaded: LoadedFile, at: str) -> None:
    """Refuse what the settings say of the tenants of an adapter file, and it has no use for."""
    names = credential_names(loaded.source)
    if (setting.tenants or setting.shared) and not names:
        place = "tenants" if setting.tenants else "shared"
        detail = "the adapter has no credentials"
        raise invalid_setting(f"{at}/{place}", "no_effect", detail, f"leave out `{place}`")
    seen: dict[tuple[str, str], str] = {}
    for tenant, own in setting.tenants.items():
        for name in sorted(own.keys() ^ names):
            detail = f"`{setting.path[:200]}` {'lacks' if name in own else 'has'} the credential `{name[:80]}`"
            raise invalid_setting(f"{at}/tenants/{tenant}", "other_credentials", detail, name_remedy(name, names))
        for name, source in own.items():
            other = seen.setdefault((name, source), tenant)
            if other != tenant:
                detail = f"`{other}` and `{tenant}` have the same `{name}`, which is `{source}`"
                remedy = "give each its own, or say `shared = true` and leave out `tenants`"
                raise invalid_setting(f"{at}/tenants/{tenant}/{name}", "shared_credential", detail, remedy)


def _only_tenant(directory: Directory, adapter_id: str, at: str) -> str:
    listed = getattr(directory, "tenants", None)
    tenants = listed() if listed is not None else ()
    if len(tenants) != 1:
        detail = f"`{adapter_id}` has credentials, and nobody says to which tenant they belong"
        raise invalid_setting(f"{at}/tenants", "whose_credentials", detail, _REMEDY)
    return str(next(iter(tenants)))
