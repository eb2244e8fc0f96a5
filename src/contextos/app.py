"""The composition root: builds a running `App` from `Settings`. No other module builds implementations of ports.

A workspace is a directory with `contextos.toml`, which names everything that is used; nothing is discovered. Settings
whose names begin with `unsafe_` are development stand-ins, and every record made under one names it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos import __version__
from contextos.action.breaker import CircuitBreakers
from contextos.adapters.code import SourceCode
from contextos.adapters.directory import FileDirectory
from contextos.adapters.function.adapter import log_fault
from contextos.adapters.function.loading import LoadedAdapters, load_function_adapters
from contextos.adapters.key_files import KeyFiles, read_seed, write_seed
from contextos.context.estimator import BytesDiv4
from contextos.contracts.encoding.codec import loads
from contextos.contracts.ports.claims import ClaimLimits
from contextos.contracts.ports.outside import Witness
from contextos.contracts.ports.planning import Planner
from contextos.contracts.ports.storage import Stores
from contextos.control.artifacts import MODELS
from contextos.engine.admission_controller import AdmissionController
from contextos.engine.concurrency import AsyncioConcurrency
from contextos.engine.failure_tracker import OnFailure
from contextos.engine.lease_owner import LeasedOwner, Owner
from contextos.engine.local import EngineLimits, LocalEngine
from contextos.engine.resume import PATIENCE_S, drive_due_runs
from contextos.errors import InvalidArtifact, InvalidSettings, Problem
from contextos.files import read_regular_file
from contextos.operations.acts.act import Actor
from contextos.operations.acts.governance import initialise_tenant, publish_artifact
from contextos.operations.deployment import Deployment, DeploymentConfig, DrivenRun, due_runs
from contextos.operations.ports import Ports
from contextos.operations.witness import WitnessPublisher, witness_place
from contextos.settings import (
    NO_WITNESS,
    SETTINGS_FILE,
    UNSAFE_SETTINGS,
    AdapterSetting,
    Settings,
    check_settings,
    has_default_witness,
    invalid_setting,
    is_postgres_url,
    is_sink_url,
)
from contextos.slots.steps import ArtifactSlots
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from contextos.store.witness.default import default_witness_path, make_state_folder
from contextos.store.witness.file import FileWitness
from contextos.telemetry.planner import LoggedPlanner
from contextos.trust.seal import open_sealed

if TYPE_CHECKING:
    from contextos.engine.shared import SharedEngine

MAX_ARTIFACT_BYTES: Final = 8 << 20


class SystemEntropy:
    """The `Entropy` port over the operating system's random source."""

    def take(self, count: int) -> bytes:
        return os.urandom(count)


@dataclass(slots=True)
class App:
    """A running deployment. Use `deployment` to send requests; call `close` at the end.

    `engine` drives due runs in this process once it is started. `keys` are the keys of the runtime. `stores` is the
    storage of all tenants.
    """

    settings: Settings
    deployment: Deployment
    stores: Stores
    owner: Owner | LeasedOwner
    engine: LocalEngine
    keys: KeyFiles
    witness_publisher: WitnessPublisher | None

    def worker(self, on_failure: OnFailure) -> LocalEngine | SharedEngine:
        """Return the engine of a worker process, which drives every due run. On PostgreSQL workers share the runs.

        `on_failure` is called when a run cannot be driven.
        """
        publish_heads = (
            partial(_publish_heads, self.witness_publisher, self.deployment) if self.witness_publisher else None
        )
        driving = self.settings.driving
        if isinstance(self.owner, Owner):
            return LocalEngine(
                self.deployment.advance,
                self.stores,
                SystemClock(),
                orphans=partial(due_runs, self.deployment),
                witness=publish_heads,
                heartbeat=self.deployment.send_heartbeats,
                limits=EngineLimits(max_drives=driving.max_drives, max_drives_per_tenant=driving.max_drives_per_tenant),
                on_failure=on_failure,
            )
        from contextos.engine.shared import SharedEngine, SharedLimits
        from contextos.store.postgres.claims import PostgresClaims

        limits = ClaimLimits(
            per_tenant=driving.max_drives_per_tenant,
            per_tenant_in_all=driving.max_drives_per_tenant_in_all,
            rate_per_tenant=driving.rate_per_tenant,
            rate_period_ms=driving.rate_period_ms,
        )
        return SharedEngine(
            self.deployment.advance,
            self.stores,
            SystemClock(),
            PostgresClaims(self.settings.store, self.owner.id, SystemClock(), limits),
            on_dead=self.owner.set_dead,
            witness=publish_heads,
            heartbeat=self.deployment.send_heartbeats,
            limits=SharedLimits(max_drives=driving.max_drives, claims=limits),
            on_failure=on_failure,
        )

    async def publish(self, envelope: dict[str, Any], *, by: Actor) -> str:
        """Publish one signed artifact in the tenant that it names, and return that tenant.

        `envelope` is a DSSE envelope, as `seal` makes it with the purpose `pack`. `by` is the person who publishes, and
        signs for it: they cannot approve runs of their pack. Publishing the same version again changes nothing.

        Raises:
            InvalidArtifact: lint refuses the artifact, it names no tenant, or its version has other content already.
            SignatureInvalid: no trusted key signed the envelope.
            ApprovalRefused: the actor is not proved, or has not the role `publisher`.
        """
        tenant = self.tenant_named(envelope)
        if tenant is None:
            remedy = "publish it in each tenant, by its name"
            raise InvalidArtifact(Problem("/tenant", "no_tenant", "it belongs to the platform", remedy))
        await publish_artifact(self.deployment, tenant, envelope, by=by)
        return tenant

    def tenant_named(self, envelope: dict[str, Any]) -> str | None:
        """Return the tenant that a signed artifact names, or None for the platform. Raises `SignatureInvalid`."""
        artifact = loads(open_sealed(envelope, self.keys, "pack", MODELS), max_bytes=MAX_ARTIFACT_BYTES)
        stated = artifact.get("pack_meta", artifact) if isinstance(artifact, dict) else {}
        tenant = stated.get("tenant") if isinstance(stated, dict) else None
        return tenant if isinstance(tenant, str) else None

    async def drive_due_runs(self, *, patience_s: float = PATIENCE_S) -> list[DrivenRun]:
        """Drive every run once that is due or whose process died. Runs on the dead-letter list (failed for good) are
        left alone.

        A run that is still held up after `patience_s` seconds comes back with `Unavailable` as its error.
        """
        return await drive_due_runs(self.deployment, self.engine, patience_s=patience_s)

    def close(self) -> None:
        """Release leases, files and connections.

        Pending writes to a SQLite file are finished first; a PostgreSQL database is not waited for.
        """
        self.deployment.close()
        self.stores.close()
        self.owner.close()


async def open_app(settings: Settings, *, planner: Planner | None = None) -> App:
    """Open a deployment whose store has the policies that the settings name. On an error nothing stays open.

    Opening changes nothing of what is active: `operations.acts` does, or the command `contextos init`. `planner` plans
    the runs that begin in this deployment; None fills task templates.

    Raises:
        InvalidSettings: a setting, a key file or an adapter is invalid, or the store has other policies in force than
            the settings name; names the remedy.
        Integrity: what is active in a tenant was changed past the runtime.
        StoreRestored: the store was restored from a backup, and no operator has recorded the restore.
        Unavailable: the store does not answer.
    """
    app = await open_unchecked(settings, planner=planner)
    with ExitStack() as on_failure:
        on_failure.callback(app.close)
        await _check_policies(app)
        on_failure.pop_all()
    return app


async def _check_policies(app: App) -> None:
    """Check that every tenant of the directory has exactly the policies in force that the settings name."""
    named = app.settings.policies
    if named is None:
        return
    for tenant_id in FileDirectory(app.settings.workspace / app.settings.directory).tenants():
        active = await app.deployment.catalog(tenant_id).active()
        if not active.version:
            detail = f"the settings name policies, and nothing is active in `{tenant_id}`"
            raise invalid_setting("/policies", "not_initialised", detail, "run `contextos init`")
        missing = [ref for _, ref in sorted(set(named) - set(active.policies))]
        more = [ref for _, ref in sorted(set(active.policies) - set(named))]
        told = [f"the settings name `{ref}`, which is not in force so" for ref in missing]
        told += [f"`{ref}` is in force, and the settings do not name it so" for ref in more]
        if told:
            detail = f"in `{tenant_id}`, whose active set has the version {active.version}: {'; '.join(told)}"
            remedy = "correct the settings, or change the policies with `contextos policies`"
            raise invalid_setting("/policies", "policies_differ", detail, remedy)


async def open_unchecked(settings: Settings, *, planner: Planner | None = None, read_only: bool = False) -> App:
    """Open a deployment whatever policies are in force, to inspect, initialise or repair a store.

    `read_only`: the store is opened so that nothing can be written.

    Raises:
        InvalidSettings: a setting, a key file or an adapter is invalid; names the remedy.
        Unavailable: the store does not answer.
    """
    check_settings(settings)
    for name, what in (("unsafe_local_directory", "a directory file"), ("unsafe_local_keys", "a key file")):
        if name not in settings.unsafe:
            remedy = f"allow `{name}`" if settings.profile == "embedded" else "build its `Deployment` on other ports"
            raise invalid_setting("/unsafe", "unsafe_not_allowed", f"{what} is a development stand-in", remedy)
    workspace, clock = settings.workspace, SystemClock()
    keys = KeyFiles(workspace / settings.keys, clock)
    loaded = _adapters(settings)
    adapters = {adapter.describe().adapter_id: adapter for one in loaded for adapter in one.adapters}
    directory = FileDirectory(workspace / settings.directory)
    witness, place = _witness(settings, keys, read_only=read_only)
    stores, owner = await _stores(settings, read_only=read_only)

    async def pause(duration_us: int) -> None:
        await asyncio.sleep(duration_us / 1e6)

    ports = Ports(
        stores=stores,
        clock=clock,
        entropy=SystemEntropy(),
        keys=keys,
        directory=directory,
        slots=lambda tenant_id: ArtifactSlots(stores.artifacts(tenant_id), stores.artifacts(tenant_id), clock),
        adapters=lambda _tenant: adapters,
        code=SourceCode(*loaded),
        estimator=BytesDiv4(),
        pause=pause,
        owner=owner.id,
        alive=owner.alive,
        admission=AdmissionController(settings.pressure, clock),
        concurrency=AsyncioConcurrency(),
        planner=None if planner is None else LoggedPlanner(planner),
        report_fault=log_fault,
    )
    deployment = Deployment(
        ports=ports,
        config=DeploymentConfig(
            limits=settings.limits,
            runtime_version=__version__,
            profile=settings.profile,
            unsafe=settings.unsafe,
            allow_unsigned="unsafe_unsigned_packs" in settings.unsafe,
            lease_ttl_us=settings.lease_ttl_s * 1_000_000,
            heartbeat_ttl_us=settings.heartbeat_ttl_s * 1_000_000,
            egress=settings.egress,
            redaction=settings.redaction,
        ),
        breakers=CircuitBreakers(settings.pressure, threading.Lock()),
    )
    witness_publisher = WitnessPublisher(stores, witness, keys, clock, SystemEntropy(), place) if witness else None
    publish_heads = partial(_publish_heads, witness_publisher, deployment) if witness_publisher else None
    engine = LocalEngine(
        deployment.advance,
        stores,
        clock,
        orphans=partial(due_runs, deployment),
        witness=publish_heads,
        heartbeat=deployment.send_heartbeats,
    )
    return App(settings, deployment, stores, owner, engine, keys, witness_publisher)


async def _stores(settings: Settings, *, read_only: bool) -> tuple[Stores, Owner | LeasedOwner]:
    """Open the storage, and make the id under which this process owns leases."""
    if not is_postgres_url(settings.store):
        path = settings.workspace / settings.store
        stores = SqliteStores(path, clock=SystemClock(), read_only=read_only)
        return stores, LeasedOwner() if read_only else Owner(path)
    try:
        from contextos.store.postgres.stores import PostgresStores
    except ModuleNotFoundError as missing:
        raise _no_postgres(missing) from None
    return await PostgresStores.open(settings.store, read_only=read_only), LeasedOwner()


def _no_postgres(missing: ModuleNotFoundError) -> InvalidSettings:
    return invalid_setting(
        "/store", "missing_extra", f"`{missing.name}` is not installed", "install `contextos[postgres]`"
    )


async def _publish_heads(witness_publisher: WitnessPublisher, deployment: Deployment) -> None:
    await witness_publisher.publish(deployment.tenants())
    deployment.heads_published()


def _witness(settings: Settings, keys: KeyFiles, *, read_only: bool) -> tuple[Witness | None, str]:
    """Return the witness of a deployment, and the name by which its journals record it; None if it has none."""
    workspace, named = settings.workspace, settings.witness
    if named not in ("", NO_WITNESS):
        return witness_at(named, workspace), witness_place(named if is_sink_url(named) else str(workspace / named))
    if not has_default_witness(settings):
        return None, ""
    kids = [one.kid for one in keys.listed() if one.purpose == "head"]
    path = default_witness_path(workspace / settings.store, kids[-1] if kids else "")
    if not read_only:
        make_state_folder(path)
    return FileWitness(path), witness_place(str(path))


def witness_at(place: str, workspace: Path) -> Witness:
    """Return the witness, the place outside the database where signed heads are kept, at a URL or in a file.

    Raises:
        InvalidSettings: `place` is a URL, and the extra `http` is not installed.
    """
    if not is_sink_url(place):
        return FileWitness(workspace / place)
    try:
        from contextos.store.witness.http import HttpWitness
    except ModuleNotFoundError as missing:
        detail = f"`{missing.name}` is not installed"
        raise invalid_setting("/witness", "missing_extra", detail, "install `contextos[http]`") from None
    return HttpWitness(place)


async def migrate(url: str) -> tuple[str | None, str]:
    """Migrate the schema of the PostgreSQL database at `url` to this version; return the versions (before, after).

    A repeated call changes nothing. The role in `url` owns the schema; deployments connect as another role.

    Raises:
        InvalidSettings: the database cannot be migrated, or the extra `postgres` is not installed.
        Unavailable: the server does not answer.
    """
    try:
        from contextos.store.postgres import schema
    except ModuleNotFoundError as missing:
        raise _no_postgres(missing) from None
    return await schema.migrate_schema(url)


async def initialise(app: App, tenant_id: str, *, by: Actor) -> list[str]:
    """Publish the artifacts of the workspace in a tenant, put the policies of the settings in force, and pin the packs.

    Returns what was done, as sentences. What is done already is left out, so a repeated call does nothing. Policies
    that are in force are never changed here.

    Raises:
        InvalidArtifact: lint refuses a pack, a policy bundle or a catalog.
        InvalidSettings: other policies are in force than the settings name.
        SignatureInvalid: no trusted key signed an artifact.
        ApprovalRefused: the actor is not proved, or has not the roles `publisher` and `policy_admin`.
    """
    settings = app.settings
    paths = [path for folder in settings.packs for path in sorted((settings.workspace / folder).glob("*.json"))]
    envelopes = [_read_envelope(path) for path in paths]
    named = [one for one in envelopes if app.tenant_named(one) in (None, tenant_id)]
    done = await initialise_tenant(app.deployment, tenant_id, named, settings.policies or (), by=by)
    await _check_policies(app)
    return done


def _read_envelope(path: Path) -> Any:
    try:
        raw = read_regular_file(path, MAX_ARTIFACT_BYTES)
    except OSError as error:
        detail = f"`{path.name}` cannot be read: {(error.strerror or str(error)).lower()}"
        raise invalid_setting("/packs", "unreadable", detail, "correct or remove the file") from None
    return loads(raw, max_bytes=MAX_ARTIFACT_BYTES)


def make_keys(folder: Path) -> KeyFiles:
    """Make the keys of a new runtime in `folder`, one for each purpose. Raises `FileExistsError` if it has some."""
    return KeyFiles.make(folder, SystemClock())


def _adapters(settings: Settings) -> list[LoadedAdapters]:
    root = settings.workspace
    return [
        load_function_adapters(one.path, one.digest, root=root, workspace=root, files=one.files)
        for one in settings.adapters
    ]


__all__ = [
    "SETTINGS_FILE",
    "UNSAFE_SETTINGS",
    "AdapterSetting",
    "App",
    "Settings",
    "SystemEntropy",
    "initialise",
    "make_keys",
    "migrate",
    "open_app",
    "open_unchecked",
    "read_seed",
    "witness_at",
    "write_seed",
]
