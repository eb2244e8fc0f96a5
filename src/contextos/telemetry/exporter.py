"""`Telemetry`: hands the spans, events and metrics of ended runs to the exporters of the OpenTelemetry SDK.

It receives a run after the commit that ended it, and nothing before. A collector that is slow or away holds up no
run: what is queued beyond `MAX_QUEUED_RUNS` is dropped, which is logged and counted. The journal still has it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import requests
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from contextos.contracts.entries.account import RunAccount
from contextos.telemetry.ended_run import EndedRunEntries, ended_run
from contextos.telemetry.events import Event as RunEvent
from contextos.telemetry.events import run_events
from contextos.telemetry.logs import error_fields
from contextos.telemetry.measurements import (
    INSTRUMENTS,
    Measurement,
    add_up,
    dropped_measurement,
    replay_measurement,
    run_measurements,
)
from contextos.telemetry.sampling import is_always_kept
from contextos.telemetry.spans import Span, run_spans

INSTRUMENTATION_SCOPE: Final = "contextos"
MAX_QUEUED_RUNS: Final = 512
"""The most ended runs that wait to be read. Further runs are dropped."""
BATCH_RUNS: Final = 32
"""The most runs that are read and exported at once."""
TENANT_LABEL: Final = "contextos_tenant_id"
"""The label of Prometheus that names the tenant."""
FLUSH_DELAY_S: Final = 1.0
"""The longest time that a run waits to be read."""
_LOG: Final = logging.getLogger("contextos.telemetry")
_SEVERITIES: Final = {"info": SeverityNumber.INFO, "warn": SeverityNumber.WARN, "error": SeverityNumber.ERROR}
_UNSET, _ERROR = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


@dataclass(frozen=True, slots=True)
class Exporters:
    """Where telemetry goes: the SDK's exporters of the three signals. Metrics are sent every `metrics_interval_s`."""

    spans: SpanExporter
    events: LogRecordExporter
    metrics: MetricExporter
    metrics_interval_s: int = 60


def otlp(
    url: str,
    *,
    token: str = "",
    headers: Mapping[str, str] | None = None,
    timeout_s: int = 5,
    metrics_interval_s: int = 60,
    session_of: Callable[[Mapping[str, str]], requests.Session] | None = None,
) -> Exporters:
    """Return exporters that speak OTLP over HTTP to the collector at `url`, to which `/v1/<signal>` is added.

    `token` is sent as a bearer token, beside `headers`. No proxy of the environment is used, and no redirect is
    followed. `session_of` makes the session of each signal from all of its headers.
    """
    headers = {**(headers or {}), **({"authorization": f"Bearer {token}"} if token else {})}

    def common(signal: str) -> dict[str, Any]:
        session = requests.Session() if session_of is None else session_of(headers)
        session.trust_env, session.max_redirects = False, 0
        return {
            "endpoint": f"{url.rstrip('/')}/v1/{signal}",
            "headers": headers,
            "timeout": timeout_s,
            "compression": Compression.NoCompression,
            "session": session,
        }

    return Exporters(
        OTLPSpanExporter(**common("traces")),
        OTLPLogExporter(**common("logs")),
        OTLPMetricExporter(**common("metrics")),
        metrics_interval_s,
    )


class Families(Collector):
    """The metrics of several registries, each name once; with `tenant_id` only the samples that name this tenant."""

    def __init__(self, registries: Sequence[CollectorRegistry], tenant_id: str | None = None) -> None:
        self._registries, self._tenant = registries, tenant_id

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for family in (family for registry in self._registries for family in registry.collect()):
            samples = [sample for sample in family.samples if self._tenant in (None, sample.labels.get(TENANT_LABEL))]
            if samples or self._tenant is None:
                merged = Metric(family.name, family.documentation, family.type, family.unit)
                families.setdefault(family.name, merged).samples += samples
        yield from families.values()


class Telemetry:
    """The telemetry of one process. Implements `RunTelemetry`; its methods are safe to call from several threads.

    Without `exporters` only `prometheus_text` and `registry` show the metrics. `sample_share` (0 to 1) is the share of
    runs whose trace is exported, among the runs that `sampling.is_always_kept` does not keep. Metrics count every run.
    `version` is the version of the service.

    A thread of its own reads the runs in batches: to read each run alone costs several times as much.
    """

    def __init__(
        self,
        exporters: Exporters | None = None,
        *,
        sample_share: float = 1.0,
        service_name: str = "contextos",
        version: str = "",
    ) -> None:
        self._resource = _ProcessResource(
            {"service.name": service_name, "service.version": version, "service.instance.id": str(uuid4())}
        )
        self._scope = InstrumentationScope(INSTRUMENTATION_SCOPE, version)
        self._sampler = TraceIdRatioBased(sample_share)
        self.registry = CollectorRegistry()
        readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False, registry=self.registry)]
        self._exporters = exporters
        if exporters is not None:
            interval_ms = exporters.metrics_interval_s * 1_000
            readers.append(PeriodicExportingMetricReader(exporters.metrics, export_interval_millis=interval_ms))
        self._meters = MeterProvider(readers, self._resource, shutdown_on_exit=False)
        self._recorders = self._make_recorders(version)
        self._queue: deque[tuple[str, RunAccount]] = deque()
        self._dropped: Counter[str] = Counter()
        self._has_runs, self._batch_ready, self._lock = Event(), Event(), Lock()
        self._is_closed = False
        self._thread = Thread(target=self._export_loop, name="contextos-telemetry", daemon=True)
        self._thread.start()

    def run_ended(self, tenant_id: str, account: RunAccount) -> None:
        """Take the account of a run that has just ended. It is read within a second, and exported."""
        if self._is_closed or len(self._queue) >= MAX_QUEUED_RUNS:
            self._dropped[tenant_id] += 1
            return
        self._queue.append((tenant_id, account))
        if len(self._queue) >= BATCH_RUNS:
            self._batch_ready.set()
        self._has_runs.set()

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None:
        """Count one replay of a run, and whether it was equal to the record."""
        self._record_measurement(replay_measurement(tenant_id, equal=equal))

    def prometheus_text(self, tenant_id: str | None = None) -> bytes:
        """Return all metrics in the text format of Prometheus (UTF-8), for a `/metrics` route. With `tenant_id`, return
        only the metrics of this tenant.

        Does not wait: runs that ended within the last second, or during an export that still goes on, can be missing.
        """
        return generate_latest(self.registry if tenant_id is None else Families([self.registry], tenant_id))

    def flush(self) -> None:
        """Read and export the runs that are queued. Takes at most the time limit of the exporters for each batch."""
        with self._lock:
            self._has_runs.clear()
            self._batch_ready.clear()
            while batch := [self._queue.popleft() for _ in range(min(BATCH_RUNS, len(self._queue)))]:
                self._export(batch)
            dropped, self._dropped = self._dropped, Counter()
            for tenant_id, count in dropped.items():
                _LOG.warning("telemetry dropped", extra={"tenant": tenant_id, "runs": count})
                self._record_measurement(dropped_measurement(tenant_id, count))

    def close(self) -> None:
        """Export what is queued, as long as the time limit of the exporters allows, and end every thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._has_runs.set()
        self._batch_ready.set()
        self._thread.join()
        self.flush()
        with ExitStack() as closing:
            closing.callback(self._meters.shutdown)
            if self._exporters is not None:
                closing.callback(self._exporters.events.shutdown)
                closing.callback(self._exporters.spans.shutdown)

    def _export_loop(self) -> None:
        while not self._is_closed:
            self._has_runs.wait()
            self._batch_ready.wait(FLUSH_DELAY_S)
            self.flush()

    def _export(self, batch: Sequence[tuple[str, RunAccount]]) -> None:
        spans: list[ReadableSpan] = []
        events: list[ReadableLogRecord] = []
        measurements: list[Measurement] = []
        for tenant_id, account in batch:
            with _LogErrors(account.run_id):
                run = ended_run(tenant_id, account)
                measurements += run_measurements(run)
                if self._exporters is not None and self._is_kept(run):
                    spans += [self._readable_span(span) for span in run_spans(run)]
                    events += [self._log_record(run, event) for event in run_events(run)]
        for measurement in add_up(measurements):
            self._record_measurement(measurement)
        if self._exporters is not None and spans:
            with _LogErrors(""):
                is_exported = self._exporters.spans.export(spans) is SpanExportResult.SUCCESS
                if events and self._exporters.events.export(events) is not LogRecordExportResult.SUCCESS:
                    is_exported = False
                if not is_exported:
                    _LOG.warning("telemetry export failed", extra={"runs": len(batch)})

    def _is_kept(self, run: EndedRunEntries) -> bool:
        if is_always_kept(run):
            return True
        # A caller can choose the trace id, but not the id of a run.
        sample_id = int(sha256(run.run_id.encode()).hexdigest()[:32], 16)
        return self._sampler.should_sample(None, sample_id, "").decision is Decision.RECORD_AND_SAMPLE

    def _make_recorders(self, version: str) -> dict[str, Any]:
        meter = self._meters.get_meter(INSTRUMENTATION_SCOPE, version)
        recorders: dict[str, Any] = {}
        for name, instrument in INSTRUMENTS.items():
            if instrument.kind == "counter":
                recorders[name] = meter.create_counter(name, instrument.unit, instrument.description).add
            else:
                bounds = [float(bound) for bound in instrument.bounds]
                make = partial(meter.create_histogram, explicit_bucket_boundaries_advisory=bounds)
                recorders[name] = make(name, instrument.unit, instrument.description).record
        return recorders

    def _record_measurement(self, measurement: Measurement) -> None:
        self._recorders[measurement.name](measurement.value, measurement.attributes)

    def _readable_span(self, span: Span) -> ReadableSpan:
        trace_id = int(span.trace_id, 16)
        parent = None
        if span.parent_id is not None:
            parent = SpanContext(trace_id, int(span.parent_id, 16), span.remote_parent, _SAMPLED)
        return ReadableSpan(
            name=span.name,
            context=SpanContext(trace_id, int(span.span_id, 16), is_remote=False, trace_flags=_SAMPLED),
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            links=[Link(SpanContext(int(span.link[0], 16), int(span.link[1], 16), is_remote=True))]
            if span.link
            else (),
            kind=SpanKind.INTERNAL,
            instrumentation_scope=self._scope,
            status=_ERROR if span.failed else _UNSET,
            start_time=span.start_us * 1_000,
            end_time=span.end_us * 1_000,
        )

    def _log_record(self, run: EndedRunEntries, event: RunEvent) -> ReadableLogRecord:
        record = LogRecord(
            timestamp=event.at_us * 1_000,
            observed_timestamp=event.at_us * 1_000,
            severity_number=_SEVERITIES[event.severity],
            severity_text=event.severity.upper(),
            attributes=dict(event.attributes),
            event_name=event.name,
        )
        record.trace_id, record.span_id = int(run.trace.trace_id, 16), int(event.span_id, 16)
        record.trace_flags = _SAMPLED
        return ReadableLogRecord(record, self._resource, self._scope)


class _ProcessResource(Resource):
    """The attributes of all spans of this process. The SDK hashes them per span; its own hash writes JSON."""

    def __hash__(self) -> int:
        return id(self)


class _LogErrors(AbstractContextManager[None]):
    """Logs what is raised inside. Telemetry comes after the fact, so no fault of it may change what happened."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        _LOG.error("telemetry failed", extra={"run": self._run_id} | error_fields(error))
        return True
