"""The example of an agent that exports data: row limits, destinations, and a person for what is personal."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from contextos.contracts.ports.gates import Done, Refused, Waiting
from tests.examples.people import answer, install, lines_of, modules_of, opened

WAREHOUSE = "warehouse.acme.example"
MOST_LINES = 80


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("customers.db") as store:
        store.execute("CREATE TABLE customers (name, email, orders, region)")
        rows = [("Eva", "eva@acme.example", 3, "eu")] * 7 + [("Uma", "uma@acme.example", 1, "us")] * 1001
        store.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", rows)
    with modules_of("data_export", tmp_path, "export", "agent") as modules:
        yield modules


def sent() -> list[str]:
    return sorted(json.loads(one.read_text("utf-8"))["to"] for one in Path("outbox").glob("*.json"))


def test_the_user_writes_few_lines() -> None:
    assert lines_of("data_export", "export.py", "pack.yaml", "agent.py") <= MOST_LINES


def test_what_is_not_personal_goes_to_the_warehouse_and_nobody_is_asked(example: list[ModuleType]) -> None:
    export, agent = example
    with opened(export.TOOLS) as app:
        install(app, export.PACK)
        said, record = agent.export(app, "s1", ["orders"], WAREHOUSE)
        assert isinstance(said, Done)
        assert said.output == {"result": 7}
        assert record["outcome"] == "approved"
    assert sent() == [WAREHOUSE]


@pytest.mark.parametrize(("verdict", "destinations"), [("approved", ["partner.example"]), ("denied", [])])
def test_a_person_is_asked_about_personal_data(
    example: list[ModuleType], verdict: str, destinations: list[str]
) -> None:
    export, agent = example
    with opened(export.TOOLS) as app:
        install(app, export.PACK)
        waiting, _ = agent.export(app, "s2", ["name", "email"], "partner.example")
        assert isinstance(waiting, Waiting)
        assert waiting.question["required_role"] == "privacy_officer"
        assert sent() == []
        run_id = app.gate(session="s2", user="ana", token="tok_ana", agent="agt_exports").run_id
        answer(app, waiting, run_id, verdict)
        said, record = agent.export(app, "s2", ["name", "email"], "partner.example")
        assert isinstance(said, Done if verdict == "approved" else Refused)
        assert record["approvals"][0]["verdict"] == verdict
    assert sent() == destinations


@pytest.mark.parametrize(
    ("columns", "destination", "region"),
    [(["orders"], "evil.example", "eu"), (["orders"], WAREHOUSE, "us")],
    ids=["unknown destination", "too many rows"],
)
def test_what_is_denied_sends_nothing(
    example: list[ModuleType], columns: list[str], destination: str, region: str
) -> None:
    export, agent = example
    with opened(export.TOOLS) as app:
        install(app, export.PACK)
        said, record = agent.export(app, "s3", columns, destination, region)
        assert isinstance(said, Refused)
        assert record["outcome"] == "denied"
    assert sent() == []
