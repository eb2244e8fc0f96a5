"""`kill -9` between a durable payment and its record, then two recoveries: `python -m benchmarks.kill`.

Each phase is a process of its own: start (until the run waits), approve (killed at the failpoint), recover, recover
again and, if the run then waits for a person, settle. With a payment service that knows an idempotency key, the refund
is paid once and the run completes. Without one, it is never paid twice: the run reports an unknown outcome and waits
for a person. If the peers' folder is available, its `exactly_once.py` is run for ContextOS too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, note, report_bar, skip
from benchmarks.peers import OURS, python, shared
from contextos.deployment.deployment import Deployment

AMOUNT_INR = 4200
TIMEOUT_S = 2
REQUEST = outside.request(1, AMOUNT_INR)
REQUEST_ID = REQUEST["request_id"]
ROOT = Path(__file__).resolve().parents[1]


async def phase(name: str, path: Path, *, keyed: bool) -> dict[str, Any]:
    """Run one phase in this process, and return the state of the run."""
    shop = outside.Shop(path, keyed=keyed)
    tools = refund_pack.Tools(shop, "", keyed=keyed, timeout_s=TIMEOUT_S)
    deployment = await refund_pack.open_deployment(path, tools, 0)
    if name == "start":
        run_id = (await deployment.invoke(REQUEST)).run_id
    else:
        run_id = await refund_pack.run_of(deployment, REQUEST_ID)
    if name == "approve":
        await refund_pack.approve(deployment, run_id)
    if name == "settle":
        await settle(deployment, run_id)
    if name != "start":
        done = await deployment.advance(refund_pack.TENANT, run_id)
        while done.wake_at_us:
            # Until its deadline a stopped process can still make the call, so the run asks nobody before that.
            await asyncio.sleep(max(done.wake_at_us - deployment.ports.clock.now_us(), 0) / 1e6)
            done = await deployment.advance(refund_pack.TENANT, run_id)
    view = await deployment.view(refund_pack.TENANT, run_id)
    waits_for, status = (view.waiting or {}).get("for"), (view.record or {}).get("status")
    paid = shop.payments(REQUEST_ID)
    return {"state": view.state, "waits_for": waits_for, "status": status, "payments": paid}


async def settle(deployment: Deployment, run_id: str) -> None:
    """Settle, as the operator, that the refund happened."""
    output = {"transaction_id": "txn_1", "refund_amount_inr": AMOUNT_INR, "currency": "INR"}
    await refund_pack.settle(deployment, run_id, output, ("refund:txn_1",))


def process(name: str, path: Path, *, keyed: bool, failpoint: str = "") -> tuple[int, dict[str, Any]]:
    """Run one phase in a new process. Returns its exit code and its last output."""
    command = [sys.executable, "-m", "benchmarks.kill", "--phase", name, "--dir", str(path)]
    command += ["--keyed"] if keyed else []
    environment = {**os.environ, outside.FAILPOINT: failpoint}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(done.stderr)
    lines = done.stdout.strip().splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}


def experiment(path: Path, *, keyed: bool) -> None:
    label = "keyed service" if keyed else "service without a key"
    _, paused = process("start", path, keyed=keyed)
    assert (paused["waits_for"], paused["payments"]) == ("approval", 0), paused
    killed, _ = process("approve", path, keyed=keyed, failpoint="after_payment")
    assert killed == -signal.SIGKILL, "the failpoint kills the process after the payment"
    _, first = process("recover", path, keyed=keyed)
    _, second = process("recover", path, keyed=keyed)
    assert first["payments"] >= 1, "the payment was on disk before the kill"
    report_bar(f"payments after kill -9 and two recoveries, {label}", second["payments"], 1)
    note(f"then the run, {label}", described(second))
    assert {**first, "state": ""} == {**second, "state": ""}, (first, second)
    if keyed:
        report_bar("the run completed by itself, keyed service", second["state"] == "completed", 1, at_least=True)
        return
    report_bar("it waits for a person, service without a key", second["waits_for"] == "settlement", 1, at_least=True)
    _, settled = process("settle", path, keyed=keyed)
    note("after a person settled that it happened", described(settled))


def described(found: dict[str, Any]) -> str:
    waits = f", waits for {found['waits_for']}" if found["waits_for"] else ""
    return f"{found['state']}{waits}; record {found['status']}; payments {found['payments']}"


def peer_script() -> None:
    """Run the experiment of the peers' folder with its own script."""
    script = shared() / "exactly_once.py"
    if not script.exists():
        skip("exactly_once.py of the peers", f"no `{script}`; set BENCH_PEERS")
        return
    command = [python(), str(script), str(OURS), "--python", python()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    for row in map(json.loads, done.stdout.strip().splitlines()):
        label = "keyed" if row["idempotency_key"] else "no key"
        report_bar(f"exactly_once.py of the peers, {label}: payments", row["rows_after_2nd_recover"], 1)
        note(f"exactly_once.py of the peers, {label}", json.dumps(row))
    if done.returncode:
        skip("exactly_once.py of the peers", (done.stderr.strip().splitlines() or ["no output"])[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="without the script of the peers")
    parser.add_argument("--phase", choices=("start", "approve", "recover", "settle"))
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--keyed", action="store_true")
    options = parser.parse_args()
    if options.phase:
        print(json.dumps(asyncio.run(phase(options.phase, options.dir, keyed=options.keyed))), flush=True)
        os._exit(0)  # a killed process does not clean up either
    for keyed in (True, False):
        with folder() as name:
            experiment(Path(name), keyed=keyed)
    if not options.quick:
        peer_script()


if __name__ == "__main__":
    main()
