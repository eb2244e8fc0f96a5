"""The refund over HTTP, beside the same refund in the process and beside the servers of others: `python -m
benchmarks.http_api`.

Each server is a process of its own, and so is the embedded store of ours. Clients hold their connections open and use
no library. In the process means `Deployment.invoke`, in this process and over another store. Rounds alternate, and the
bars apply to the median of the ratios of each round. The peers need an interpreter with their libraries
(`BENCH_PYTHON`) and the peers' folder (`BENCH_PEERS`): LangGraph is `langgraph dev` with its store in memory, DBOS is
behind FastAPI. A peer that is missing is named and left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from benchmarks import outside
from benchmarks.bars import folder, is_quick, note, ratio, report_bar, skip
from benchmarks.http_server import open_app, running
from benchmarks.peers import python, shared

AT_ONCE = 16
AMOUNT = 900
HERE = Path(__file__).resolve().parent
LONGEST_START_S = 120


class Measured(NamedTuple):
    """The runs of one round: milliseconds of each, and runs a second."""

    ms: list[float]
    rate: float

    @property
    def p50(self) -> float:
        return median(self.ms)

    @property
    def p99(self) -> float:
        return quantiles(self.ms, n=100)[-1]


Send = Callable[[HTTPConnection, dict[str, Any]], None]


class Client:
    """Sends refunds to one server, over one connection for each thread."""

    def __init__(self, port: int, send: Send) -> None:
        self._port, self._send, self._number = port, send, 0

    def measure(self, runs: int, at_once: int) -> Measured:
        bodies = [outside.request(self._number + number, AMOUNT) for number in range(runs)]
        self._number += runs
        share = [bodies[number::at_once] for number in range(at_once)]
        start = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            ms = [one for each in pool.map(self._send_all, share) for one in each]
        return Measured(ms, runs / (time.perf_counter() - start))

    def _send_all(self, bodies: list[dict[str, Any]]) -> list[float]:
        connection, ms = HTTPConnection("127.0.0.1", self._port, timeout=60), []
        connection.connect()
        for body in bodies:
            start = time.perf_counter()
            self._send(connection, body)
            ms.append((time.perf_counter() - start) * 1e3)
        connection.close()
        return ms


def exchanged(connection: HTTPConnection, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    """Post JSON and return the JSON of the answer."""
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    text = answer.read()
    assert 200 <= answer.status < 300, (answer.status, text[:500])
    return json.loads(text)


def to_contextos(token: str) -> Send:
    def send(connection: HTTPConnection, body: dict[str, Any]) -> None:
        record = exchanged(
            connection, "/v1/runs", body, {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        )["record"]
        assert record["outputs"]["refund_amount"] == AMOUNT, record

    return send


def to_dbos(connection: HTTPConnection, body: dict[str, Any]) -> None:
    assert exchanged(connection, "/refunds", body)["outputs"]["refund_amount"] == AMOUNT


def to_langgraph(connection: HTTPConnection, body: dict[str, Any]) -> None:
    """One thread a refund, as its approval needs one; the server makes it with the run."""
    thread = exchanged(connection, "/threads", {})["thread_id"]
    asked = {"assistant_id": "refund", "input": {"request": body}, "durability": "sync"}
    record = exchanged(connection, f"/threads/{thread}/runs/wait", asked)["record"]
    assert record["outputs"]["refund_amount"] == AMOUNT, record


@contextmanager
def process(command: list[str], **environment: str) -> Iterator[dict[str, Any]]:
    """Run a server, and give what its first line says."""
    with subprocess.Popen(
        command, cwd=HERE.parent, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line:
                raise OSError(f"`{command[1]}` does not start")
            yield {"pid": server.pid, **json.loads(line)}
        finally:
            server.terminate()
            server.wait(60)


@contextmanager
def langgraph(path: Path) -> Iterator[int]:
    """Run `langgraph dev` over a folder, and give its port once it answers."""
    port = free_port()
    (path / "langgraph.json").write_text(
        json.dumps({"dependencies": ["."], "graphs": {"refund": f"{HERE / 'http_peer_langgraph.py'}:graph"}}), "utf-8"
    )
    program = Path(python()).with_name("langgraph")
    command = [str(program), "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", str(port)]
    environment = {
        **os.environ,
        "BENCH_FOLDER": str(path),
        "BENCH_PEERS": str(shared()),
        "LANGSMITH_TRACING": "false",
        "N_JOBS_PER_WORKER": str(AT_ONCE),
        "BG_JOB_ISOLATED_LOOPS": "true",
    }
    with subprocess.Popen(
        command, cwd=path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            if not is_live(server, port, "/ok", LONGEST_START_S):
                raise OSError("`langgraph dev` does not start")
            yield port
        finally:
            server.terminate()
            server.wait(60)


def is_live(server: subprocess.Popen[bytes], port: int, path: str, limit_s: float) -> bool:
    """Return whether a server answers with 200 at a path within `limit_s` seconds, and before it ends."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError):
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return True
        time.sleep(0.2)
    return False


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


class InProcess:
    """Sends refunds to a deployment in this process."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._number = loop, 0
        self._running = running(loop.run_until_complete(open_app(path)))
        self._app = loop.run_until_complete(self._running.__aenter__())

    def measure(self, runs: int, at_once: int) -> Measured:
        bodies = [outside.request(self._number + number, AMOUNT) for number in range(runs)]
        self._number += runs

        async def send_all(mine: list[dict[str, Any]]) -> list[float]:
            ms = []
            for body in mine:
                start = time.perf_counter()
                view = await self._app.deployment.invoke(body)
                ms.append((time.perf_counter() - start) * 1e3)
                assert view.state == "completed", view
            return ms

        async def every() -> list[list[float]]:
            return await asyncio.gather(*(send_all(bodies[number::at_once]) for number in range(at_once)))

        start = time.perf_counter()
        ms = [one for each in self._loop.run_until_complete(every()) for one in each]
        return Measured(ms, runs / (time.perf_counter() - start))

    def close(self) -> None:
        self._loop.run_until_complete(self._running.__aexit__(None, None, None))
        self._loop.close()


def report_ours(http: dict[int, list[Measured]], process_: dict[int, list[Measured]]) -> None:
    """Print the bars of HTTP beside the process."""
    pairs = zip(http[AT_ONCE], process_[AT_ONCE], strict=True)
    rates = [ours.rate / other.rate for ours, other in pairs]
    best = max(one.rate for one in http[AT_ONCE]) / max(one.rate for one in process_[AT_ONCE])
    report_bar("refund over HTTP / in the process, runs/s, 16 at once", median(rates), 0.6, best=best, at_least=True)
    spread = [one.p99 / one.p50 for one in http[AT_ONCE]]
    report_bar("refund over HTTP, p99 / p50, 16 at once", median(spread), 5, best=min(spread))
    edge = [ours.p50 - other.p50 for ours, other in zip(http[1], process_[1], strict=True)]
    against = [one.p50 for one in process_[1]]
    report_bar("refund over HTTP beyond in the process, p50", median(edge), 2, " ms", best=min(edge), against=against)


def report_peer(name: str, http: dict[int, list[Measured]], peer: dict[int, list[Measured]]) -> None:
    """Print the bars of our server beside another one."""
    middle, best = ratio([one.p50 for one in peer[1]], [one.p50 for one in http[1]])
    report_bar(f"refund over HTTP: {name} / contextos, p50", middle, 1, best=best, at_least=True)
    middle, best = ratio([one.rate for one in http[AT_ONCE]], [one.rate for one in peer[AT_ONCE]])
    report_bar(f"refund over HTTP: contextos / {name}, runs/s, 16 at once", middle, 1, best=best, at_least=True)


def absolutes(name: str, of: dict[int, list[Measured]]) -> None:
    one, many = of[1], of[AT_ONCE]
    text = f"p50 {median(each.p50 for each in one):7.2f} ms, p99 {median(each.p99 for each in one):7.2f} ms;"
    at_once = f"{median(each.rate for each in many):6.0f} runs/s, p50 {median(each.p50 for each in many):7.2f} ms"
    note(f"{name}, one by one; {AT_ONCE} at once", f"{text} {at_once}")


def peers(path: Path, stack: ExitStack) -> dict[str, Client]:
    """Start the servers of others."""
    found: dict[str, Client] = {}
    for name in ("dbos", "langgraph"):
        home = path / name
        home.mkdir()
        label = f"refund over HTTP: {name} / contextos"
        if not (shared() / f"peer_{name}.py").exists():
            skip(label, f"no `peer_{name}.py` in `{shared()}`; set BENCH_PEERS")
            continue
        try:
            if name == "dbos":
                server = process([python(), str(HERE / "http_peer_dbos.py"), str(home)], BENCH_PEERS=str(shared()))
                found[name] = Client(stack.enter_context(server)["port"], to_dbos)
            else:
                found[name] = Client(stack.enter_context(langgraph(home)), to_langgraph)
        except OSError as missing:
            skip(label, f"{missing}; set BENCH_PYTHON to an interpreter that has it")
    return found


def measure(path: Path, rounds: int, runs: int) -> None:
    """Measure so many rounds, after one that does not count. Of the runs of a round, fewer are sent one by one."""
    with ExitStack() as stack:
        for one in ("http", "process"):
            (path / one).mkdir()
        served = stack.enter_context(process([sys.executable, "-m", "benchmarks.http_server", str(path / "http")]))
        here = InProcess(path / "process", asyncio.new_event_loop())
        stack.callback(here.close)
        others: dict[str, Any] = {"contextos": Client(served["port"], to_contextos(served["token"])), "process": here}
        others |= peers(path, stack)
        found: dict[str, dict[int, list[Measured]]] = {one: {1: [], AT_ONCE: []} for one in others}
        for number in range(rounds + 1):
            for one, client in others.items():
                # `langgraph dev` takes a second for a run.
                alone = runs // 30 if one == "langgraph" else runs // 3
                for at_once, count in ((1, alone), (AT_ONCE, runs)):
                    measured = client.measure(max(count, 2), at_once)
                    if number:
                        found[one][at_once].append(measured)
        report_ours(found["contextos"], found["process"])
        for one in others:
            if one not in ("contextos", "process"):
                report_peer(one, found["contextos"], found[one])
        for one in others:
            absolutes(one, found[one])
        note("the load of the machine", f"{os.getloadavg()[0]:9.1f}")


def main() -> None:
    with folder() as name:
        measure(Path(name), *((3, 100) if is_quick() else (7, 300)))


if __name__ == "__main__":
    main()
