"""`open`: the public door to a deployment, for programs with an event loop and for programs without one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from contextos.adapters.loop_thread import BothContexts
from contextos.contracts.ports.credentials import Credentials
from contextos.contracts.ports.models import ModelProvider
from contextos.contracts.ports.outside import Adapter, Directory, Keys
from contextos.contracts.ports.planning import Planner
from contextos.deployment.ports import RunTelemetry
from contextos.errors import Integrity, InvalidInput, Problem, Unavailable
from contextos.telemetry.logs import configure_if_debugging, error_fields
from contextos.workspace.application import App
from contextos.workspace.build import open_app
from contextos.workspace.configuration import log_found
from contextos.workspace.engines import publish_heads
from contextos.workspace.given import GivenPorts
from contextos.workspace.outbox import begin_outboxes
from contextos.workspace.settings import Settings
from contextos.workspace.settings.reading import invalid_setting

_USAGE: Final = "write `async with contextos.open(…) as app:`, or `with` where there is no event loop"
_LOG: Final = logging.getLogger("contextos.workspace")


def open(
    settings: Settings | Path | str,
    *,
    directory: Directory | None = None,
    keys: Keys | None = None,
    adapters: Sequence[Adapter] = (),
    planner: Planner | None = None,
    models: ModelProvider | None = None,
    credentials: Credentials | None = None,
    telemetry: RunTelemetry | None = None,
    dev: bool = False,
) -> Opening:
    """Return a context that is a running deployment: `async with open(…) as app`, or `with open(…) as app` without an
    event loop.

    `settings` are a `Settings`, or the workspace's directory with `contextos.toml`. `directory`, `keys`,
    `credentials` and `telemetry` are used instead of those that the settings name, `adapters` beside them; these
    objects are not closed here. `planner` plans the runs that begin here; None fills task templates. `models`
    answers all calls of models, whatever protocol their profiles name. `telemetry` receives each run that ends here.
    `dev` allows development stand-ins that the settings do not name; records name each of them, and the profile
    `service` has none.

    On entering, the witness is asked about each tenant that the directory lists; about any other tenant it is asked
    before the first run is driven. Then the engine starts and drives the runs that are due, and notices are sent to the
    destinations of the settings (`outbox`). On leaving, also after an error, the engine stops, the heads are published
    to the witness, and everything that was opened is closed.

    Raises (on entering):
        InvalidSettings: a setting, a port, a key or an adapter is invalid or not allowed here, or the store has other
            policies in force than the settings name.
        Integrity: the active set of a tenant was changed past the runtime; or the streams of a tenant lack entries that
            the witness has, as after a restore that nobody recorded with `contextos store restored`.
        StoreRestored: the store was restored from a backup, and no operator has recorded the restore.
        Unavailable: the store does not answer.
    """
    ports = GivenPorts(directory, keys, adapters, planner, credentials, telemetry, models, dev=dev)
    return Opening(settings, ports)


class Opening(BothContexts[App]):
    """A deployment that runs between entering and leaving. It can be entered again after it was left."""

    def __init__(self, settings: Settings | Path | str, given: GivenPorts) -> None:
        self._settings, self._given = settings, given
        self._is_entered = False
        self._app: App | None = None

    async def __aenter__(self) -> App:
        if self._is_entered:
            raise InvalidInput(Problem("", "open", "this deployment is open already", "call `contextos.open` again"))
        self._is_entered = True
        configure_if_debugging()
        async with AsyncExitStack() as on_failure:
            on_failure.callback(self._mark_left)
            settings = self._settings
            if not isinstance(settings, Settings | Path | str):
                detail = f"a `{type(settings).__name__[:80]}` is neither settings nor a directory"
                raise invalid_setting("", "bad_setting", detail, "give a `Settings`, or the workspace's directory")
            settings = settings if isinstance(settings, Settings) else Settings.read(Path(settings))
            app = await open_app(settings, self._given)
            self._schedule_close(app, on_failure)
            if app.lacks_witness:
                _LOG.warning("service without a witness")
            for tenant_id in app.listed_tenants() or ():
                await app.deployment.ports.ask_witness(tenant_id)
            await _warn_of_configuration(app)
            app.engine = app.worker()
            await app.engine.start()
            on_failure.push_async_callback(app.engine.stop)
            on_failure.push_async_callback(app.delivery.stop)
            await begin_outboxes(app)
            on_failure.pop_all()
        self._app = app
        return app

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # `hasattr` asks too, so it is an `AttributeError`.
            raise AttributeError(f"the deployment is not open, so it has no `{name}`; {_USAGE}")

        def __await__(self) -> Any:
            raise InvalidInput(Problem("", "not_open", "what `contextos.open` returns is not awaited", _USAGE))

    def _mark_left(self) -> None:
        self._is_entered = False

    @staticmethod
    def _schedule_close(app: App, closing: AsyncExitStack) -> None:
        closing.callback(app.close)
        if hasattr(app.stores, "aclose"):
            closing.push_async_callback(app.stores.aclose)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        app, self._app = self._app, None
        assert app is not None, "it was entered"
        async with AsyncExitStack() as closing:
            closing.callback(self._mark_left)
            self._schedule_close(app, closing)
            await app.wait_for_driven()
            await app.delivery.stop()
            await app.engine.stop()
            if app.witness_publisher is not None:
                await _publish_heads(app)


async def _warn_of_configuration(app: App) -> None:
    """Log what is configured and cannot be in force. If the directory does not answer, the deployment opens anyway."""
    with suppress(Unavailable):
        log_found(await app.configuration.check())


async def _publish_heads(app: App) -> None:
    """Publish the heads to the witness. A failure is logged: everything is stored, and the next start publishes it."""
    assert app.witness_publisher is not None
    try:
        await publish_heads(app.witness_publisher, app.deployment)
    except (Unavailable, Integrity) as error:
        _LOG.warning("witness publish failed", extra=error_fields(error))
