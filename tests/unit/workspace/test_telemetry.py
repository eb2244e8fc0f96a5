"""The telemetry that the settings name, or that a program brings: made when it is needed, and closed."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.audit.replay import replay
from contextos.cli.demo.workspace import make_workspace
from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.reading import logged
from contextos.contracts.journal import Entry
from contextos.deployment.ports import NoTelemetry
from contextos.errors import InvalidSettings
from contextos.workspace import telemetry
from contextos.workspace.settings import Settings
from contextos.workspace.settings.telemetry import CollectorSetting, TelemetrySetting
from contextos.workspace.telemetry import DeferredTelemetry, telemetry_of
from tests.otlp import collecting
from tests.unit.telemetry import runs
from tests.world import TENANT, open_world, request, run


class Told:
    """A telemetry of a program, which can fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.ended: list[tuple[Entry, ...]] = []
        self.replayed: list[tuple[str, bool]] = []
        self.fails = fails

    def run_ended(self, tenant_id: str, account: Any) -> None:
        self.ended.append((tenant_id, account))
        if self.fails:
            raise RuntimeError("telemetry is broken")

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None:
        self.replayed.append((tenant_id, equal))
        if self.fails:
            raise RuntimeError("telemetry is broken")


def threads() -> set[str]:
    return {one.name for one in threading.enumerate() if "telemetry" in one.name or "OTel" in one.name}


def test_nothing_named_is_no_telemetry(tmp_path: Path) -> None:
    assert isinstance(telemetry_of(Settings(tmp_path), read_only=False), NoTelemetry)


def test_what_only_reads_makes_nothing_until_it_is_used(tmp_path: Path) -> None:
    before = threads()
    settings = Settings(tmp_path, telemetry=TelemetrySetting())
    made = telemetry_of(settings, read_only=True)
    assert isinstance(made, DeferredTelemetry)
    assert threads() == before
    made.run_replayed(TENANT, equal=True)
    made.run_ended(*runs.account("small"))
    made.start().flush()
    text = made.prometheus_text().decode()
    assert "contextos_replays_total" in text
    assert "contextos_run_tokens_total" in text
    made.close()
    assert threads() == before


def test_the_token_of_a_file_is_sent_as_a_bearer_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "token").chmod(0o600)
    with collecting() as collector:
        named = TelemetrySetting(collector.url, token_file="token")
        made = telemetry_of(Settings(tmp_path, telemetry=named), read_only=False)
        assert isinstance(made, DeferredTelemetry)
        made.run_ended(*runs.account("small"))
        made.close()
    assert {one["authorization"] for one in collector.headers} == {"Bearer t0ken"}


def test_a_token_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    named = TelemetrySetting("https://collector.example", token_env="NO_SUCH_TOKEN_HERE")
    with pytest.raises(InvalidSettings):
        telemetry_of(Settings(tmp_path, telemetry=named), read_only=False)


def test_without_the_extra_the_start_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda _name: None)
    with pytest.raises(InvalidSettings, match="not installed"):
        telemetry_of(Settings(tmp_path, telemetry=TelemetrySetting()), read_only=True)


def test_a_telemetry_of_a_program_receives_ends_and_replays_and_nothing_before(tmp_path: Path) -> None:
    told = Told()

    async def go() -> None:
        world = await open_world(tmp_path)
        world.deployment.ports = replace(world.deployment.ports, telemetry=told)
        waiting = await world.invoke(request(4200, "req_1"))
        assert told.ended == []
        ended = await world.approve(waiting.run_id)
        entries = await world.stores.tenant(TENANT).read(ended.run_id)
        ((tenant, account),) = told.ended
        assert (tenant, account.run_id, account.ledger_heads()) == (
            TENANT,
            ended.run_id,
            account_of("", logged(entries)).ledger_heads(),
        )
        await world.deployment.advance(TENANT, ended.run_id)
        assert len(told.ended) == 1, "a run that has ended is not driven again"
        await replay(world.deployment, TENANT, ended.run_id)
        assert told.replayed == [(TENANT, True)]

    run(go())


def test_a_telemetry_that_fails_changes_no_run(tmp_path: Path) -> None:
    told = Told(fails=True)

    async def go() -> None:
        world = await open_world(tmp_path)
        world.deployment.ports = replace(world.deployment.ports, telemetry=told)
        view = await world.invoke(request(900, "req_1"))
        assert view.state == "completed"
        assert (await replay(world.deployment, TENANT, view.run_id)).status == "DECIDED"

    run(go())
    assert (len(told.ended), told.replayed) == (1, [(TENANT, True)])


@pytest.mark.parametrize("wrong", [object(), Told, "otlp"])
def test_an_object_that_is_no_telemetry_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as refused, contextos.open(Settings(tmp_path), telemetry=wrong, dev=True):
        pass
    assert refused.value.problems[0].pointer == "/telemetry"


def test_a_telemetry_of_a_program_does_not_take_the_place_of_the_collectors_of_tenants(tmp_path: Path) -> None:
    make_workspace(tmp_path / "shop")
    named = TelemetrySetting(tenants={TENANT: CollectorSetting("none")})
    settings = replace(Settings.read(tmp_path / "shop"), telemetry=named)
    with pytest.raises(InvalidSettings) as refused, contextos.open(settings, telemetry=Told(), dev=True):
        pass
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.code) == ("/telemetry/tenants", "telemetry_given")


def test_a_program_without_the_setting_loads_no_opentelemetry_sdk() -> None:

    code = "import contextos, contextos.workspace, sys; sys.exit('opentelemetry.sdk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
