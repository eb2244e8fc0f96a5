"""The CPU of a refund with telemetry on beside off: `python -m benchmarks.telemetry`.

On means every signal: the refund has an effect, so its whole trace is exported, with its events and metrics, over OTLP
to a receiver in another process that reads and drops them. The two deployments take turns in one process, and what the
exporting threads use is counted: each block of runs ends when its spans and events were sent. Metrics are sent once a
minute, as by default.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, note, ratio, report_bar
from benchmarks.floor import CASES, governed
from contextos.deployment.deployment import Deployment
from contextos.telemetry.exporter import Telemetry, otlp

BLOCK = 100
BAR = 1.05
RECEIVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *given):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def receiver() -> Iterator[str]:
    """Run a receiver in a process of its own, and give its URL."""
    with subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def block(deployment: Deployment, telemetry: Telemetry | None, first: int, amount: int) -> float:
    """Return the CPU milliseconds of one run, over a block of runs and their export."""
    start = outside.cpu_ns()
    for number in range(first, first + BLOCK):
        await governed(deployment, outside.request(number, amount))
    if telemetry is not None:
        telemetry.flush()
    return (outside.cpu_ns() - start) / 1e6 / BLOCK


async def measure(path: Path, url: str, rounds: int) -> None:
    (path / "on").mkdir()
    (path / "off").mkdir()
    shops = [outside.Shop(path / name, keyed=True) for name in ("on", "off")]
    on, off = [
        await refund_pack.open_deployment(path / name, refund_pack.Tools(shop, "", keyed=True), 0)
        for name, shop in zip(("on", "off"), shops, strict=True)
    ]
    telemetry = Telemetry(otlp(url))
    on.ports = replace(on.ports, telemetry=telemetry)
    for place, (case, amount) in enumerate(CASES.items()):
        ours, theirs = [], []
        for number in range(rounds + 1):
            first = (place * (rounds + 1) + number) * BLOCK
            ours.append(await block(on, telemetry, first, amount))
            theirs.append(await block(off, None, first, amount))
        middle, best = ratio(ours[1:], theirs[1:])
        report_bar(f"CPU of a refund, telemetry on / off, {case}", middle, BAR, best=best, against=theirs[1:])
        note(f"CPU of a refund ({case}), on, off, p50", f"{median(ours[1:]):9.2f} ms, {median(theirs[1:]):.2f} ms")
    telemetry.close()
    for deployment in (on, off):
        outside.close(deployment)
    for shop in shops:
        shop.close()


def main() -> None:
    with folder() as name, receiver() as url:
        asyncio.run(measure(Path(name), url, 5 if is_quick() else 20))


if __name__ == "__main__":
    main()
