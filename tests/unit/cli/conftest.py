"""Workspaces for the command line's tests: one that the demo made, copied for each test."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line
from contextos.cli.demo.workspace import APPROVER, EXAMPLE_OPERATOR_ID

SRC = Path(__file__).resolve().parents[3] / "src"


@dataclass(frozen=True)
class Said:
    """What one command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shop:
    """A workspace after the demo, and the command line in it."""

    path: Path
    say: Callable[..., Said]

    @property
    def key(self) -> list[str]:
        return ["--as", APPROVER, "--key", str(self.path / "keys" / f"{APPROVER}.key")]

    @property
    def operator(self) -> list[str]:
        return ["--as", EXAMPLE_OPERATOR_ID, "--key", str(self.path / "keys" / f"{EXAMPLE_OPERATOR_ID}.key")]

    def binding(self, run: str) -> list[str]:
        """The digest of the question that a run asks, as `show` prints it; a digest of nothing where it asks none."""
        waiting = self.say("runs", "show", run, "--json").json["waiting"] or {}
        return ["--binding", waiting.get("binding_digest", "sha256:none")]

    @property
    def by(self) -> list[str]:
        return ["--by", EXAMPLE_OPERATOR_ID, "--key", str(self.path / "keys" / f"{EXAMPLE_OPERATOR_ID}.key")]

    def request(self, name: str) -> str:
        return str(self.path / "requests" / f"{name}.json")

    def refunds(self) -> list[tuple[str, int]]:
        with closing(sqlite3.connect(self.path / "shop.db")) as books:
            return books.execute("SELECT order_id, amount_inr FROM refunds ORDER BY number").fetchall()


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "shop"
    assert run_command_line(["demo", "--yes", "--json", "--keep", str(path)]) == 0
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.delenv("CONTEXTOS_WORKSPACE", raising=False)
    monkeypatch.delenv("CONTEXTOS_DEBUG", raising=False)

    def said(*arguments: str) -> Said:
        capsys.readouterr()
        code = run_command_line(list(arguments))
        return Said(code, *capsys.readouterr())

    return said


@pytest.fixture
def shop(kept: Path, tmp_path: Path, say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> Shop:
    path = tmp_path / "shop"
    shutil.copytree(kept, path)
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", str(path))
    return Shop(path, say)


@pytest.fixture
def command() -> tuple[list[str], dict[str, str]]:
    """How the command line is started as a process of its own."""
    paths = os.pathsep.join([str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])])
    return [sys.executable, "-m", "contextos.cli"], {**os.environ, "PYTHONPATH": paths}
