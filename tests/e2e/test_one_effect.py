"""Three processes with a hundred callers each and one idempotency key: one effect, and one answer to all.

Over a file each caller is a thread with an event loop of its own; PostgreSQL has connections per event loop, so there
a process has four of them. One storm runs there by default and the others with the soak runs.

Source: contracts.md, "idempotency key" and "Same `request_id`".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from contextos.audit import verify
from contextos.contracts.encoding.codec import loads
from contextos.store.shared.clock import SystemClock
from tests.world import TENANT, open_world, place_of, publish_world, request, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROCESSES, CALLERS = 3, 100
LOOPS = {"sqlite": 100}
PATIENCE_S = 120

Answer = dict[str, Any]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    if request.param == "postgresql":
        (made / "place").write_text(request.getfixturevalue("database").app)
    run(publish_world(made))
    return made


def start(plan: Path, out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.race_driver", str(plan), str(out)],
        cwd=ROOT,
        text=True,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )


def race(
    workspace: Path, bodies: list[list[dict[str, Any]]], *, slow_ms: int = 0, identity_args: list[str] | None = None
) -> list[Answer]:
    """Every list of bodies in a process of its own, all started together; the answer to each body."""
    folder = workspace.parent
    outs, processes = [], []
    for number, part in enumerate(bodies):
        plan, out = folder / f"plan{number}.json", folder / f"out{number}.json"
        plan.write_text(
            json.dumps(
                {
                    "workspace": str(workspace),
                    "bodies": part,
                    "slow_ms": slow_ms,
                    "identity_args": identity_args,
                    "loops": LOOPS.get(place_of(workspace), 4),
                }
            ),
            "utf-8",
        )
        processes.append(start(plan, out))
        outs.append(out)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not all((folder / f"{out.name}.ready").exists() for out in outs):
            assert all(one.poll() is None for one in processes), [one.communicate() for one in processes]
            assert time.monotonic() < deadline, "the processes do not start"
            time.sleep(0.01)
        (folder / "go").touch()
        for process in processes:
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [answer for out in outs for answer in json.loads(out.read_text("utf-8"))]


async def settled(workspace: Path) -> tuple[list[dict[str, Any]], list[verify.VerifiedStream]]:
    """The shop's refunds and the verified streams, as a fresh process finds them."""
    world = await open_world(workspace, stores=place_of(workspace), clock=SystemClock())
    try:
        return world.refunds(), await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    finally:
        await world.aclose()


def runs(streams: list[verify.VerifiedStream]) -> list[verify.VerifiedStream]:
    return [one for one in streams if one.stream.startswith("run_")]


def asked_for(bodies: list[list[dict[str, Any]]]) -> list[int]:
    """The amount of every body, in the order of the answers."""
    return [body["input"]["context"]["refund_amount"] for part in bodies for body in part]


def test_one_request_from_three_hundred_callers_is_one_refund_and_the_same_bytes_to_all(workspace: Path) -> None:
    body = request(900, "req_same")
    answers = race(workspace, [[body] * CALLERS] * PROCESSES)
    refunds, streams = run(settled(workspace))
    assert len(refunds) == 1
    assert {answer["state"] for answer in answers} == {"completed"}
    assert len({answer["record"] for answer in answers}) == 1
    assert [(one.stream, one.ended) for one in runs(streams)] == [(answers[0]["run_id"], True)]


def test_one_act_in_three_hundred_requests_is_one_refund_and_its_output_to_all(workspace: Path) -> None:
    bodies = [[request(900, f"req_{process}_{caller}") for caller in range(CALLERS)] for process in range(PROCESSES)]
    answers = race(workspace, bodies)
    refunds, streams = run(settled(workspace))
    assert len(refunds) == 1
    assert {answer["state"] for answer in answers} == {"completed"}
    outputs = [loads(answer["record"].encode())["outputs"] for answer in answers]
    assert all(output == outputs[0] for output in outputs)
    assert outputs[0]["transaction_id"] == refunds[0]["transaction_id"]
    assert len({answer["run_id"] for answer in answers}) == PROCESSES * CALLERS
    assert len(runs(streams)) == PROCESSES * CALLERS
    assert all(one.ended for one in runs(streams))


def test_callers_of_a_slow_effect_wait_or_get_a_retry_time_and_all_get_the_same_bytes(workspace: Path) -> None:
    """Slower than another process waits for a run that it does not drive, so that some get `Unavailable` first."""
    body = request(900, "req_same")
    # On a server each look at a run takes longer, and so does a process that waits for another's.
    slow_ms = 1_500 if place_of(workspace) == "sqlite" else 6_000
    answers = race(workspace, [[body] * 10] * PROCESSES, slow_ms=slow_ms)
    refunds, streams = run(settled(workspace))
    assert len(refunds) == 1
    assert {answer["state"] for answer in answers} == {"completed"}
    assert len({answer["record"] for answer in answers}) == 1
    assert any(answer["tries"] for answer in answers)
    assert len(runs(streams)) == 1


@pytest.mark.parametrize("workspace", ["sqlite", "postgresql"], indirect=True)
def test_one_request_id_with_two_bodies_has_one_effect_and_the_other_body_is_refused(workspace: Path) -> None:
    amounts = (900, 950)
    bodies = [[request(amounts[caller % 2], "req_same") for caller in range(20)] for _ in range(PROCESSES)]
    answers = race(workspace, bodies)
    refunds, streams = run(settled(workspace))
    assert len(refunds) == 1
    paid = refunds[0]["amount_inr"]
    states: dict[int, set[str]] = {amount: set() for amount in amounts}
    for answer, amount in zip(answers, asked_for(bodies), strict=True):
        states[amount].add(answer.get("state") or answer["error"])
    assert states.pop(paid) == {"completed"}
    assert list(states.values()) == [{"conflicting_request"}]
    assert len({answer["record"] for answer in answers if "record" in answer}) == 1
    assert len(runs(streams)) == 1


def test_one_idempotency_key_with_other_arguments_is_refused_by_the_gateway(workspace: Path) -> None:
    amounts = (900, 950)
    bodies = [[request(amounts[caller % 2], f"req_{one}_{caller}") for caller in range(10)] for one in range(PROCESSES)]
    answers = race(workspace, bodies, identity_args=["order_id"])
    refunds, streams = run(settled(workspace))
    assert len(refunds) == 1
    paid = refunds[0]["amount_inr"]
    for answer, amount in zip(answers, asked_for(bodies), strict=True):
        record = loads(answer["record"].encode())
        if amount == paid:
            assert (answer["state"], record["outputs"]["transaction_id"]) == ("completed", refunds[0]["transaction_id"])
        else:
            assert answer["state"] != "completed"
            assert record["outputs"] == {}
            assert b"idempotency_conflict" in answer["record"].encode()
    assert len(runs(streams)) == len(answers)
    assert all(one.ended for one in runs(streams))
