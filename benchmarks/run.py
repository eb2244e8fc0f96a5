"""Run every benchmark and print one table of the bars: `make bench`, or `python benchmarks/run.py`.

Each benchmark runs in a process of its own, so that none affects another. A missed bar does not fail: the table is a
measurement of this machine at this moment. The exit code is 1 only if a benchmark breaks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)

from benchmarks.bars import MARKS, WIDTH  # noqa: E402

BENCHMARKS = (
    "policy",
    "origins",
    "gateway",
    "floor",
    "peers",
    "kill",
    "compile",
    "replay",
    "parallel_reads",
    "sessions",
    "mcp_calls",
    "mcp_face",
    "models",
    "definitions",
    "openapi_import",
    "startup",
    "store",
    "size",
    "overload",
    "postgres",
    "waiting",
    "liveness",
    "slots",
    "search",
    "verify",
    "telemetry",
    "http_api",
    "streams",
    "console",
)


def run(name: str, *, quick: bool) -> tuple[int, list[str]]:
    """Run one benchmark and pass its output on. Returns its exit code and its lines that hold a bar."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if quick else [])]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    bars = []
    for line in process.stdout:
        print(line, end="", flush=True)
        if line.startswith(MARKS):
            bars.append(line.rstrip())
    return process.wait(), bars


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every benchmark and print one table of the bars.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: the same ratios with more noise")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(BENCHMARKS)}")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"there is no benchmark `{unknown[0]}`; choose from {', '.join(BENCHMARKS)}")
    table: list[tuple[str, str]] = []
    broken = []
    for name in options.names or BENCHMARKS:
        print(f"\n{name}", flush=True)
        code, bars = run(name, quick=options.quick)
        table += [(name, line) for line in bars]
        if code:
            broken.append(name)
    print(f"\n{'':15}{'':6}{'bar':<{WIDTH}} {'measured':>9}")
    for name, line in table:
        print(f"{name:<15}{line}")
    marks = [line[:4] for _, line in table]
    print(", ".join(f"{marks.count(mark)} {mark}" for mark in MARKS))
    for name in broken:
        print(f"broken: {name}; run `python -m benchmarks.{name}`")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
