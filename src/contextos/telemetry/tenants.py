"""`TelemetryOfTenants`: each tenant with a collector of its own has a `Telemetry` of its own, with nothing shared.

A run goes to the `Telemetry` of its tenant and to no other. So no span, event, metric or count of a tenant is at the
collector of another tenant, and a collector that hangs holds up only its own queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import generate_latest

from contextos.contracts.entries.account import RunAccount
from contextos.telemetry.exporter import Families, Telemetry


class TelemetryOfTenants:
    """The telemetry of a process by tenant. Implements `RunTelemetry`, and is safe to call from several threads.

    `own` has the telemetry of each tenant with its own collector; `of_others` is shared by all other tenants.
    """

    def __init__(self, of_others: Telemetry, own: Mapping[str, Telemetry]) -> None:
        self._default, self._by_tenant = of_others, dict(own)

    def run_ended(self, tenant_id: str, account: RunAccount) -> None:
        """Take the account of a run that has just ended; see `Telemetry.run_ended`."""
        self._telemetry_of(tenant_id).run_ended(tenant_id, account)

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None:
        """Count one replay of a run; see `Telemetry.run_replayed`."""
        self._telemetry_of(tenant_id).run_replayed(tenant_id, equal=equal)

    def prometheus_text(self, tenant_id: str | None = None) -> bytes:
        """Return the metrics of one tenant, or of all, in the text format of Prometheus (UTF-8)."""
        if tenant_id is not None:
            return self._telemetry_of(tenant_id).prometheus_text(tenant_id)
        return generate_latest(Families([telemetry.registry for telemetry in self._all_telemetries()]))

    def flush(self) -> None:
        """Export what is queued, to every collector at the same time; see `Telemetry.flush`."""
        self._run_on_all(Telemetry.flush)

    def close(self) -> None:
        """Export what is queued, to every collector at the same time, and end every thread."""
        self._run_on_all(Telemetry.close)

    def _telemetry_of(self, tenant_id: str) -> Telemetry:
        return self._by_tenant.get(tenant_id, self._default)

    def _all_telemetries(self) -> tuple[Telemetry, ...]:
        return (self._default, *self._by_tenant.values())

    def _run_on_all(self, act: Callable[[Telemetry], None]) -> None:
        telemetries = self._all_telemetries()
        with ThreadPoolExecutor(len(telemetries), "contextos-telemetry-all") as pool:
            list(pool.map(act, telemetries))
