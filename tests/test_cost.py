"""What a run costs stays at what `benchmarks/cost.toml` states, so that a dearer feature is seen when it lands."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from benchmarks import cost
from contextos.store.sqlite.stores import SqliteStore
from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace, begin_refunds, http_face
from tests.unit.service.operations.test_packs import signed
from tests.unit.service.operations.test_slots import begin_slots, chosen, waiting

ROOT = Path(__file__).parents[1]
VARY = frozenset({"opcodes", "bytes of entries"})
"""What differs by a few from one time to the next: ids sort differently, and an instant can end in a zero."""


@pytest.fixture(scope="module")
def found() -> cost.Costs:
    # Another process, since what this one has imported and traces would count.
    line = [sys.executable, "-m", "benchmarks.cost", "--json"]
    printed = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=300)
    counted: cost.Costs = json.loads(printed.stdout)
    return counted


@pytest.mark.parametrize("flow", sorted(cost.stated()))
def test_a_flow_costs_what_the_table_states(flow: str, found: cost.Costs) -> None:
    for name, most in cost.stated()[flow].items():
        if name == "opcodes" and sys.version_info[:2] != (3, 11):
            continue
        near = most // 100 if name in VARY else 0
        remedy = "make it cheaper, or write the table (`python -m benchmarks.cost --write`) and say in it for what"
        assert found[flow][name] <= most + near, f"{name} of a {flow} rose from {most:,}: {remedy}"
        assert found[flow][name] >= most - 3 * near, (
            f"{name} of a {flow} fell from {most:,}: write the table, to keep it"
        )


def test_the_table_has_every_flow(found: cost.Costs) -> None:
    assert {name: set(counts) for name, counts in found.items()} == {
        name: set(counts) for name, counts in cost.stated().items()
    }


def approval(face: HttpFace) -> tuple[str, str, dict[str, Any], str]:
    run = face.waiting_run()
    return run, f"/v1/approvals/{run}/answer", face.signed_answer(run), LEAD


def denial(face: HttpFace) -> tuple[str, str, dict[str, Any], str]:
    run = face.waiting_run()
    return run, f"/v1/approvals/{run}/answer", face.signed_answer(run, "denied"), LEAD


def settlement(face: HttpFace) -> tuple[str, str, dict[str, Any], str]:
    lost = face.request("lost")
    # Another amount is another effect.
    lost["input"]["context"]["refund_amount"] = 10 + face._made
    with patch.dict("os.environ", SHOP_FAILPOINT="lose_reply"):
        run = str(face.send("POST", "/v1/runs", json=lost).json()["run_id"])
    path = f"/v1/runs/{run}/settlement"
    body = {"happened": False, "evidence_ref": "kg:order:ord_881#snapshot_kg_1"}
    return run, path, signed(face, path, body), OPERATOR


def selection(face: HttpFace) -> tuple[str, str, dict[str, Any], str]:
    run = waiting(face)
    path = f"/v1/runs/{run}/slot"
    return run, path, signed(face, path, chosen(face, run), REQUESTER), REQUESTER


@pytest.mark.parametrize(
    ("asked", "begin", "most"),
    [
        (approval, begin_refunds, 8),
        (denial, begin_refunds, 6),
        (settlement, begin_refunds, 6),
        (selection, begin_slots, 5),
    ],
)
def test_an_answer_over_http_reads_its_run_once(
    asked: Callable[[HttpFace], tuple[str, str, dict[str, Any], str]],
    begin: Callable[[Path], Awaitable[None]],
    most: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`most`: the reads of the store in all, by the request. The engine reads the run once more, when it drives it."""
    calls: list[tuple[bool, str, Any]] = []
    answering: list[asyncio.Task[Any] | None] = []

    async def counted(name: str, call: Any, store: SqliteStore, *given: Any, **more: Any) -> Any:
        if answering:
            calls.append((asyncio.current_task() in answering, name, given[0] if given else None))
        return await call(store, *given, **more)

    for name in cost.READS:
        call = partial(counted, name, getattr(SqliteStore, name))
        monkeypatch.setattr(SqliteStore, name, lambda store, *given, _call=call, **more: _call(store, *given, **more))
    with patch.dict("os.environ", SHOP_PAYMENTS="none"), http_face(tmp_path, begin) as face:
        # The first answer of a person also states in `control` how the directory lists them.
        run, path, body, by = asked(face)
        assert face.send("POST", path, by=by, json=body).is_success
        face.ended(run)
        run, path, body, by = asked(face)
        headers = {"Authorization": f"Bearer {face.token(by)}"}

        async def answer() -> httpx.Response:
            answering.append(asyncio.current_task())
            return await face.client.post(path, json=body, headers=headers)

        sent = face.call(answer())
        assert sent.is_success, sent.text
        mine = [(name, stream) for is_mine, name, stream in calls if is_mine]
        assert [name for name, stream in mine if stream == run] == ["read_run"]
        assert len(mine) == most, mine
        assert face.ended(run)["ended"]
