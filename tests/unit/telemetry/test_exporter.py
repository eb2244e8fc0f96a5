"""`Telemetry` hands everything to the SDK's exporters, holds up no run, and changes nothing when it fails."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from contextos.telemetry import exporter
from contextos.telemetry.exporter import Telemetry, otlp
from contextos.telemetry.measurements import INSTRUMENTS
from contextos.telemetry.spans import run_spans
from tests.otlp import Collector, attributes_of, collecting
from tests.unit.telemetry import runs


@contextmanager
def telemetry(url: str = "", **how: Any) -> Iterator[Telemetry]:
    made = Telemetry(otlp(url, timeout_s=1) if url else None, **how)
    try:
        yield made
    finally:
        made.close()


def test_a_collector_gets_the_spans_with_their_ids_times_and_parents() -> None:
    with collecting() as collector, telemetry(collector.url) as made:
        made.run_ended(*runs.account("denied"))
        made.flush()
    computed = run_spans(runs.ended("denied"))
    assert len(collector.spans) == len(computed)
    for got, span in zip(collector.spans, computed, strict=True):
        assert (got.trace_id.hex(), got.span_id.hex(), got.name) == (span.trace_id, span.span_id, span.name)
        assert got.parent_span_id.hex() == (span.parent_id or "")
        assert (got.start_time_unix_nano, got.end_time_unix_nano) == (span.start_us * 1000, span.end_us * 1000)
        assert (got.status.code == got.status.STATUS_CODE_ERROR) is span.failed
        assert not got.status.message
        told = {name: list(value) if isinstance(value, tuple) else value for name, value in span.attributes.items()}
        assert attributes_of(got) == told


def test_events_carry_the_trace_and_the_span() -> None:
    with collecting() as collector, telemetry(collector.url) as made:
        made.run_ended(*runs.account("approved"))
        made.flush()
    spans = {one.span_id: one.name for one in collector.spans}
    events = {one.event_name: one for one in collector.events}
    asked = events["contextos.approval.asked"]
    assert (spans[asked.span_id], asked.severity_text) == ("trust.approvals", "INFO")
    assert {one.trace_id for one in collector.events} == {one.trace_id for one in collector.spans}


def test_metrics_reach_the_collector_and_prometheus_with_the_same_values() -> None:
    with collecting() as collector:
        with telemetry(collector.url) as made:
            made.run_ended(*runs.account("small"))
            made.run_replayed("tenant_b", equal=False)
            made.flush()
            text = made.prometheus_text().decode()
        metrics = {one.name: one for one in collector.metrics}
    (tokens,) = metrics["contextos.run.tokens"].sum.data_points
    spent = runs.ended("small").record["budget_usage"]["tokens"]
    assert max(tokens.as_int, tokens.as_double) == spent
    labels = 'contextos_intent="support.refund",contextos_tenant_id="tenant_acme_prod"'
    assert f"contextos_run_tokens_total{{{labels}}} {spent:.1f}" in text
    assert 'contextos_replays_total{contextos_result="different",contextos_tenant_id="tenant_b"} 1.0' in text


def test_the_share_leaves_out_the_traces_of_other_runs_and_no_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "is_always_kept", lambda run: run.end != "completed")
    with collecting() as collector, telemetry(collector.url, sample_share=0.0) as made:
        made.run_ended(*runs.account("small"))
        made.run_ended(*runs.account("denied"))
        made.flush()
        text = made.prometheus_text().decode()
    assert len(collector.named("invoke_agent agt_support")) == 1
    assert 'contextos_run_duration_seconds_count{contextos_end="completed"' in text


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_which_runs_the_share_keeps_is_what_the_sampler_of_the_sdk_says_of_the_id_of_the_run(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller chooses the trace id, so it decides nothing."""
    monkeypatch.setattr(exporter, "is_always_kept", lambda run: False)
    bound = TraceIdRatioBased.get_bound_for_rate(share)
    kept = int(hashlib.sha256(runs.ended("small").run_id.encode()).hexdigest()[16:32], 16) < bound
    with collecting() as collector, telemetry(collector.url, sample_share=share) as made:
        made.run_ended(*runs.account("small"))
        made.flush()
    assert bool(collector.spans) is kept


def test_a_fault_in_one_run_is_logged_without_its_text_and_the_others_are_exported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tenant, broken = runs.account("small")
    broken.by_kind["run.received"][0] = broken.by_kind["run.received"][0]._replace(body={"request": "secret-of-mine"})
    with collecting() as collector, telemetry(collector.url) as made:
        made.run_ended(tenant, broken)
        made.run_ended(*runs.account("approved"))
        made.flush()
    assert len(collector.named("invoke_agent agt_support")) == 1
    (logged,) = [one for one in caplog.records if one.name == "contextos.telemetry"]
    assert vars(logged)["run"] == broken.run_id
    assert "secret-of-mine" not in repr(vars(logged))


def test_a_collector_that_fails_is_logged_and_no_metric_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    with collecting() as collector, telemetry(collector.url) as made:
        collector.status = 400
        made.run_ended(*runs.account("small"))
        made.flush()
        text = made.prometheus_text().decode()
    assert "contextos_run_duration_seconds_count" in text
    failed = [one for one in caplog.records if one.getMessage() == "telemetry export failed"]
    assert [vars(one)["runs"] for one in failed] == [1]


def test_a_slow_collector_holds_up_nobody_and_what_is_too_much_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "MAX_QUEUED_RUNS", 2)
    monkeypatch.setattr(exporter, "FLUSH_DELAY_S", 0.0)
    slow, asked = threading.Event(), threading.Event()

    class SlowCollector(Collector):
        def answer(self, got: Any) -> Any:
            asked.set()
            slow.wait(10)
            return super().answer(got)

    from tests.loopback import serving

    collector = SlowCollector()
    with serving(collector.answer) as url, telemetry(url) as made:
        made.run_ended(*runs.account("small"))
        assert asked.wait(10)
        for _ in range(5):
            made.run_ended(*runs.account("small"))
        slow.set()
        made.flush()
        assert 'contextos_telemetry_dropped_total{contextos_tenant_id="tenant_acme_prod"} 3.0' in (
            made.prometheus_text().decode()
        )


def test_closing_exports_what_is_queued_and_ends_every_thread() -> None:
    before = set(threading.enumerate())
    with collecting() as collector:
        with telemetry(collector.url) as made:
            for _ in range(3):
                made.run_ended(*runs.account("small"))
        assert len(collector.named("invoke_agent agt_support")) == 3
        made.close()
        made.run_ended(*runs.account("small"))
        ours = {one.name for one in set(threading.enumerate()) - before if "otel" in one.name.lower()}
        assert made._thread.is_alive() is False
        assert not ours


def test_neither_a_proxy_of_the_environment_nor_a_redirect_gets_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.loopback import serving

    with collecting() as elsewhere:
        monkeypatch.setenv("HTTP_PROXY", elsewhere.url)
        monkeypatch.setenv("http_proxy", elsewhere.url)
        moved = {"Location": f"{elsewhere.url}/v1/traces"}
        with serving(lambda asked: (307, b"", moved)) as url, telemetry(url) as made:
            made.run_ended(*runs.account("small"))
            made.flush()
        assert elsewhere.raw == []


def test_every_instrument_is_made() -> None:
    with telemetry() as made:
        assert made._recorders.keys() == INSTRUMENTS.keys()
