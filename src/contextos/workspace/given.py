"""Makes the ports of a deployment from its settings and from the objects that the embedding program brings.

A port that is a development stand-in has an attribute `unsafe`, a tuple of `unsafe_…` names. A deployment with such a
port is refused unless the settings name it or the program opens it with `dev=True`; in the profile `service` always.
Records name the stand-ins in use, whatever the settings name. They also name the classes of other authors, which state
themselves whether they are stand-ins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contextos.action.foreign_code import describe_adapter
from contextos.adapters.directory import FileDirectory
from contextos.adapters.function.loading import LoadedAdapters, load_function_adapters
from contextos.adapters.key_files import KeyFiles
from contextos.adapters.oidc_directory import ClaimNames, OidcDirectory
from contextos.adapters.signed_directory import Sealing, SignedDirectory
from contextos.contracts.encoding.codec import loads
from contextos.contracts.envelopes.record import UNSAFE_OBSERVED
from contextos.contracts.model import MAX_NAME_CHARS
from contextos.contracts.ports.credentials import Credentials
from contextos.contracts.ports.models import ModelProvider
from contextos.contracts.ports.outside import Adapter, Attachments, Clock, Directory, Keys, Witness
from contextos.contracts.ports.planning import Planner
from contextos.contracts.ports.storage import Stores
from contextos.deployment.ports import RunTelemetry
from contextos.deployment.witness import witness_place
from contextos.errors import InvalidInput, InvalidSettings, Unavailable
from contextos.files import read_regular_file
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from contextos.store.witness.default import default_witness_path, make_state_folder
from contextos.store.witness.file import FileWitness
from contextos.workspace.engine.lease_owner import LeasedOwner, Owner
from contextos.workspace.foreign_adapters import load_adapter_file
from contextos.workspace.settings import (
    NO_WITNESS,
    UNSAFE_PORTS,
    UNSAFE_SETTINGS,
    Settings,
    has_default_witness,
    is_postgres_url,
    is_sink_url,
)
from contextos.workspace.settings.calls import is_adapter_file
from contextos.workspace.settings.directory import OidcDirectorySetting, SignedDirectorySetting
from contextos.workspace.settings.keys import Pkcs8KeysSetting, RemoteKeysSetting
from contextos.workspace.settings.reading import invalid_setting, within

if TYPE_CHECKING:
    from contextos.adapters.jwks import Jwks

_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "directory": ("knows_tenant", "resolve", "delegation", "approver", "held_roles"),
    "keys": ("sign", "verify", "kids", "public_key"),
    "adapters": ("describe", "call", "lookup"),
    "planner": ("propose",),
    "credentials": ("exchange",),
    "telemetry": ("run_ended", "run_replayed"),
    "models": ("complete",),
}
_UNSAFE_NAME: Final = re.compile(r"unsafe_[a-z0-9_]{1,64}")


@dataclass(frozen=True, slots=True)
class GivenPorts:
    """The ports that the embedding program brings. None means the port of the settings. `adapters` are used beside the
    adapters of the settings.

    `models` answers all calls of models, whatever protocol their profiles name. `dev` allows stand-ins that the
    settings do not name.
    """

    directory: Directory | None = None
    keys: Keys | None = None
    adapters: Sequence[Adapter] = ()
    planner: Planner | None = None
    credentials: Credentials | None = None
    telemetry: RunTelemetry | None = None
    models: ModelProvider | None = None
    stores: Stores | None = None
    clock: Clock = field(default_factory=SystemClock)
    dev: bool = False

    def check(self) -> None:
        """Refuse an object that lacks a method of its port. Raises `InvalidSettings`."""
        if not isinstance(self.adapters, list | tuple):
            detail = f"`{type(self.adapters).__name__[:80]}` is not a list of adapters"
            raise invalid_setting("/adapters", "no_such_port", detail, "give a list, also of one adapter")
        single_ports = {
            "directory": self.directory,
            "keys": self.keys,
            "planner": self.planner,
            "credentials": self.credentials,
            "telemetry": self.telemetry,
            "models": self.models,
        }
        ports_by_name = {name: () if port is None else (port,) for name, port in single_ports.items()}
        for name, ports in {**ports_by_name, "adapters": self.adapters}.items():
            for port in ports:
                missing = [method for method in _METHODS[name] if not callable(getattr(port, method, None))]
                if missing or isinstance(port, type):
                    detail = f"`{type(port).__name__[:80]}` has no `{missing[0]}`" if missing else "this is a class"
                    remedy = "give an object with the methods of the port in `contextos.contracts.ports`"
                    raise invalid_setting(f"/{name}", "no_such_port", detail, remedy)
        if self.planner is not None and not isinstance(getattr(self.planner, "name", None), str):
            detail = f"`{type(self.planner).__name__[:80]}` has no `name`"
            raise invalid_setting("/planner", "no_such_port", detail, "name it and its version: `acme.planner@1.2.0`")
        issuer = getattr(self.credentials, "issuer", None)
        if self.credentials is not None and not (isinstance(issuer, str) and 0 < len(issuer) <= MAX_NAME_CHARS):
            detail = f"`{type(self.credentials).__name__[:80]}` has no `issuer` of at most {MAX_NAME_CHARS} characters"
            raise invalid_setting("/credentials", "no_such_port", detail, "say who issues its credentials")


class SystemEntropy:
    """The `Entropy` port over the operating system's random source."""

    def take(self, count: int) -> bytes:
        return os.urandom(count)


def lineage(settings: Settings, ports: tuple[object, ...], *, dev: bool) -> tuple[str, ...]:
    """Return the `unsafe_` names for the records of this deployment: the names of the stand-ins among the ports in use,
    and the names in `unsafe` of the settings that do not name a port.

    Raises:
        InvalidSettings: a port in use is a stand-in that is not allowed here, or its attribute `unsafe` is not valid.
    """
    in_use = tuple(dict.fromkeys(name for port in ports for name in _unsafe_names(port)))
    for name in in_use:
        port_text = UNSAFE_PORTS.get(name, f"the port that declares `{name[:80]}`")
        if settings.profile == "service":
            detail = f"{port_text} is a development stand-in, and this deployment is a service"
            raise invalid_setting("/unsafe", "unsafe_not_allowed", detail, "use another implementation of this port")
        if name not in settings.unsafe and not dev:
            remedy = f"allow `{name}`, or use another implementation of this port"
            raise invalid_setting("/unsafe", "unsafe_not_allowed", f"{port_text} is a development stand-in", remedy)
    return (*in_use, *(name for name in settings.unsafe if name not in UNSAFE_PORTS))


def _unsafe_names(port: object) -> Iterator[str]:
    names = getattr(port, "unsafe", ())
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        detail = f"`unsafe` of `{type(port).__name__[:80]}` is not a tuple of names"
        raise invalid_setting("/unsafe", "bad_setting", detail, "name each stand-in that the port is")
    for name in names:
        # The name of a port allows nothing: the settings allow stand-ins, and a pack says whether it observes.
        reserved_names = {*UNSAFE_SETTINGS, UNSAFE_OBSERVED} - UNSAFE_PORTS.keys()
        if name in reserved_names or not _UNSAFE_NAME.fullmatch(name):
            detail = f"a port cannot declare `{name[:80]}`"
            raise invalid_setting("/unsafe", "bad_setting", detail, "name what it replaces: `unsafe_…`")
        yield name


@contextmanager
def extra_named(name: str, at: str) -> Iterator[None]:
    """Turn the import error of a missing package into `InvalidSettings`, which names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        detail = f"`{error.name}` is not installed"
        raise invalid_setting(at, "missing_extra", detail, f"install `contextos[{name}]`") from None


def kind_of_directory(settings: Settings) -> type[FileDirectory]:
    """Return the class of the directory that the settings name."""
    return FileDirectory if isinstance(settings.directory, str) else SignedDirectory


async def directory_of(settings: Settings, stores: Stores, sealing: Sealing, *, read_only: bool) -> Directory:
    """Return the directory that the settings name. Raises `InvalidSettings`."""
    setting, root = settings.directory, settings.workspace
    if isinstance(setting, str):
        return FileDirectory(root / setting)
    signers = [bytes.fromhex(signer) for signer in setting.signers]
    if isinstance(setting, SignedDirectorySetting):
        directory = SignedDirectory(root / setting.path, signers, stores, **sealing, read_only=read_only)
    else:
        directory = OidcDirectory(
            root / setting.path,
            signers,
            stores,
            issuer=setting.trusted(),
            jwks=_jwks(setting, root, sealing["clock"]),
            claims=ClaimNames(
                user_claim=setting.user_claim,
                roles_claim=setting.roles_claim,
                roles=setting.roles,
                scopes_claim=setting.scopes_claim,
                scopes=setting.scopes,
                organization_claim=setting.organization_claim,
                tenant_claim=setting.tenant_claim,
                agent_claim=setting.agent_claim,
            ),
            **sealing,
            read_only=read_only,
        )
    await directory.check()
    return directory


def _jwks(setting: OidcDirectorySetting, root: Path, clock: Clock) -> Jwks:
    with extra_named("http", "/directory"):
        from contextos.adapters.jwks import MAX_JWKS_BYTES, HttpJwks, PinnedJwks
    if setting.jwks_url:
        with within("/directory"):
            return HttpJwks(setting.jwks_url, clock, issuer=setting.issuer, internal=setting.internal)
    try:
        content = loads(read_regular_file(root / setting.jwks_file, MAX_JWKS_BYTES), max_bytes=MAX_JWKS_BYTES)
        return PinnedJwks(content)
    except (OSError, InvalidInput) as error:
        detail = f"`{setting.jwks_file}` is not a JWK Set: {error}"
        raise invalid_setting("/directory/jwks_file", "unreadable", detail, "bring the issuer's keys") from None


def keys_of(settings: Settings, clock: Clock) -> Keys:
    """Return the keys that the settings name.

    Raises:
        InvalidSettings: a file, a passphrase or a pinned key is wrong, or the extra `http` is not installed.
        Unavailable: the key service does not answer.
    """
    setting, root = settings.keys, settings.workspace
    if isinstance(setting, str):
        return KeyFiles(root / setting, clock)
    if isinstance(setting, Pkcs8KeysSetting):
        from contextos.adapters.encrypted_keys import Pkcs8Files, read_secret

        file = root / setting.passphrase_file if setting.passphrase_file else None
        return KeyFiles(root / setting.path, clock, Pkcs8Files(read_secret(file, setting.passphrase_env, "/keys")))
    return _remote_keys(setting, root)


def _remote_keys(setting: RemoteKeysSetting, root: Path) -> Keys:
    from contextos.adapters.encrypted_keys import read_secret

    with extra_named("http", "/keys"):
        from contextos.adapters.remote_keys import RemoteKeys
    file = root / setting.token_file if setting.token_file else None

    def token() -> str:
        if file is None and not setting.token_env:
            return ""
        return read_secret(file, setting.token_env, "/keys").decode("utf-8", "replace")

    return RemoteKeys(setting.url, setting.keys, token, timeout_s=setting.timeout_s)


def credentials_of(settings: Settings, clock: Clock) -> Credentials | None:
    """Return the issuer of credentials for calls, or None if the settings name none.

    Raises:
        InvalidSettings: the secret or the URL is wrong, or the extra `http` is not installed.
    """
    setting, root = settings.credentials, settings.workspace
    if setting is None:
        return None
    from contextos.adapters.encrypted_keys import read_secret

    with extra_named("http", "/credentials"):
        from contextos.adapters.oauth.token_exchange import TokenExchange
    file = root / setting.secret_file if setting.secret_file else None
    secret = partial(read_secret, file, setting.secret_env, "/credentials")
    secret()
    try:
        return TokenExchange(
            setting.url,
            setting.client_id,
            secret,
            clock,
            issuer=setting.issuer,
            internal=setting.internal,
            timeout_s=setting.timeout_s,
        )
    except InvalidInput as error:
        problem = error.problems[0]
        raise invalid_setting("/credentials/url", problem.code, problem.detail, problem.remedy) from None


def refuse_without_issuer(adapters: Mapping[str, Adapter], credentials: Credentials | None) -> None:
    """Refuse an adapter whose calls need a credential that nobody issues here. Raises `InvalidSettings`."""
    for adapter_id, adapter in adapters.items():
        for tool in describe_adapter(adapter_id, adapter).capabilities if credentials is None else ():
            if tool.auth.mode == "exchange":
                detail = f"`{adapter_id}.{tool.name}` is called with exchanged credentials, and nobody issues them here"
                raise invalid_setting("/credentials", "no_issuer", detail, "name the issuer in `[credentials]`")


def attachments_of(settings: Settings) -> Attachments | None:
    """Return the port that fetches the files that requests name, or None. Raises `InvalidSettings`."""
    setting = settings.attachments
    if setting is None:
        return None
    with extra_named("http", "/attachments"):
        from contextos.adapters.attachments import HttpAttachments
    try:
        return HttpAttachments(setting.places, internal=setting.internal)
    except InvalidInput as error:
        problem = error.problems[0]
        raise invalid_setting("/attachments/places", problem.code, problem.detail, problem.remedy) from None


def adapters_of(settings: Settings) -> list[LoadedAdapters]:
    """Load the adapters that the settings name. Raises `InvalidSettings`."""
    root = settings.workspace
    return [
        load_adapter_file(
            setting.path,
            setting.digest,
            root=root,
            names=next(iter(setting.tenants.values()), None),
            authors=settings.adapter_authors,
        )
        if is_adapter_file(setting)
        else load_function_adapters(setting.path, setting.digest, root=root, workspace=root, files=setting.files)
        for setting in settings.adapters
    ]


def adapters_by_id(loaded: list[LoadedAdapters], given: Sequence[Adapter]) -> dict[str, Adapter]:
    """Return all adapters by their ids. Raises `InvalidSettings` if two adapters have the same id, or one of them gives
    no definition.
    """
    by_id: dict[str, Adapter] = {}
    for adapter in (*(adapter for group in loaded for adapter in group.adapters), *given):
        try:
            adapter_id = describe_adapter(type(adapter).__name__, adapter).adapter_id
        except Unavailable as error:
            remedy = "have `describe` return an `AdapterDefinition`"
            raise invalid_setting("/adapters", "no_definition", str(error), remedy) from error.__cause__
        if adapter_id in by_id:
            detail = f"two adapters have the id `{adapter_id}`"
            raise invalid_setting("/adapters", "duplicate", detail, "leave one out, or give it another id")
        by_id[adapter_id] = adapter
    return by_id


async def stores_of(settings: Settings, given: GivenPorts, *, read_only: bool) -> tuple[Stores, Owner | LeasedOwner]:
    """Open the storage, and make the id under which this process owns leases. Raises `InvalidSettings`."""
    if given.stores is not None:
        return given.stores, Owner(None)
    if not is_postgres_url(settings.store):
        path = settings.workspace / settings.store
        stores = SqliteStores(path, clock=given.clock, read_only=read_only)
        return stores, LeasedOwner() if read_only else Owner(path)
    try:
        from contextos.store.postgres.stores import PostgresStores
    except ModuleNotFoundError as error:
        raise no_postgres(error) from None
    return await PostgresStores.open(settings.store, read_only=read_only), LeasedOwner()


def no_postgres(missing: ModuleNotFoundError) -> InvalidSettings:
    """Return the error for a PostgreSQL store without the extra."""
    return invalid_setting(
        "/store", "missing_extra", f"`{missing.name}` is not installed", "install `contextos[postgres]`"
    )


def witness_of(settings: Settings, keys: Keys, *, read_only: bool) -> tuple[Witness | None, str]:
    """Return the witness of a deployment, and the name by which its journals record it; None if it has none."""
    workspace, setting = settings.workspace, settings.witness
    if setting not in ("", NO_WITNESS):
        # A file has one name in the journal, however the path of the workspace is written.
        place = setting if is_sink_url(setting) else str((workspace / setting).resolve())
        return witness_at(setting, workspace), witness_place(place)
    if not has_default_witness(settings):
        return None, ""
    path = default_witness_path(workspace / settings.store, _first_head_key(keys))
    if not read_only:
        make_state_folder(path)
    return FileWitness(path), witness_place(str(path))


def _first_head_key(keys: Keys) -> str:
    kids = (
        [key.kid for key in keys.listed() if key.purpose == "head"]
        if isinstance(keys, KeyFiles)
        else [*keys.kids("head")]
    )
    return kids[-1] if kids else ""


def witness_at(place: str, workspace: Path) -> Witness:
    """Return the witness, the place outside the database where signed heads are kept, at a URL or in a file.

    Raises:
        InvalidSettings: `place` is a URL, and the extra `http` is not installed.
    """
    if not is_sink_url(place):
        return FileWitness(workspace / place)
    with extra_named("http", "/witness"):
        from contextos.store.witness.http import HttpWitness
    return HttpWitness(place)
