"""A deployment with `[telemetry]` on, and a collector that speaks OTLP: one trace for each run, as its record says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.cli import run_command_line
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.envelopes.tool import CallContext
from contextos.contracts.trace import parse_traceparent
from contextos.deployment.queries.run_view import RunView
from contextos.telemetry.exporter import Telemetry, otlp
from tests.otlp import Collector, attributes_of, children_of, collecting
from tests.world import TENANT, open_world, request


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def workspace(tmp_path: Path, collector: Collector) -> Path:
    """The demo's workspace with a collector named in its settings. What making it reported is forgotten."""
    path = tmp_path / "shop"
    make_workspace(path, witness="witness.jsonl")

    async def initialise() -> None:
        async with contextos.open(path) as app:
            await app.initialise(TENANT, by=example_operator(path))
            await seed_graph(app, Workspace(path, TENANT, {}))

    asyncio.run(initialise())
    settings = path / "contextos.toml"
    settings.write_text(f'{settings.read_text()}\n[telemetry]\notlp_url = "{collector.url}"\nsample_share = 0.0\n')
    return path


def runs_of(path: Path, *requests: dict[str, Any]) -> tuple[list[RunView], bytes]:
    async def go() -> tuple[list[RunView], bytes]:
        async with contextos.open(path) as app:
            views = [await app.deployment.invoke(one) for one in requests]
            app.deployment.ports.telemetry.start().flush()  # type: ignore[attr-defined]
            return views, app.prometheus_text() or b""

    return asyncio.run(go())


def with_trace(body: dict[str, Any], trace_id: str, flags: str = "01") -> dict[str, Any]:
    return body | {"trace": {"trace_id": trace_id, "span_id": "00f067aa0ba902b7", "trace_flags": flags}}


def test_a_collector_receives_one_trace_for_each_run_with_nested_spans_and_the_ids_of_the_record(
    workspace: Path, collector: Collector
) -> None:
    ids = ("1" * 32, "2" * 32)
    bodies = [with_trace(request(900 + at, f"req_{at}"), trace_id) for at, trace_id in enumerate(ids)]
    views, _ = runs_of(workspace, *bodies)
    for trace_id, view in zip(ids, views, strict=True):
        assert view.record is not None
        spans = [one for one in collector.spans if one.trace_id.hex() == trace_id == view.record["trace_id"]]
        (root,) = [one for one in spans if one.parent_span_id.hex() == "00f067aa0ba902b7"]
        told = attributes_of(root)
        assert told["contextos.run_id"] == view.run_id
        assert told["contextos.decision_record_id"] == view.record["record_id"]
        assert told["contextos.replay_id"] == view.record["replay"]["replay_id"]
        planes = children_of(spans, root)
        assert {one.name for one in planes} >= {"control", "intelligence", "context", "decision", "action", "trust"}
        (gateway,) = [one for plane in planes for one in children_of(spans, plane) if one.name == "action.tool_gateway"]
        calls = {attributes_of(one)["gen_ai.tool.call.id"] for one in children_of(spans, gateway)}
        (effect,) = view.record["effects"]
        assert effect["tool_call_id"] in calls
        assert len(calls) == view.record["budget_usage"]["tool_calls"]
    assert {one.trace_id.hex() for one in collector.spans} == set(ids)


def test_the_metrics_of_the_process_are_there_for_prometheus(workspace: Path) -> None:
    _, text = runs_of(workspace, request(900, "req_1"), request(901, "req_2"))
    assert (
        'contextos_run_duration_seconds_count{contextos_end="completed",contextos_intent="support.refund",'
        'contextos_tenant_id="tenant_acme_prod"} 2.0'
    ) in text.decode()


def test_a_run_that_one_process_began_and_another_ended_has_one_trace(workspace: Path, collector: Collector) -> None:
    body = request(4200, "req_large")
    (waiting,), _ = runs_of(workspace, body)
    assert waiting.waiting is not None
    assert collector.spans == []
    key = workspace / "keys" / "user_finance_lead_77.key"
    how = [
        "--as",
        "user_finance_lead_77",
        "--key",
        str(key),
        "--workspace",
        str(workspace),
        "--binding",
        waiting.waiting["binding_digest"],
    ]
    assert run_command_line(["approvals", "approve", "req_large", *how]) == 0
    (root,) = collector.named("invoke_agent agt_support")
    assert attributes_of(root)["contextos.run_id"] == waiting.run_id
    assert len(collector.named("trust.approvals")) == 1


def test_a_replay_by_command_is_measured_and_a_command_that_reads_sends_nothing(
    workspace: Path, collector: Collector
) -> None:
    (view,), _ = runs_of(workspace, request(900, "req_1"))
    collector.metrics.clear()
    collector.raw.clear()
    assert run_command_line(["runs", "show", view.run_id, "--workspace", str(workspace)]) == 0
    assert collector.raw == []
    assert run_command_line(["replay", view.run_id, "--workspace", str(workspace)]) == 0
    (replays,) = [one for one in collector.metrics if one.name == "contextos.replays"]
    (point,) = replays.sum.data_points
    assert attributes_of(point) == {"contextos.tenant_id": TENANT, "contextos.result": "equal"}


def test_a_collector_that_is_away_changes_no_run(workspace: Path, collector: Collector) -> None:
    settings = workspace / "contextos.toml"
    settings.write_text(settings.read_text().replace(collector.url, "http://127.0.0.1:9"))
    settings.write_text(settings.read_text() + "timeout_s = 1\n")
    (view,), text = runs_of(workspace, request(900, "req_1"))
    assert view.state == "completed"
    assert b"contextos_run_tokens_total" in text


def test_a_program_can_bring_its_own(workspace: Path, collector: Collector) -> None:
    made = Telemetry(otlp(collector.url), service_name="of-the-program")

    async def go() -> None:
        async with contextos.open(workspace, telemetry=made) as app:
            await app.deployment.invoke(request(900, "req_1"))

    asyncio.run(go())
    made.flush()
    assert len(collector.named("invoke_agent agt_support")) == 1
    assert any(b"of-the-program" in one for one in collector.raw)
    made.close()


class Listening:
    """An adapter that remembers the trace headers of its calls."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.heard: dict[str, dict[str, str]] = {}

    def describe(self) -> Any:
        return self._inner.describe()

    async def call(self, capability: str, args: Any, context: CallContext) -> Any:
        self.heard[context.tool_call_id] = context.headers()
        return await self._inner.call(capability, args, context)

    async def lookup(self, capability: str, key: str, context: CallContext) -> Any:
        return await self._inner.lookup(capability, key, context)


def test_what_a_service_records_of_a_call_lies_below_the_span_of_the_call(tmp_path: Path) -> None:
    with collecting() as collector:

        async def go() -> dict[str, dict[str, str]]:
            world = await open_world(tmp_path)
            made = Telemetry(otlp(collector.url))
            world.deployment.ports = replace(world.deployment.ports, telemetry=made)
            heard = [Listening(one) for one in world.adapters.values()]
            world.adapters.update({one.describe().adapter_id: one for one in heard})  # type: ignore[misc]
            await world.invoke(request(900, "req_1"))
            made.close()
            return {name: headers for one in heard for name, headers in one.heard.items()}

        heard = asyncio.run(go())
    spans = {attributes_of(one)["gen_ai.tool.call.id"]: one for one in collector.spans if "execute_tool" in one.name}
    assert spans.keys() == heard.keys()
    for name, span in spans.items():
        sent = parse_traceparent(heard[name]["traceparent"])
        assert sent is not None
        assert (sent.trace_id, sent.parent_id, sent.sampled) == (span.trace_id.hex(), span.span_id.hex(), True)
