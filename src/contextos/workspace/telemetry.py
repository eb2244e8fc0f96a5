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
        self._made: Telemetry | TelemetryOfTenants | None = None

    def start(self) -> Telemetry | TelemetryOfTenants:
        """Make the telemetry now, if it is not made yet, and return it."""
        with self._lock:
            self._made = self._made or self._make()
            return self._made

    def run_ended(self, tenant_id: str, account: RunAccount) -> None:
        """Export a run that has ended; see `Telemetry.run_ended`."""
        self.start().run_ended(tenant_id, account)

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


def telemetry_of(settings: Settings, *, read_only: bool, given: RunTelemetry | None = None) -> RunTelemetry:
    """Return the telemetry that is `given`, or else the one that the settings name. With `read_only` the latter is made
    only when it is needed.

    Raises:
        InvalidSettings: the token cannot be read, or the extra `telemetry` is not installed; or telemetry is `given`
            although the settings name collectors of tenants, to which it would send nothing.
    """
    named = settings.telemetry
    if given is not None:
        if named is not None and named.tenants:
            detail = "the program gives a telemetry, so nothing would reach these collectors"
            remedy = "leave them out, or give none and open the deployment without `telemetry`"
            raise invalid_setting("/telemetry/tenants", "telemetry_given", detail, remedy)
        return given
    if named is None:
        return NoTelemetry()
    for package in (*_PACKAGES, *(("httpx",) if any(one.otlp_url for one in named.tenants.values()) else ())):
        if not _is_installed(package):
            detail = f"`{package}` is not installed"
            extra = "contextos[http]" if package == "httpx" else "contextos[telemetry]"
            raise invalid_setting("/telemetry", "missing_extra", detail, f"install `{extra}`")
    for_all = _exporters(settings, named, "/telemetry") if named.otlp_url else None
    own = {
        tenant: _exporters(settings, one, f"/telemetry/tenants/{tenant}") if one.otlp_url else None
        for tenant, one in named.tenants.items()
    }
    telemetry = DeferredTelemetry(partial(_made, named, for_all, own))
    if not read_only:
        telemetry.start()
    return telemetry


def _exporters(settings: Settings, to: TelemetrySetting | CollectorSetting, at: str) -> Callable[[], Exporters]:
    """Return a factory of the exporters of one collector, with its present secrets. Raises `InvalidSettings`."""
    named = settings.telemetry
    assert named is not None, "there is a collector"
    token = _secret(settings, to.token_file, to.token_env, at)
    text = _secret(settings, to.headers_file, to.headers_env, at)
    headers = parsed_headers(text, at) if text else {}
    if token and "authorization" in headers:
        raise invalid_setting(at, "bad_setting", "the token and the headers both say who calls", "name one of them")
    for value in (token, *headers.values()):
        if not value.isprintable() or not value.isascii():
            raise invalid_setting(at, "bad_setting", "a secret is not printable ASCII", "correct it")
    session_of = None
    if isinstance(to, CollectorSetting):
        from contextos.adapters.otlp.session import collector_session

        session_of = partial(collector_session, to.otlp_url, internal=to.internal)
        try:
            session_of({}).close()
        except InvalidInput as refused:
            first = refused.problems[0]
            raise invalid_setting(f"{at}/otlp_url", first.code, first.detail, first.remedy) from None

    def made() -> Exporters:
        from contextos.telemetry.exporter import otlp

        return otlp(
            to.otlp_url,
            token=token,
            headers=headers,
            timeout_s=named.timeout_s,
            metrics_interval_s=named.metrics_interval_s,
            session_of=session_of,
        )

    return made


def _secret(settings: Settings, file: str, variable: str, at: str) -> str:
    if not file and not variable:
        return ""
    return read_secret(settings.workspace / file if file else None, variable, at).decode("utf-8", "replace")


def _made(
    named: TelemetrySetting, for_all: Callable[[], Exporters] | None, own: Mapping[str, Callable[[], Exporters] | None]
) -> Telemetry | TelemetryOfTenants:
    from contextos.telemetry.exporter import Telemetry
    from contextos.telemetry.tenants import TelemetryOfTenants

    def made(exporters: Callable[[], Exporters] | None) -> Telemetry:
        return Telemetry(
            exporters and exporters(),
            sample_share=named.sample_share,
            service_name=named.service_name,
            version=__version__,
        )

    of_others = made(for_all)
    return TelemetryOfTenants(of_others, {tenant: made(one) for tenant, one in own.items()}) if own else of_others


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
