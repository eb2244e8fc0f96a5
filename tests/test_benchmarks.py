"""Every benchmark still measures: at a tiny size each prints every line that it promises, with a number.

How large a number is says nothing here. The peers are not installed where tests run; what they would do is left out by
the benchmark itself, with a line that says why.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks import (
    append,
    console,
    definitions,
    floor,
    gateway,
    growth,
    http_api,
    kill,
    liveness,
    mcp_calls,
    mcp_face,
    models,
    openapi_import,
    origins,
    overload,
    parallel_reads,
    peers,
    queues,
    replay,
    run,
    search,
    sessions,
    size,
    slots,
    slow_commits,
    startup,
    store,
    streams,
    waiting,
    workers,
)
from benchmarks import compile as compile_
from benchmarks import policy as policy_
from benchmarks import postgres as postgres_
from benchmarks import telemetry as telemetry_
from benchmarks import verify as verify_
from contextos.contracts.admission_limits import AdmissionLimits
from tests.postgres import Database, Server

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a machine happens to have is measured."""
    monkeypatch.setenv("BENCH_PEERS", str(tmp_path / "no peers"))
    monkeypatch.setattr("sys.argv", ["benchmark", "--quick"])


def says(capsys: pytest.CaptureFixture[str], *promised: str, skipped: str = "") -> None:
    """Each promised label is a line with a number behind it; nothing is left out but what is named."""
    lines = capsys.readouterr().out.splitlines()
    for label in promised:
        values = [line.partition(label)[2] for line in lines if label in line and not line.startswith("SKIP")]
        assert values, f"nothing is said of `{label}` in {lines}"
        assert all(re.search(r"\d", one) for one in values), values
    left_out = [line for line in lines if line.startswith("SKIP")]
    assert [line for line in left_out if not skipped or skipped not in line] == []
    assert bool(left_out) == bool(skipped)


def test_every_benchmark_of_the_table_is_played_here():
    played = {
        "policy",
        "origins",
        "gateway",
        "floor",
        "peers",
        "kill",
        "compile",
        "replay",
        "parallel_reads",
        "sessions",
        "mcp_calls",
        "mcp_face",
        "models",
        "definitions",
        "openapi_import",
        "startup",
        "store",
        "overload",
        "postgres",
        "waiting",
        "liveness",
        "search",
        "console",
        "slots",
        "verify",
        "size",
        "telemetry",
        "http_api",
        "streams",
    }
    assert set(run.BENCHMARKS) == played


def test_size(capsys, monkeypatch):
    monkeypatch.setattr(size, "RUNS", 2)
    size.main()
    says(capsys, *(f"bytes of a run {label}" for label, *_ in size.CASES))


def test_origins(capsys):
    origins.report(2)
    says(capsys, "100 kB of content, the first call", "origins of five arguments, 100 kB of content, p50")


def test_policy(capsys, monkeypatch):
    monkeypatch.setattr(policy_, "CALLS", 2)
    policy_.report(1)
    says(
        capsys,
        "policy decision, 1,000 rules, p50",
        "cedar, 100 rules",
        "policy decision, 100 rules, p50",
        "ours / cedar",
        "10 -> 100 rules, growth",
        "1,000 rules that do not apply / none",
    )


def test_gateway(capsys):
    gateway.report(3)
    says(
        capsys,
        "governed write / two raw commits of the same bytes, p50",
        "median of the ratios",
        "governed write / the same rows",
        "governed write, p50",
        "two raw commits, p50",
    )


def test_floor(tmp_path, capsys):
    asyncio.run(floor.measure(tmp_path, 2))
    says(capsys, "refund run / own floor, no gate, p50", "refund run / own floor, approval, p50", "(approval), CPU p50")


def test_compile(capsys):
    compile_.report(1)
    says(capsys, *compile_.CASES, "compile, 100 capabilities, 1,000 facts", "1,000 -> 2,000 facts, growth")


def test_parallel_reads(tmp_path, capsys):
    asyncio.run(parallel_reads.measure(tmp_path, 1))
    says(
        capsys,
        "run with four reads of 50 ms at once / run with one",
        "the same four reads one after the other / run with one",
        "run with one read, four at once, p50",
    )


def test_sessions(tmp_path, capsys):
    asyncio.run(sessions.measure_calls(tmp_path, 1))
    says(
        capsys,
        "gate.call of a read, warm session / one more read in a plan",
        "gate.call of a read, warm session / a run with that one read",
        "gate.call, one more read, a run with one read, p50",
    )


def test_a_governed_agent(tmp_path, capsys):
    deployment = asyncio.run(sessions.opened(tmp_path, of_agent=True))
    assert asyncio.run(sessions.governed_ms(deployment, 1)) > 0
    asyncio.run(sessions.measure_agents(tmp_path / "beside", 1))
    assert f"SKIP  {sessions.AGENT_LABEL}" in capsys.readouterr().out, "`dbos` is not installed for the tests"


def test_mcp_calls(tmp_path, capsys):
    asyncio.run(mcp_calls.measure(tmp_path, 1))
    said = "plain rows of the same bytes", "gate.call, both; SDK call, commits, p50"
    says(capsys, mcp_calls.LABEL, mcp_calls.AGED_LABEL, *said)


def test_mcp_face(tmp_path, capsys):
    asyncio.run(mcp_face.measure(tmp_path, sessions=1, calls=2))
    says(capsys, mcp_face.LABEL, mcp_face.AGED_LABEL, "median of the ratios of each call", "the server itself, p50")


def test_models(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(models, "PEERS", tmp_path / "no peers")
    monkeypatch.setattr(models, "CALLS_OF_A_RUN", 2)
    # It would hide what the tests of this process leave behind.
    monkeypatch.setattr(gc, "freeze", Mock())
    with models.provider() as port:
        for name in ("calls", "rates", "agents"):
            (tmp_path / name).mkdir()
        asyncio.run(models.measure_calls(tmp_path / "calls", port, 1))
        asyncio.run(models.measure_streams(port, 4))
        models.measure_memory(port, 2 * models.SHARES * models.AT_ONCE)
        says(
            capsys,
            *(f"{label}, {tokens}k tokens" for label in models.LABELS[:2] for tokens in (1, 50)),
            models.LABELS[3],
            models.LABELS[5],
            "gateway call; bare SDK, the commits, 1k tokens, p50",
            "first token, ours, bare SDK, p50",
            "MB of the process",
        )
        asyncio.run(models.measure_rates(tmp_path / "rates", port, 1, 1))
        says(capsys, "calls/s of the gateway", skipped=models.NO_PEERS)
        asyncio.run(models.measure_agents(tmp_path / "agents", port, 1))
        says(capsys, "agent of 10 calls, own model, p50", skipped=models.NO_PEERS)


def test_definitions(capsys):
    definitions.report(1)
    says(capsys, definitions.LABEL, "the SDK lists 1,000 tools of a server in memory, p50")


def test_openapi_import(capsys, monkeypatch):
    for name, tiny in (("OPERATIONS", 4), ("SCHEMAS", 4)):
        monkeypatch.setattr(openapi_import, name, tiny)
    openapi_import.report(1)
    says(capsys, "import of an OpenAPI document of 5 MB, p50", "the peak memory of that process", "what was imported")


def test_replay(tmp_path, capsys):
    asyncio.run(replay.measure(tmp_path, 2))
    says(
        capsys,
        "replay / live run, CPU, no gate",
        "replay, live run (approval), p50",
        "reads of the journal",
        "other calls of a replay to external systems",
    )


def test_startup(capsys):
    startup.report(1)
    says(capsys, "`import contextos` in a new process", "`contextos --help`", "a new interpreter that does nothing")


def test_store(capsys, monkeypatch):
    monkeypatch.setattr(store, "ALONE", 4)
    monkeypatch.setattr(store, "COMMITS_PER_CLIENT", 1)
    store.main()
    says(
        capsys,
        "raw: one INSERT, committed",
        "raw: 10 INSERTs and 2 UPDATEs",
        "store: 10 entries and 2 writes",
        "store: read one document",
        "over one raw INSERT",
        "clients: ",
        "raw one by one: ",
        "ratio ",
    )


def test_overload(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(overload, "LOAD", 3)
    # It would hide what the tests of this process leave behind.
    monkeypatch.setattr(gc, "freeze", frozen := Mock())
    limits = AdmissionLimits(max_callers_per_tenant=1, max_new_runs_per_minute_per_tenant=60_000)
    monkeypatch.setattr(overload, "TENANTS", 2)
    monkeypatch.setattr(overload, "CLIENTS", 3)
    for number, crowd in enumerate(overload.crowds(limits)):
        (tmp_path / str(number)).mkdir()
        asyncio.run(overload.measure(tmp_path / str(number), limits, 1, 2, crowd))
        told = [("3 times the load", "3 busy clients"), ("2 tenants x 3 clients", "6 busy clients")][number]
        says(capsys, f"a quiet tenant beside {told[0]}", "its p50, loaded and idle", told[1])
    assert frozen.call_count == 2


def test_kill(tmp_path, capsys):
    kill.experiment(tmp_path, keyed=False)
    values = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in values] == ["PASS", "    ", "PASS", "    "], values
    assert "after a person settled that it happened" in values[-1]
    assert "completed; record DECIDED; payments 1" in values[-1]


def test_what_needs_the_peers_says_that_they_are_missing(capsys):
    peers.main()
    says(capsys, skipped="set BENCH_PEERS")
    kill.peer_script()
    says(capsys, skipped="set BENCH_PEERS")


def test_postgres_refunds_and_appends(database: Database, tmp_path, capsys):
    asyncio.run(postgres_.refunds(database, tmp_path, 2))
    asyncio.run(append.measure(database, each=1, rounds=1))
    says(
        capsys,
        "refund run without a gate / the same rows by asyncpg, p50",
        "refund run, p50",
        "asks of the store",
        "entries/s, ours / by hand, executemany",
        "entries/s, ours / by hand, arrays",
        "a connection for each writer",
        "32 writers: ours",
    )


@pytest.mark.soak
def test_postgres_workers_on_one_backlog(database: Database, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(queues, "WARM_RUNS", 1)
    workers.measure([database] * 2, tmp_path, runs=4, rounds=1)
    says(
        capsys,
        "2 worker processes / one on one backlog, runs/s",
        "4 worker processes / one on one backlog, runs/s",
        "4 worker processes / one on one backlog, transactions a run",
        "a run that another process received, to its drive, p50",
        "an idle worker, transactions a second",
        skipped=workers.PEER,
    )


@pytest.mark.soak
def test_postgres_slow_commits(postgres: Server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(queues, "WARM_RUNS", 1)
    databases = [postgres.database() for _ in range(3)]
    asyncio.run(slow_commits.measure(databases, tmp_path, runs=2, rounds=1))
    says(
        capsys,
        "one tenant, commits of 20 ms, 64 runs at once, runs/s",
        "a commit by hand there",
        "the same refunds with the disk's own commits",
        "CPU of the process for a run",
        "four workers, commits of 20 ms: one tenant / four tenants, runs/s",
        "runs/s of one tenant, and of four",
    )


def test_postgres_growth(postgres: Server, tmp_path, capsys):
    databases = [postgres.database() for _ in range(2)]
    asyncio.run(growth.measure(databases, tmp_path, small=50, large=100, count=2))
    says(capsys, "refund run, journal of 100 entries / of 50", "median of the ratios", "refund run, p50, 50 and 100")


def test_waiting(database: Database, tmp_path, capsys, monkeypatch):
    for name, tiny in (("SETTLE_S", 0), ("IDLE_S", 0.1), ("ANSWERED", 2), ("ORDERS", 8), ("AT_ONCE", 2)):
        monkeypatch.setattr(waiting, name, tiny)
    asyncio.run(waiting.measure(tmp_path, database, 4))
    says(
        capsys,
        "idle, a few runs wait",
        "4 runs asked and waiting",
        "memory that the process grew by",
        "idle, 4 runs wait",
        "its loop is kept",
        "its loop is derived again",
    )


def test_liveness(database: Database, tmp_path, capsys, monkeypatch):
    for name, tiny in (("AWAY_US", 3_000_000), ("COMPARED", 2), ("BLOCKED_S", 0.1)):
        monkeypatch.setattr(liveness, name, tiny)
    liveness.takeovers(tmp_path, database.app)
    for name in ("twin", "desk"):
        (tmp_path / name).mkdir()
    assert asyncio.run(liveness.settled_twin(tmp_path / "twin")) > 0
    assert asyncio.run(liveness.returned_receiver(tmp_path / "desk")) >= 0
    first, last = liveness.long_session(tmp_path / "deploys", 6)
    assert (len(first), len(last)) == (2, 2)
    says(
        capsys,
        "a `batch` run of a killed server ends after",
        "a `stream` run of a killed server ends after",
        "a run whose caller went away in mid-call ends after",
    )


def test_slots(postgres: Server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(slots, "SMALL", 1_100)
    for bench in (slots.sqlite_bench(tmp_path), slots.postgres_bench(postgres)):
        slots.compare(bench, 3_800, 5)
        says(
            capsys,
            *(
                f"{bench.name}: {line}"
                for line in (
                    "resolve 50 of 3,800, p50",
                    "resolve 50 of 3,800, over 1,100",
                    "resolve 1,140 visible, over 1,100 visible",
                    "record 5 refs over plain rows",
                )
            ),
        )


def test_verify(tmp_path, capsys):
    verify_.measure(tmp_path, 40)
    says(
        capsys,
        "whole verification of 40 runs by ranges, peak memory",
        "from the last checkpoint, 200 new runs, peak memory",
        "a new run from the last checkpoint",
    )


def test_console(tmp_path, capsys):
    console.measure_all(tmp_path, 5, 2, 2)
    says(capsys, "runs, newest of 5, p95", "inbox of 2, p95", "a refund, size", "entries, size")


def test_search(tmp_path, capsys):
    asyncio.run(search.measure(tmp_path, (5, 10)))
    says(
        capsys,
        "page by subject, 5 runs, p50",
        "page by subject, 10 runs / 5",
        "by a common rule first, then the subject",
    )


def test_telemetry(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(telemetry_, "BLOCK", 1)
    with telemetry_.receiver() as url:
        asyncio.run(telemetry_.measure(tmp_path, url, 1))
    says(
        capsys,
        "CPU of a refund, telemetry on / off, no gate",
        "CPU of a refund (no gate), on, off, p50",
        "CPU of a refund, telemetry on / off, approval",
        "CPU of a refund (approval), on, off, p50",
    )


def test_http_api(tmp_path, capsys):
    http_api.measure(tmp_path, 2, 20)
    says(
        capsys,
        "refund over HTTP / in the process, runs/s, 16 at once",
        "refund over HTTP, p99 / p50, 16 at once",
        "refund over HTTP beyond in the process, p50",
        skipped="no `peer_",
    )


def test_streams(tmp_path, capsys):
    with http_api.process([sys.executable, "-m", "benchmarks.http_server", str(tmp_path)]) as served:
        asyncio.run(streams.measure(served, 4, 2))
    says(capsys, "memory of 4 open streams", "event delivered to one of 4 open streams, p99")
