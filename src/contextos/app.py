"""The composition root: builds a running `App` from `Settings`. No other module builds implementations of ports.

A workspace is a directory with `contextos.toml`, which names everything that is used; nothing is discovered. Settings
whose names begin with `unsafe_` are development stand-ins, and every record made under one names it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos import __version__
from contextos.action.breaker import CircuitBreakers
from contextos.adapters.directory import FileDirectory
from contextos.adapters.function.loading import load_function_adapters
from contextos.context.estimator import BytesDiv4
from contextos.contracts.encoding.codec import loads
from contextos.contracts.ports.outside import Adapter, Witness
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
from contextos.operations.deployment import Deployment, DeploymentConfig, DrivenRun, due_runs
from contextos.operations.ports import Ports
from contextos.operations.witness import WitnessPublisher
from contextos.settings import (
    SETTINGS_FILE,
    UNSAFE_SETTINGS,
    AdapterSetting,
    Settings,
    check_settings,
    invalid_setting,
    is_postgres_url,
    is_sink_url,
)
from contextos.slots.steps import ArtifactSlots
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from contextos.store.witness.file import FileWitness
from contextos.trust.seal import KeyRing, open_sealed

if TYPE_CHECKING:
    from contextos.engine.durable.engine import DurableEngine

MAX_ARTIFACT_BYTES: Final = 8 << 20


class SystemEntropy:
    """The `Entropy` port over the operating system's random source."""

    def take(self, count: int) -> bytes:
        return os.urandom(count)


@dataclass(slots=True)
class App:
    """An open deployment. Call `deployment`; call `close` at the end.

    `engine` drives due runs in this process once it is started. `keys` are the keys of the runtime. `stores` is the
    storage of all tenants.
    """

    settings: Settings
    deployment: Deployment
    stores: Stores
    owner: Owner | LeasedOwner
    engine: LocalEngine
    keys: KeyRing
    witness_publisher: WitnessPublisher | None

    def worker(self, on_failure: OnFailure) -> LocalEngine | DurableEngine:
        """Return the engine of a worker process, which drives every due run, over the queue if the settings name one.

        `on_failure` is called when a run cannot be driven.

        Raises:
            InvalidSettings: the settings name a queue, and the extra `durable` is not installed.
        """
        publish_heads = (
            partial(_publish_heads, self.witness_publisher, self.deployment) if self.witness_publisher else None
        )
        orphans, driving = partial(due_runs, self.deployment), self.settings.driving
        if not self.settings.queue:
            limits = EngineLimits(max_drives=driving.max_drives, max_drives_per_tenant=driving.max_drives_per_tenant)
            return LocalEngine(
                self.deployment.advance,
                self.stores,
                SystemClock(),
                orphans=orphans,
                witness=publish_heads,
                heartbeat=self.deployment.send_heartbeats,
                limits=limits,
                on_failure=on_failure,
            )
        from contextos.engine.durable.engine import DurableEngine, DurableLimits
        from contextos.engine.durable.workflows import QueueLimits

        assert self.stores.name, "settings refuse a queue together with a file"
        bounds = QueueLimits(
            store=self.stores.name,
            max_drives=driving.max_drives,
            max_drives_per_tenant=driving.max_drives_per_tenant,
            max_drives_per_tenant_in_all=driving.max_drives_per_tenant_in_all or None,
            rate_per_tenant=driving.rate_per_tenant or None,
            rate_period_ms=driving.rate_period_ms,
        )
        return DurableEngine(
            self.deployment.advance,
            self.stores,
            SystemClock(),
            url=self.settings.queue,
            orphans=orphans,
            witness=publish_heads,
            heartbeat=self.deployment.send_heartbeats,
            limits=DurableLimits(queue=bounds),
            on_failure=on_failure,
        )

    async def drive_due_runs(self, *, patience_s: float = PATIENCE_S) -> list[DrivenRun]:
        """Drive every run that is due, or whose driver is gone, once; dead letters are left alone.

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
    """Open a deployment and publish the packs of its workspace. On an error nothing stays open.

    `planner` plans the runs that begin in this deployment; None fills task templates.

    Raises:
        InvalidSettings: a setting, a key file or an adapter is invalid; names the remedy.
        InvalidArtifact: lint refuses a pack, a policy bundle or a catalog.
        SignatureInvalid: no trusted key signed an artifact.
        StoreRestored: the store was restored from a backup, and no operator has recorded the restore.
        Unavailable: the store does not answer.
    """
    app = await open_unpublished(settings, planner=planner)
    with ExitStack() as on_failure:
        on_failure.callback(app.close)
        await publish_all(app)
        on_failure.pop_all()
    return app


async def open_unpublished(settings: Settings, *, planner: Planner | None = None) -> App:
    """Open a deployment without publishing its packs, to inspect or repair a store.

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
    keys = KeyRing.from_seed(read_seed(workspace / settings.keys / "runtime.key"))
    adapters = _adapters(settings)
    directory = FileDirectory(workspace / settings.directory)
    stores, owner = await _stores(settings)

    async def pause(duration_us: int) -> None:
        await asyncio.sleep(duration_us / 1e6)

    ports = Ports(
        stores=stores,
        graph=stores.graph,
        clock=clock,
        entropy=SystemEntropy(),
        keys=keys,
        directory=directory,
        slots=lambda tenant_id: ArtifactSlots(stores.artifacts(tenant_id), stores.artifacts(tenant_id), clock),
        adapters=lambda _tenant: adapters,
        estimator=BytesDiv4(),
        pause=pause,
        owner=owner.id,
        alive=owner.alive,
        admission=AdmissionController(settings.pressure, clock),
        concurrency=AsyncioConcurrency(),
        planner=planner,
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
        ),
        breakers=CircuitBreakers(settings.pressure, threading.Lock()),
    )
    witness = witness_at(settings.witness, workspace) if settings.witness else None
    witness_publisher = WitnessPublisher(stores, witness, keys, clock) if witness else None
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


async def _stores(settings: Settings) -> tuple[Stores, Owner | LeasedOwner]:
    """Open the storage, and make the id under which this process owns leases."""
    if not is_postgres_url(settings.store):
        path = settings.workspace / settings.store
        return SqliteStores(path, clock=SystemClock()), Owner(path)
    try:
        from contextos.store.postgres.stores import PostgresStores
    except ModuleNotFoundError as missing:
        raise _no_postgres(missing) from None
    return await PostgresStores.open(settings.store), LeasedOwner()


def _no_postgres(missing: ModuleNotFoundError) -> InvalidSettings:
    return invalid_setting(
        "/store", "missing_extra", f"`{missing.name}` is not installed", "install `contextos[postgres]`"
    )


async def _publish_heads(witness_publisher: WitnessPublisher, deployment: Deployment) -> None:
    await witness_publisher.publish(deployment.tenants())
    deployment.heads_published()


def witness_at(place: str, workspace: Path) -> Witness:
    """Return the witness at a URL or in a file.

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


def migrate_queue(url: str, worker_url: str) -> str | None:
    """Migrate the queue in the database at `url`, and grant its use to the role in `worker_url`.

    Returns that role, or None if `worker_url` names none. A repeated call changes nothing. Raises as `migrate`.
    """
    from contextos.engine.durable import queue_connection

    return queue_connection.migrate_queue_tables(url, queue_connection.role_of(worker_url))


async def publish_all(app: App) -> None:
    """Publish every artifact in the pack directories, and activate the policies that the settings list.

    An artifact that names no tenant belongs to the platform and is published in every tenant that the packs name.
    Raises as `publish`.
    """
    paths = [path for folder in app.settings.packs for path in sorted((app.settings.workspace / folder).glob("*.json"))]
    envelopes = [loads(path.read_bytes(), max_bytes=MAX_ARTIFACT_BYTES) for path in paths]
    named = [tenant_named(app, envelope) for envelope in envelopes]
    tenants = sorted({tenant for tenant in named if tenant})
    for envelope, tenant in zip(envelopes, named, strict=True):
        for home in (tenant,) if tenant else tenants:
            await _publish_in(app, home, envelope, by="workspace")
    for tenant in tenants:
        await app.deployment.catalog(tenant).activate_policies(
            app.settings.policies, by="workspace", at_us=SystemClock().now_us(), salt=secrets.token_bytes
        )


async def publish(app: App, envelope: dict[str, Any], *, by: str) -> str:
    """Publish one signed artifact in the tenant that it names, and return that tenant.

    `envelope` is a DSSE envelope, as `seal` makes it with the purpose `pack`. `by` is the publisher's id, which is
    recorded: a publisher cannot approve runs of their pack. Publishing the same version again changes nothing.

    Raises:
        InvalidArtifact: lint refuses the artifact, it names no tenant, or its version has other content already.
        SignatureInvalid: no trusted key signed the envelope.
    """
    tenant = tenant_named(app, envelope)
    if tenant is None:
        raise InvalidArtifact(
            Problem(
                "/tenant", "no_tenant", "it belongs to the platform", "publish it in each tenant with `catalog(tenant)`"
            )
        )
    await _publish_in(app, tenant, envelope, by=by)
    return tenant


async def _publish_in(app: App, tenant_id: str, envelope: dict[str, Any], *, by: str) -> None:
    catalog = app.deployment.catalog(tenant_id)
    await catalog.publish(envelope, by=by, at_us=SystemClock().now_us(), salt=secrets.token_bytes)


def tenant_named(app: App, envelope: dict[str, Any]) -> str | None:
    """Return the tenant that a signed artifact names, or None for the platform. Raises `SignatureInvalid`."""
    artifact = loads(open_sealed(envelope, app.keys, "pack", MODELS), max_bytes=MAX_ARTIFACT_BYTES)
    stated = artifact.get("pack_meta", artifact) if isinstance(artifact, dict) else {}
    tenant = stated.get("tenant") if isinstance(stated, dict) else None
    return tenant if isinstance(tenant, str) else None


def read_seed(path: Path) -> bytes:
    """Read a key file: 32 bytes in hex, readable by its owner only.

    Raises:
        InvalidSettings: the file is missing, other users can read it, or it holds no key.
    """
    try:
        if os.stat(path).st_mode & 0o077:
            raise invalid_setting("/keys", "open_key", f"`{path.name}` can be read by others", "run `chmod 600` on it")
        raw = bytes.fromhex(path.read_text("ascii").strip())
    except (OSError, ValueError) as error:
        raise invalid_setting(
            "/keys",
            "unreadable",
            f"`{path.name}` is not a key file: {error}",
            "make one with `contextos demo --keep DIR`",
        ) from None
    if len(raw) != 32:
        raise invalid_setting("/keys", "unreadable", f"`{path.name}` has {len(raw)} bytes, not 32", "make a new one")
    return raw


def write_seed(path: Path) -> bytes:
    """Write a new random key to a key file and return its 32 bytes. Raises `FileExistsError` if the file exists."""
    raw = secrets.token_bytes(32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(raw.hex() + "\n")
    return raw


def _adapters(settings: Settings) -> dict[str, Adapter]:
    adapters: dict[str, Adapter] = {}
    for one in settings.adapters:
        for adapter in load_function_adapters(
            one.path, one.digest, root=settings.workspace, workspace=settings.workspace
        ):
            adapters[adapter.describe().adapter_id] = adapter
    return adapters


__all__ = [
    "SETTINGS_FILE",
    "UNSAFE_SETTINGS",
    "AdapterSetting",
    "App",
    "Settings",
    "SystemEntropy",
    "migrate",
    "migrate_queue",
    "open_app",
    "open_unpublished",
    "publish",
    "publish_all",
    "read_seed",
    "tenant_named",
    "witness_at",
    "write_seed",
]
