"""Build a deployment from its settings and the ports that are given, and initialise a store."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from contextos import __version__
from contextos.action.breaker import CircuitBreakers
from contextos.adapters.code import SourceCode, stated_by
from contextos.adapters.encrypted_keys import Pkcs8Files
from contextos.adapters.function.adapter import log_fault
from contextos.adapters.key_files import KeyFiles
from contextos.adapters.signed_directory import Sealing
from contextos.context.estimator import BytesDiv4
from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.facts import ENVIRONMENTS
from contextos.deployment.deployment import Deployment, DeploymentConfig
from contextos.deployment.ports import Ports, no_witness
from contextos.deployment.witness import WitnessPublisher
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.memory import SqliteMemoryStores
from contextos.telemetry.planner import LoggedPlanner
from contextos.workspace.application import App
from contextos.workspace.engine.admission_controller import AdmissionController
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.engine.run_watch import RunWatch
from contextos.workspace.engines import ask_witness, local_engine
from contextos.workspace.foreign_adapters import TenantAdapters
from contextos.workspace.given import (
    GivenPorts,
    SystemEntropy,
    adapters_by_id,
    adapters_of,
    attachments_of,
    credentials_of,
    directory_of,
    keys_of,
    kind_of_directory,
    lineage,
    no_postgres,
    refuse_without_issuer,
    stores_of,
    witness_of,
)
from contextos.workspace.logins.issuers import approval_logins_of, partners_of
from contextos.workspace.models import models_of, script_of
from contextos.workspace.settings import Settings, check_settings, is_postgres_url
from contextos.workspace.telemetry import DeferredTelemetry, telemetry_of


async def open_app(settings: Settings, given: GivenPorts | None = None) -> App:
    """Open a deployment whose store has the policies that the settings name. On an error nothing stays open.

    Opening never changes which artifacts are active: `deployment.acts` does, or the command `contextos apply`.

    Raises:
        InvalidSettings: a setting, a port, a key file or an adapter is invalid, a setting names a tenant that the
            directory does not list, or the store has other policies in force than the settings name.
        Integrity: the active set of a tenant was changed past the runtime.
        StoreRestored: the store was restored from a backup, and no operator has recorded the restore.
        Unavailable: the store does not answer.
    """
    app = await open_unchecked(settings, given)
    with ExitStack() as on_failure:
        on_failure.callback(app.close)
        app.configuration.require_tenants()
        await app.check_policies()
        on_failure.pop_all()
    return app


async def open_unchecked(settings: Settings, given: GivenPorts | None = None, *, read_only: bool = False) -> App:
    """Open a deployment whatever policies are in force, to inspect, initialise or repair a store. On an error nothing
    stays open.

    With `read_only` nothing can be written to the store.

    Raises:
        InvalidSettings: a setting, a port, a key file or an adapter is invalid; names the remedy.
        Unavailable: the store does not answer.
    """
    given, settings = given or GivenPorts(), check_settings(settings)
    given.check()
    clock = given.clock
    with ExitStack() as on_failure:
        # Before any file is read, so that the first answer names what is not allowed.
        directory_port = kind_of_directory(settings) if given.directory is None else given.directory
        key_port = given.keys or (KeyFiles if isinstance(settings.keys, str) else None)
        lineage(settings, (directory_port, key_port), dev=given.dev)
        keys = given.keys if given.keys is not None else keys_of(settings, clock)
        owned: list[Any] = [] if given.keys is not None or not hasattr(keys, "close") else [keys]
        for port in owned:
            on_failure.callback(port.close)
        loaded = adapters_of(settings)
        for port in (port for group in loaded if group.made for port in group.adapters if hasattr(port, "close")):
            owned.append(port)
            on_failure.callback(port.close)
        adapters = adapters_by_id(loaded, given.adapters)
        credentials = given.credentials if given.credentials is not None else credentials_of(settings, clock)
        refuse_without_issuer(adapters, credentials)
        provider = given.models if given.models is not None else script_of(settings)
        in_use = (directory_port, keys, clock, given.stores, given.planner, provider, credentials, *adapters.values())
        unsafe = lineage(settings, in_use, dev=given.dev)
        telemetry = telemetry_of(settings, read_only=read_only, given=given.telemetry)
        if isinstance(telemetry, DeferredTelemetry):
            owned.append(telemetry)
            on_failure.callback(telemetry.close)
        witness, place = witness_of(settings, keys, read_only=read_only)
        stores, owner = await stores_of(settings, given, read_only=read_only)
        on_failure.callback(stores.close)
        on_failure.callback(owner.close)
        directory, entropy = given.directory, SystemEntropy()
        publisher = WitnessPublisher(stores, witness, keys, clock, entropy, place) if witness else None
        ask = partial(ask_witness, publisher) if publisher else no_witness
        if directory is None:
            sealing: Sealing = {"keys": keys, "clock": clock, "entropy": entropy, "ask_witness": ask}
            directory = await directory_of(settings, stores, sealing, read_only=read_only)
        tenant_adapters = TenantAdapters(settings, loaded, adapters, code := SourceCode(*loaded), directory)
        owned.append(tenant_adapters)
        on_failure.callback(tenant_adapters.close)
        watch = RunWatch(stores, keys)
        breakers = CircuitBreakers(settings.pressure, threading.Lock())
        ports = Ports(
            stores=watch.watched(),
            clock=clock,
            entropy=entropy,
            keys=keys,
            directory=directory,
            attachments=attachments_of(settings),
            slots=lambda tenant_id: ArtifactSlots(stores.artifacts(tenant_id), stores.artifacts(tenant_id), clock),
            adapters=tenant_adapters,
            code=code,
            estimator=BytesDiv4(),
            pause=_pause,
            owner=owner.id,
            alive=owner.alive,
            admission=AdmissionController(settings.pressure, clock),
            concurrency=AsyncioConcurrency(),
            planner=None if given.planner is None else LoggedPlanner(given.planner),
            credentials=credentials,
            report_fault=log_fault,
            approval_logins=approval_logins_of(settings, clock),
            partners=partners_of(settings, clock),
            telemetry=telemetry,
            ask_witness=ask,
            models=models_of(settings, provider, clock, breakers, is_given=given.models is not None),
        )
        deployment = Deployment(ports, _config(settings, unsafe, stated_by(in_use)), breakers=breakers)
        on_failure.pop_all()
    app_parts = (settings, deployment, stores, owner, local_engine(deployment, publisher), keys, publisher, watch)
    return App(*app_parts, tuple(owned), shared_credentials=tenant_adapters.shared)


def has_store(settings: Settings) -> bool:
    """Return whether the store of the settings was made already. A store in PostgreSQL counts as made."""
    return is_postgres_url(settings.store) or (settings.workspace / settings.store).exists()


class _NoStore(SqliteMemoryStores):
    """The empty store that is read where the real store is not made yet. Nothing is written to it.

    It never replaces a store, so the profile `service` allows it too.
    """

    unsafe = ()


async def open_for_authors(settings: Settings) -> App:
    """Open a deployment to read its store, as `open_unchecked`. If the store is not made yet, read an empty one in
    memory.

    Serves the questions about tools and people that an author has before anything is published.
    """
    if has_store(settings):
        return await open_unchecked(settings, read_only=True)
    with ExitStack() as on_failure:
        stores = _NoStore()
        on_failure.callback(stores.close)
        app = await open_unchecked(settings, GivenPorts(stores=stores), read_only=True)
        on_failure.pop_all()
    return app


async def _pause(duration_us: int) -> None:
    await asyncio.sleep(duration_us / 1e6)


def _config(settings: Settings, unsafe: tuple[str, ...], foreign_classes: tuple[str, ...]) -> DeploymentConfig:
    return DeploymentConfig(
        limits=settings.limits,
        runtime_version=__version__,
        profile=settings.profile,
        environment=settings.environment or ENVIRONMENTS[0],
        address=settings.hops.address if settings.hops else "",
        unsafe=unsafe,
        unsafe_stated_by=foreign_classes,
        allow_unsigned="unsafe_unsigned_packs" in unsafe,
        lease_ttl_us=settings.lease_ttl_s * 1_000_000,
        heartbeat_ttl_us=settings.heartbeat_ttl_s * 1_000_000,
        observed_packs=frozenset(settings.observed_packs),
        egress=settings.egress,
        redaction=settings.redaction,
        pressure=settings.pressure,
    )


async def migrate(url: str) -> tuple[str | None, str]:
    """Migrate the schema of the PostgreSQL database at `url` to this version; return the versions (before, after).

    A repeated call changes nothing. The role in `url` owns the schema; deployments connect as another role.

    Raises:
        InvalidSettings: the database cannot be migrated, or the extra `postgres` is not installed.
        Unavailable: the server does not answer.
    """
    try:
        from contextos.store.postgres import schema
    except ModuleNotFoundError as error:
        raise no_postgres(error) from None
    return await schema.migrate_schema(url)


def make_keys(folder: Path, passphrase: bytes | None = None) -> KeyFiles:
    """Make the keys of a new runtime in `folder`, one for each purpose: plainly, or encrypted with `passphrase`.

    Raises:
        FileExistsError: the folder has keys already.
        InvalidSettings: the passphrase is empty or too long.
    """
    return KeyFiles.make(folder, SystemClock(), None if passphrase is None else Pkcs8Files(passphrase))
