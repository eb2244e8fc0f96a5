"""The table of the example's README, played line by line through the whole runtime."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from tests.world import EXAMPLE, TENANT, open_world, request, run

ROW = re.compile(r"\| `(ord_[a-z0-9]+)` \| ([0-9]+) \| ([a-z]+) \| (.+) \|")
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
ROWS = [(order, int(amount), end, why) for order, amount, end, why in ROW.findall(README)]
NAMED = re.compile(r"`(R_[A-Z_]+|GATE_[A-Z_]+)`")


async def played(path: Path, order: str, amount: int) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    world = await open_world(path)
    try:
        view = await world.invoke(request(amount, "req_readme", order_id=order))
        record = view.record if isinstance(view.record, dict) else view.record.to_json()
        return view.state, record, world.refunds()
    finally:
        world.close()


@pytest.mark.parametrize(("order", "amount", "end", "why"), ROWS, ids=[f"{row[0]}-{row[1]}" for row in ROWS])
def test_a_line_of_the_readme_is_what_happens(tmp_path: Path, order: str, amount: int, end: str, why: str) -> None:
    state, record, refunds = run(played(tmp_path, order, amount))
    assert state == end
    paid = [(order, amount)] if end == "completed" else []
    assert [(row["order_id"], row["amount_inr"]) for row in refunds] == paid
    shown = str([record["policy_decisions"], record["controls_active"]])
    assert all(name in shown for name in NAMED.findall(why))


def test_the_table_is_read_in_full() -> None:
    assert {end for _, _, end, _ in ROWS} == {"completed", "waiting", "refused", "escalated"}
    assert len(ROWS) == 8


def test_every_rule_and_gate_that_the_readme_names_exists() -> None:
    pack = (EXAMPLE / "pack.json").read_text(encoding="utf-8")
    assert all(f'"{name}"' in pack for name in NAMED.findall(README))


async def played_short(path: Path) -> list[Any]:
    """Refunds of INR 900, 4200 and of an order of somebody else, by the short form of the pack."""
    make_workspace(path)
    shutil.copy(EXAMPLE / "short.yaml", path / "packs" / "short.yaml")
    views = []
    async with contextos.open(path) as app:
        await app.initialise(TENANT, by=example_operator(path))
        await seed_graph(app, Workspace(path, TENANT, {}))
        for amount in (900, 4200, 100_001):
            asked = request(amount, f"req_{amount}") | {"context_pack_refs": ["support.refund@1.0.0"]}
            views.append(await app.deployment.invoke(asked))
    return views


def test_the_short_form_pays_and_asks_as_the_whole_pack_does(tmp_path: Path) -> None:
    small, large, too_large = run(played_short(tmp_path / "w"))
    assert (small.state, list(small.record["outputs"])) == ("completed", ["transaction_id"])
    assert (large.state, large.waiting["required_role"]) == ("waiting", "finance_lead")
    assert too_large.state != "completed"


async def twice(path: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    world = await open_world(path)
    try:
        views = [await world.invoke(request(2500, name)) for name in ("req_first", "req_second")]
        records = [view.record if isinstance(view.record, dict) else view.record.to_json() for view in views]
        return [record["outputs"] for record in records], world.refunds()
    finally:
        world.close()


def test_asking_twice_for_one_refund_is_one_act(tmp_path: Path) -> None:
    outputs, refunds = run(twice(tmp_path))
    assert outputs[0] == outputs[1]
    assert outputs[0]["refund_amount"] == 2500
    assert len(refunds) == 1
