"""A receiver of OTLP over HTTP on the loopback: it speaks the real protocol, and keeps what it got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.loopback import Answer, Asked, serving

PROTOBUF = {"Content-Type": "application/x-protobuf"}


@dataclass
class Collector:
    """What an OTLP collector received. `raw` is every byte of every request, headers included."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: list[Any] = field(default_factory=list)
    """The resources of all three signals."""
    status: int = 200

    def answer(self, asked: Asked) -> Answer:
        self.raw.append(repr(asked).encode() + asked.body)
        self.headers.append({name.lower(): value for name, value in asked.headers.items()})
        assert asked.headers["content-type"] == "application/x-protobuf"
        if self.status != 200:
            return self.status, b"", PROTOBUF
        if asked.path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(asked.body)
            self.resources += [of.resource for of in traces.resource_spans]
            self.spans += [one for of in traces.resource_spans for scope in of.scope_spans for one in scope.spans]
            return 200, ExportTraceServiceResponse().SerializeToString(), PROTOBUF
        if asked.path == "/v1/logs":
            logs = ExportLogsServiceRequest.FromString(asked.body)
            self.resources += [of.resource for of in logs.resource_logs]
            self.events += [one for of in logs.resource_logs for scope in of.scope_logs for one in scope.log_records]
            return 200, ExportLogsServiceResponse().SerializeToString(), PROTOBUF
        if asked.path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(asked.body)
            self.resources += [of.resource for of in metrics.resource_metrics]
            self.metrics += [
                one for of in metrics.resource_metrics for scope in of.scope_metrics for one in scope.metrics
            ]
            return 200, ExportMetricsServiceResponse().SerializeToString(), PROTOBUF
        return 404, b"", {}

    def named(self, name: str) -> list[Any]:
        """The spans of this name."""
        return [one for one in self.spans if one.name == name]


def attributes_of(one: Any) -> dict[str, Any]:
    """The attributes of a span, an event or a data point, as Python values."""
    return {each.key: _value(each.value) for each in one.attributes}


def children_of(spans: Iterable[Any], parent: Any) -> list[Any]:
    return [one for one in spans if one.parent_span_id == parent.span_id]


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting(collector: Collector | None = None) -> Iterator[Collector]:
    """Serve a collector on a free port."""
    collector = collector or Collector()
    with serving(collector.answer) as collector.url:
        yield collector
