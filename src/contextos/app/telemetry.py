"""The telemetry that the settings name, made when it is needed: a command that only reads loads no OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Final

from contextos import __version__
from contextos.adapters.encrypted_keys import read_secret
from contextos.contracts.journal import Entry
from contextos.operations.ports import NoTelemetry
from contextos.settings import Settings, invalid_setting

if TYPE_CHECKING:
    from contextos.telemetry.exporter import Telemetry
    from contextos.telemetry.setting import TelemetrySetting

_PACKAGES: Final = (
    "opentelemetry.sdk",
    "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry.exporter.prometheus",
    "prometheus_client",
)


class DeferredTelemetry:
    """A `Telemetry` that is made at its first use, or by `start`. Safe to use from several threads."""

    def __init__(self, make: Callable[[], Telemetry]) -> None:
        self._make, self._lock = make, Lock()
        self._made: Telemetry | None = None

    def start(self) -> Telemetry:
        """Make it now, if it is not made yet."""
        with self._lock:
            self._made = self._made or self._make()
            return self._made

    def run_ended(self, entries: Sequence[Entry]) -> None:
        """Export a run that has ended; see `Telemetry.run_ended`."""
        self.start().run_ended(entries)

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None:
        """Count a replay; see `Telemetry.run_replayed`."""
        self.start().run_replayed(tenant_id, equal=equal)

    def prometheus_text(self, tenant_id: str | None = None) -> bytes:
        """Return all metrics, or those of one tenant, in the text format of Prometheus (UTF-8)."""
        return self.start().prometheus_text(tenant_id)

    def close(self) -> None:
        """Send what is queued, and end the threads. Does nothing if nothing was made."""
        with self._lock:
            if self._made is not None:
                self._made.close()


def telemetry_of(settings: Settings, *, read_only: bool) -> DeferredTelemetry | NoTelemetry:
    """Return the telemetry that the settings name. Where nothing is written, it is made when it is needed.

    Raises:
        InvalidSettings: the token cannot be read, or the extra `telemetry` is not installed.
    """
    named = settings.telemetry
    if named is None:
        return NoTelemetry()
    for package in _PACKAGES:
        if not _is_installed(package):
            detail = f"`{package}` is not installed"
            raise invalid_setting("/telemetry", "missing_extra", detail, "install `contextos[telemetry]`")
    token = ""
    if named.token_file or named.token_env:
        file = settings.workspace / named.token_file if named.token_file else None
        token = read_secret(file, named.token_env, "/telemetry").decode("utf-8", "replace")
    telemetry = DeferredTelemetry(partial(_made, named, token))
    if not read_only:
        telemetry.start()
    return telemetry


def _made(named: TelemetrySetting, token: str) -> Telemetry:
    from contextos.telemetry.exporter import Telemetry, otlp

    exporters = None
    if named.otlp_url:
        exporters = otlp(
            named.otlp_url, token=token, timeout_s=named.timeout_s, metrics_interval_s=named.metrics_interval_s
        )
    return Telemetry(exporters, sample_share=named.sample_share, service_name=named.service_name, version=__version__)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
