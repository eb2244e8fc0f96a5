"""G81: a service without a witness says so at its start and when it is asked whether it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import contextos
from contextos.cli.operations.worker import running_engine
from contextos.contracts.ports.outside import Witness
from contextos.deployment.witness import WitnessPublisher
from contextos.store.witness.file import FileWitness
from tests.attacks.test_e29_ports_in_use import own, workspace
from tests.http_face import HttpFace, http_face
from tests.postgres import Database

WARNING = "service without a witness"


@pytest.fixture
def face(tmp_path: Path) -> Iterator[HttpFace]:
    with http_face(tmp_path / "refunds") as made:
        yield made


@pytest.mark.parametrize("named", ["", "off", "heads.jsonl"])
def test_a_program_and_a_worker_say_it_at_their_start(
    tmp_path: Path, database: Database, named: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = workspace(tmp_path / "a", unsafe=(), profile="service", environment="prod", store=database.app)
    settings = replace(settings, witness=named)

    async def go() -> None:
        async with contextos.open(settings, **own(settings)) as app:
            await app.engine.stop()
            async with running_engine(app):
                pass

    asyncio.run(go())
    lacks = named != "heads.jsonl"
    assert (WARNING in [one.message for one in caplog.records]) is lacks
    assert ("this service has no witness" in capsys.readouterr().err) is lacks


def test_readiness_says_it(face: HttpFace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
    monkeypatch.setattr(face.app, "settings", replace(face.app.settings, profile="service"))
    monkeypatch.setattr(face.app, "witness_publisher", None)
    ready = face.anonymous("GET", "/v1/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "warnings": ["no_witness"]})
    witness: Witness = FileWitness(tmp_path / "heads.jsonl")
    ports = face.app.deployment.ports
    monkeypatch.setattr(face.app, "witness_publisher", WitnessPublisher(ports.stores, witness, ports.keys, ports.clock))
    assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
