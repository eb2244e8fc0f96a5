"""G133: what one tenant does is at the collector of another in no form: no span, event, metric, count or attribute.

Two tenants with the same people run at once, each with a collector of its own: a caller of one names the trace of the
other, a collector hangs or sends back what it was sent, and the address of one leads into the operator's network.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.key_files import KeyFiles
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.encoding.jcs import canonical
from contextos.deployment.queries.run_view import RunView
from contextos.errors import InvalidSettings
from contextos.server.routes.health import get_readiness
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import seal
from contextos.workspace import telemetry as app_telemetry
from contextos.workspace.settings import Settings, check_settings
from contextos.workspace.settings.telemetry import CollectorSetting, TelemetrySetting, parsed_headers
from tests.otlp import Collector, attributes_of, collecting
from tests.unit.telemetry import runs
from tests.world import TENANT, request

OTHER = "tenant_other"
SECRET = "sk_live_4711471147114711"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The demo's workspace with two tenants that have the same people, packs and facts."""
    path = tmp_path / "shop"
    make_workspace(path)
    listed = json.loads((path / "directory.json").read_text("utf-8"))
    (path / "directory.json").write_text(json.dumps({**listed, OTHER: listed[TENANT]}), "utf-8")
    keys = KeyFiles(path / "keys", SystemClock())
    for file in (*path.glob("packs/*.json"), *path.glob("policies/*.json")):
        sealed = json.loads(file.read_text("utf-8"))
        content = base64.b64decode(sealed["payload"]).replace(TENANT.encode(), OTHER.encode())
        theirs = seal(sealed["payloadType"], canonical(json.loads(content)), keys, "pack")
        file.with_stem(f"{file.stem}_of_the_other").write_text(json.dumps(theirs), "utf-8")

    async def initialise() -> None:
        async with contextos.open(path) as app:
            for tenant in (TENANT, OTHER):
                await app.initialise(tenant, by=example_operator(path))
                await seed_graph(app, Workspace(path, tenant, {}))

    asyncio.run(initialise())
    return path


def name(path: Path, *tables: str) -> None:
    """Write these tables into the settings, in the place of those that were written so before."""
    settings = path / "contextos.toml"
    kept = settings.read_text("utf-8").partition("\n[telemetry]")[0]
    settings.write_text("\n".join((kept, "[telemetry]\ntimeout_s = 1", *tables)) + "\n", "utf-8")


def own(tenant: str, url: str, *more: str) -> str:
    return "\n".join((f"[telemetry.tenants.{tenant}]", f'otlp_url = "{url}"', "internal = true", *more))


def sent(tenant: str, number: int) -> dict[str, Any]:
    """A request of a tenant, in the one trace that both name."""
    trace = {"trace_id": TRACE, "span_id": "00f067aa0ba902b7", "trace_flags": "01"}
    return request(900 + number, f"req_of_{tenant}_{number}") | {"tenant_id": tenant, "trace": trace}


def runs_of(path: Path, count: int = 2) -> dict[str, list[RunView]]:
    """Run `count` requests of each tenant at once, and send what they tell. Returns the runs by tenant."""

    async def go() -> dict[str, list[RunView]]:
        async with contextos.open(path) as app:
            asked = [(tenant, sent(tenant, at)) for at in range(count) for tenant in (TENANT, OTHER)]
            views = await asyncio.gather(*(app.deployment.invoke(body) for _, body in asked))
            found: dict[str, list[RunView]] = {TENANT: [], OTHER: []}
            for (tenant, _), view in zip(asked, views, strict=True):
                assert (view.tenant_id, view.state) == (tenant, "completed"), view.record
                found[tenant].append(view)
            return found

    return asyncio.run(go())


def instances(collector: Collector) -> set[str]:
    """The ids of the services that told a collector something."""
    return {attributes_of(one)["service.instance.id"] for one in collector.resources}


def test_two_tenants_in_two_collectors_and_nothing_of_one_at_the_other(workspace: Path) -> None:
    with collecting() as first, collecting() as second:
        name(workspace, own(TENANT, first.url), own(OTHER, second.url))
        found = runs_of(workspace)
        for mine, tenant, theirs in ((first, TENANT, OTHER), (second, OTHER, TENANT)):
            assert len(mine.named("invoke_agent agt_support")) == 2
            assert {one.trace_id.hex() for one in mine.spans} == {TRACE}, "both tenants named the same trace"
            assert mine.events
            foreign = [theirs, *(one for view in found[theirs] for one in (view.run_id, view.record["record_id"]))]  # type: ignore[index]
            for raw in mine.raw:
                assert [one for one in foreign if one.encode() in raw] == []
            assert not [one for one in foreign if one in repr(mine.headers)]
            told = [attributes_of(one) for one in (*mine.spans, *mine.events)]
            assert {one["contextos.tenant_id"] for one in told if "contextos.tenant_id" in one} == {tenant}
            points = [point for one in mine.metrics for point in (*one.sum.data_points, *one.histogram.data_points)]
            assert {attributes_of(point)["contextos.tenant_id"] for point in points} == {tenant}
            [ended] = [one for one in mine.metrics if one.name == "contextos.run.duration"]
            assert [point.count for point in ended.histogram.data_points] == [2], "the runs of one tenant are counted"
        assert {one.span_id for one in first.spans}.isdisjoint(one.span_id for one in second.spans)
        assert instances(first).isdisjoint(instances(second)), "nobody sees that both are one process"


def test_the_runs_of_a_tenant_without_a_collector_are_sent_to_nobody(workspace: Path) -> None:
    with collecting() as mine:
        name(workspace, own(TENANT, mine.url))
        runs_of(workspace, 1)
        assert len(mine.named("invoke_agent agt_support")) == 1
        assert not [one for one in mine.raw if OTHER.encode() in one]


@pytest.mark.parametrize("sends", [True, False])
def test_a_collector_for_all_has_those_without_one_of_their_own_and_readiness_says_so(
    workspace: Path, sends: bool
) -> None:
    with collecting() as mine, collecting() as for_all:
        name(workspace, own(TENANT, mine.url) if sends else f"[telemetry.tenants.{TENANT}]\nexporter = 'none'")
        settings = workspace / "contextos.toml"
        text = settings.read_text("utf-8").replace("[telemetry]", f'[telemetry]\notlp_url = "{for_all.url}"', 1)
        settings.write_text(text, "utf-8")
        runs_of(workspace, 1)
        assert len(mine.named("invoke_agent agt_support")) == int(sends)
        assert len(for_all.named("invoke_agent agt_support")) == 1
        assert not [one for one in for_all.raw if TENANT.encode() in one]
        assert ready(workspace) is True
        name(workspace, own(TENANT, mine.url))
        assert ready(workspace) is False


def ready(path: Path) -> bool:
    """Whether readiness says that one collector is for all."""

    class Issuers:
        def silent_issuers(self) -> tuple[str, ...]:
            return ()

    class Serving:
        class app:
            class state:
                draining = asyncio.Event()

    async def go() -> bool:
        async with contextos.open(path) as app:
            return (await get_readiness(app, Issuers(), Serving())).shared_collector  # type: ignore[arg-type]

    return asyncio.run(go())


def test_a_collector_that_hangs_holds_up_no_run_and_no_other_collector(workspace: Path) -> None:
    done, asked = threading.Event(), threading.Event()

    class Hanging(Collector):
        def answer(self, got: Any) -> Any:
            asked.set()
            done.wait(30)
            return super().answer(got)

    async def go(other: Collector) -> None:
        async with contextos.open(workspace) as app:
            await app.deployment.invoke(sent(TENANT, 1))
            await asyncio.to_thread(asked.wait, 30)
            view = await app.deployment.invoke(sent(OTHER, 1))
            assert view.state == "completed"
            while not other.spans:  # sent while the first still hangs
                await asyncio.to_thread(done.wait, 0.05)
            assert not done.is_set()

    with collecting(Hanging()) as hanging, collecting() as other:
        name(workspace, own(TENANT, hanging.url), own(OTHER, other.url))
        try:
            asyncio.run(go(other))
        finally:
            done.set()


@contextmanager
def told(named: TelemetrySetting, folder: Path) -> Iterator[Any]:
    made = app_telemetry.telemetry_of(Settings(folder, telemetry=named), read_only=False)
    try:
        yield made
    finally:
        made.close()  # type: ignore[union-attr]


def test_a_collector_gets_its_own_headers_and_none_of_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-of-the-operator={SECRET}")
    monkeypatch.setenv("ACME_HEADERS", "x-api-key=acme%20key,X-Scope=acme")
    monkeypatch.setenv("OTHER_TOKEN", "t0ken")
    with collecting() as first, collecting() as second:
        collectors = {
            TENANT: CollectorSetting(otlp_url=first.url, internal=True, headers_env="ACME_HEADERS"),
            OTHER: CollectorSetting(otlp_url=second.url, internal=True, token_env="OTHER_TOKEN"),
        }
        with told(TelemetrySetting(tenants=collectors), tmp_path) as made:
            made.run_ended(*runs.account("small"))
            made.run_replayed(OTHER, equal=True)
    assert {(one["x-api-key"], one["x-scope"]) for one in first.headers} == {("acme key", "acme")}
    assert {one["authorization"] for one in second.headers} == {"Bearer t0ken"}
    assert SECRET not in repr((first.headers, second.headers))
    assert not {"authorization"} & set().union(*first.headers)
    assert not {"x-api-key", "x-scope"} & set().union(*second.headers)


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
def test_a_secret_in_a_header_is_in_no_log_error_or_representation(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the collector sends it back: the SDK logs what an answer says."""

    class Echo(Collector):
        def answer(self, got: Any) -> Any:
            super().answer(got)
            return status, SECRET.encode(), {"x-seen": SECRET, "Content-Type": "text/plain"}

    monkeypatch.setenv("ACME_HEADERS", f"x-api-key={SECRET}")
    caplog.set_level(logging.DEBUG)
    with collecting(Echo()) as echo:
        named = TelemetrySetting(
            timeout_s=1,
            tenants={TENANT: CollectorSetting(otlp_url=echo.url, internal=True, headers_env="ACME_HEADERS")},
        )
        with told(named, tmp_path) as made:
            made.run_ended(*runs.account("small"))
            made.start().flush()
            shown = repr(named) + repr(made) + made.prometheus_text().decode()
    assert {one["x-api-key"] for one in echo.headers} == {SECRET}, "it was sent"
    logged = "".join(repr(vars(one)) + one.getMessage() for one in caplog.records)
    assert "Failed to export" in logged
    assert SECRET not in logged + shown


BAD_HEADERS = [
    SECRET,
    f"x={SECRET},x={SECRET}",
    f"host={SECRET}",
    f"x y={SECRET}",
    f"Content-Type={SECRET}",
    f"x=%0d%0a{SECRET}",
    f"x=ä{SECRET}",
    ",".join(f"x{number}={SECRET}" for number in range(33)),
]


@pytest.mark.parametrize("text", BAD_HEADERS)
def test_headers_that_are_none_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        parsed_headers(text, "/telemetry")
    assert SECRET not in str(refused.value) + repr(refused.value.problems)


@pytest.mark.parametrize(
    ("url", "internal"),
    [
        ("http://169.254.169.254/latest", True),
        ("https://169.254.169.254/latest", False),
        ("https://127.0.0.1:4318", False),
        ("https://10.0.0.8", False),
        ("https://100.100.100.200", True),
        ("https://2130706433", True),
        ("https://me:pw@collector.example", False),
        ("https://collector.example/?to=1", False),
        ("http://collector.example", False),
        ("ftp://collector.example", True),
        ("", False),
    ],
)
def test_an_address_to_which_nothing_is_ever_sent_stops_the_start(url: str, internal: bool, tmp_path: Path) -> None:
    name_it = TelemetrySetting(tenants={TENANT: CollectorSetting(otlp_url=url, internal=internal)})
    settings = Settings(tmp_path, telemetry=name_it)

    def start() -> None:
        check_settings(settings)
        app_telemetry.telemetry_of(settings, read_only=False)

    with pytest.raises(InvalidSettings) as refused:
        start()
    assert refused.value.problems[0].pointer.startswith("/telemetry/tenants/")


def test_a_name_that_leads_into_the_network_of_the_operator_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`localhost` is a name: what it resolves to is checked when something is sent, and no redirect is followed."""
    with ExitStack() as open_, collecting() as inside:

        class Redirecting(Collector):
            def answer(self, got: Any) -> Any:
                super().answer(got)
                return 307, b"", {"Location": f"{inside.url}/v1/traces"}

        redirecting = open_.enter_context(collecting(Redirecting()))
        named = inside.url.replace("http://127.0.0.1", "https://localhost")
        collectors = {
            TENANT: CollectorSetting(otlp_url=named),
            OTHER: CollectorSetting(otlp_url=redirecting.url, internal=True),
        }
        with told(TelemetrySetting(tenants=collectors, timeout_s=1), tmp_path) as made:
            made.run_ended(*runs.account("small"))
            made.run_replayed(OTHER, equal=True)
        assert redirecting.raw
        assert inside.raw == []
    assert any("at an address that is not public" in one.getMessage() for one in caplog.records)


def test_a_collector_of_a_tenant_that_the_directory_does_not_list_is_refused(workspace: Path) -> None:
    """The runs of the tenant that was meant are at the collector for all, or nowhere."""
    name(workspace, own("tenant_mistyped", "http://127.0.0.1:9"))

    async def go() -> None:
        async with contextos.open(workspace):
            pass

    with pytest.raises(InvalidSettings) as refused:
        asyncio.run(go())
    assert [problem.pointer for problem in refused.value.problems] == ["/telemetry/tenants/tenant_mistyped"]


def test_the_metrics_of_the_process_name_each_metric_once(tmp_path: Path) -> None:
    own_ones = {TENANT: CollectorSetting(exporter="none")}
    with told(TelemetrySetting(tenants=own_ones), tmp_path) as made:
        made.run_replayed(TENANT, equal=True)
        made.run_replayed(OTHER, equal=False)
        text = made.prometheus_text().decode()
        assert text.count("# TYPE contextos_replays_total counter") == 1
        assert text.count("contextos_replays_total{") == 2
        assert OTHER not in made.prometheus_text(TENANT).decode()
        assert TENANT not in made.prometheus_text(OTHER).decode()
