"""The tables of settings for calls: adapters, the issuer of credentials, and the files that requests name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from contextos.contracts.model import MAX_NAME_CHARS
from contextos.contracts.setting_types import (
    AnyText,
    Fault,
    Fits,
    Flag,
    ServiceUrl,
    SettingTable,
    SomeOf,
    SomeText,
    TableKey,
    Variable,
    means,
    secret_faults,
    table_by,
    whole,
)
from contextos.workspace.settings.keys import MAX_PORT_TIMEOUT_S

_PLACES_REMEDY: Final = 'write `<tenant> = ["https://files.acme.example/acme/"]`'
_CREDENTIALS: Final = table_by('write `acme = { CRM_TOKEN = "ACME_CRM_TOKEN" }`')
_TenantCredentials = Annotated[Mapping[TableKey, SomeText], _CREDENTIALS]


@dataclass(frozen=True, slots=True)
class AdapterSetting(SettingTable):
    """An adapter, and the SHA-256 that its file must have."""

    path: Annotated[
        SomeText, means("`module.py:attribute` of a trusted function adapter, or the adapter file of a foreign server")
    ]
    digest: Annotated[SomeText, means("`sha256:...` of the source, or as `contextos adapters publish` writes it")]
    files: Annotated[
        Mapping[TableKey, SomeText],
        table_by('write it like `{ "rates.py" = "sha256:…" }`'),
        means("of a function adapter: the helpers that it imports from the workspace, each path with its digest"),
    ] = field(default_factory=dict)
    tenants: Annotated[
        Mapping[TableKey, _TenantCredentials],
        _CREDENTIALS,
        means("of an adapter file, by tenant: the variables and files in place of those that the file names"),
    ] = field(default_factory=dict)
    shared: Annotated[Flag, means("of an adapter file: one set of credentials serves every tenant")] = False

    def faults(self) -> Iterator[Fault]:
        if is_adapter_file(self):
            if self.files:
                yield Fault(("files",), "an adapter file imports no helpers", "remove `files`")
            if self.tenants and self.shared:
                detail = "credentials that every tenant shares are those of no tenant"
                yield Fault(("shared",), detail, "leave out `shared` or `tenants`")
        elif self.tenants or self.shared:
            detail = "the code of a function adapter receives the tenant of each call, and has its secrets itself"
            yield Fault(("tenants" if self.tenants else "shared",), detail, "leave it out", "no_effect")


def is_adapter_file(adapter: AdapterSetting) -> bool:
    """Return whether an adapter is the file of a foreign server and not a function adapter."""
    return adapter.path.endswith(".json")


@dataclass(frozen=True, slots=True)
class TokenExchangeSetting(SettingTable):
    """The authorization server that issues credentials for calls (RFC 8693)."""

    kind: ClassVar[str] = "token_exchange"

    url: Annotated[ServiceUrl, means("its token endpoint; `https://`, or `http://` on this machine")]
    client_id: Annotated[SomeText, means("the id by which it knows this runtime")]
    secret_file: Annotated[AnyText, means("the file with the client's secret, read for each request")] = ""
    secret_env: Annotated[
        Variable, means("the environment variable that holds it; exactly one of the two is given")
    ] = ""
    issuer: Annotated[AnyText, means("its identifier, and the `aud` of the tokens that it gets; empty: the URL")] = ""
    internal: Annotated[Flag, means("whether it is at a loopback or private address")] = False
    timeout_s: Annotated[int, whole(1, MAX_PORT_TIMEOUT_S, "seconds after which a request is given up")] = 5

    def faults(self) -> Iterator[Fault]:
        yield from secret_faults(self, "secret")
        if len(self.issuer or self.url) > MAX_NAME_CHARS:
            yield Fault(("issuer",), "the identifier is too long", f"give one of at most {MAX_NAME_CHARS} characters")


@dataclass(frozen=True, slots=True)
class AttachmentsSetting(SettingTable):
    """Where the files are that requests can name."""

    places: Annotated[
        Mapping[TableKey, Annotated[SomeOf[ServiceUrl], Fits("this is not a list of places", _PLACES_REMEDY)]],
        Fits("this is not a table, or no tenant is listed", _PLACES_REMEDY, lambda places: places),
        means("by tenant, the beginnings of the URLs of its files, each with `/` at its end"),
    ]
    internal: Annotated[Flag, means("true: their hosts are at loopback or private addresses")] = False

    def faults(self) -> Iterator[Fault]:
        for tenant_id, places in self.places.items():
            for number, place in enumerate(places):
                if not place.endswith("/") or (place.startswith("http://") and not self.internal):
                    detail = "a place ends with `/`, and only `internal` ones are without encryption"
                    yield Fault(("places", tenant_id, number), detail, _PLACES_REMEDY)
