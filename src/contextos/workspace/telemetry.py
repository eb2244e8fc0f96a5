"""Makes the telemetry that the settings name, when it is needed: a command that only reads loads no OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Final

from contextos import __version__
from contextos.adapters.encrypted_keys import read_secret
from contextos.contracts.entries.account import RunAccount
from contextos.deployment.ports import NoTelemetry, RunTelemetry
from contextos.errors import InvalidInput
from contextos.workspace.settings import Settings
from contextos.workspace.settings.reading import invalid_setting
from contextos.workspace.settings.telemetry import CollectorSetting, parsed_headers

if TYPE_CHECKING:
    from contextos.telemetry.exporter import Exporters, Telemetry
    from contextos.telemetry.tenants import TelemetryOfTenants
    from contextos.workspace.settings.telemetry import TelemetrySetting

_PACKAGES: Final = (
    "opentelemetry.sdk",
    "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry.exporter.prometheus",
    "prometheus_client",
)


class DeferredTelemetry:
    """A `Telemetry` that is made at its first use, or by `start`. Safe to use from several threads."""

    def __init__(self, make: Callable[[], Telemetry | TelemetryOfTenants]) -> None:
        self._make, self._lock = make, Lock()
        self._telemetry: Telemetry | TelemetryOfTenants | None = None

    def start(self) -> Telemetry | TelemetryOfTenants:
        """Make the telemetry now, if it is not made yet, and return it."""
        with self._lock:
            self._telemetry = self._telemetry or self._make()
            return self._telemetry

    def run_ended(self, tenant_id: str, account: RunAccount) -> None:
        """Export a run that has ended; see `Telemetry.run_ended`."""
        self.start().run_ended(tenant_id, account)

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None:
        """Count a replay; see `Telemetry.run_replayed`."""
        self.start().run_replayed(tenant_id, equal=equal)

    def prometheus_text(self, tenant_id: str | None = None) -> bytes:
        """Return all metrics, or the metrics of one tenant, in the text format of Prometheus (UTF-8)."""
        return self.start().prometheus_text(tenant_id)

    def close(self) -> None:
        """Send what is queued, and end the threads. Does nothing if nothing was made."""
        with self._lock:
            if self._telemetry is not None:
                self._telemetry.close()


def telemetry_of(settings: Settings, *, read_only: bool, given: RunTelemetry | None = None) -> RunTelemetry:
    """Return `given`, or the telemetry that the settings name if `given` is None. With `read_only` the telemetry of the
    settings is made at its first use.

    Raises:
        InvalidSettings: the token cannot be read, or the extra `telemetry` is not installed; or telemetry is `given`
            although the settings name collectors of tenants, to which it would send nothing.
    """
    setting = settings.telemetry
    if given is not None:
        if setting is not None and setting.tenants:
            detail = "the program gives a telemetry, so nothing would reach these collectors"
            remedy = "leave them out, or give none and open the deployment without `telemetry`"
            raise invalid_setting("/telemetry/tenants", "telemetry_given", detail, remedy)
        return given
    if setting is None:
        return NoTelemetry()
    for package in (*_PACKAGES, *(("httpx",) if any(target.otlp_url for target in setting.tenants.values()) else ())):
        if not _is_installed(package):
            detail = f"`{package}` is not installed"
            extra = "contextos[http]" if package == "httpx" else "contextos[telemetry]"
            raise invalid_setting("/telemetry", "missing_extra", detail, f"install `{extra}`")
    shared = _exporters(settings, setting, "/telemetry") if setting.otlp_url else None
    by_tenant = {
        tenant_id: _exporters(settings, target, f"/telemetry/tenants/{tenant_id}") if target.otlp_url else None
        for tenant_id, target in setting.tenants.items()
    }
    telemetry = DeferredTelemetry(partial(_make_telemetry, setting, shared, by_tenant))
    if not read_only:
        telemetry.start()
    return telemetry


def _exporters(settings: Settings, target: TelemetrySetting | CollectorSetting, place: str) -> Callable[[], Exporters]:
    """Return a factory of the exporters of one collector, with its present secrets. Raises `InvalidSettings`."""
    setting = settings.telemetry
    assert setting is not None, "there is a collector"
    token = _secret(settings, target.token_file, target.token_env, place)
    text = _secret(settings, target.headers_file, target.headers_env, place)
    headers = parsed_headers(text, place) if text else {}
    if token and "authorization" in headers:
        raise invalid_setting(place, "bad_setting", "the token and the headers both say who calls", "name one of them")
    for value in (token, *headers.values()):
        if not value.isprintable() or not value.isascii():
            raise invalid_setting(place, "bad_setting", "a secret is not printable ASCII", "correct it")
    session_of = None
    if isinstance(target, CollectorSetting):
        from contextos.adapters.otlp.session import collector_session

        session_of = partial(collector_session, target.otlp_url, internal=target.internal)
        try:
            session_of({}).close()
        except InvalidInput as error:
            problem = error.problems[0]
            raise invalid_setting(f"{place}/otlp_url", problem.code, problem.detail, problem.remedy) from None

    def make_exporters() -> Exporters:
        from contextos.telemetry.exporter import otlp

        return otlp(
            target.otlp_url,
            token=token,
            headers=headers,
            timeout_s=setting.timeout_s,
            metrics_interval_s=setting.metrics_interval_s,
            session_of=session_of,
        )

    return make_exporters


def _secret(settings: Settings, file: str, variable: str, place: str) -> str:
    if not file and not variable:
        return ""
    return read_secret(settings.workspace / file if file else None, variable, place).decode("utf-8", "replace")


def _make_telemetry(
    setting: TelemetrySetting,
    shared: Callable[[], Exporters] | None,
    by_tenant: Mapping[str, Callable[[], Exporters] | None],
) -> Telemetry | TelemetryOfTenants:
    from contextos.telemetry.exporter import Telemetry
    from contextos.telemetry.tenants import TelemetryOfTenants

    def make(exporters: Callable[[], Exporters] | None) -> Telemetry:
        return Telemetry(
            exporters and exporters(),
            sample_share=setting.sample_share,
            service_name=setting.service_name,
            version=__version__,
        )

    default = make(shared)
    others = {tenant_id: make(factory) for tenant_id, factory in by_tenant.items()}
    return TelemetryOfTenants(default, others) if others else default


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
