"""The pages of the console over much: `python -m benchmarks.console`.

A tenant of 100,000 runs of which 500 wait for a person, and one run of more than 2,000 entries. Measured are the CPU of
the server's thread for each page, which no other load changes, and its bytes. A page that is read for the first time by
a process costs more: what it verifies is kept. Memory is collected as in `contextos serve`.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks import verify
from benchmarks.bars import folder, is_quick, note, report_bar
from contextos.cli.operations.worker import COLLECTED_AFTER

if TYPE_CHECKING:
    from tests.http_face import HttpFace

RUNS, QUICK = 100_000, 2_000
WAITING, QUICK_WAITING = 500, 100
CALLS, QUICK_CALLS = 220, 60
ROUNDS = 20
MOST_MS, MOST_KB = 100.0, 200.0
DEPLOYER = {"by": "ana", "tenant": "acme"}


def measure(face: HttpFace, label: str, path: str, by: str, tenant: str) -> None:
    """Report the time and the size of one page."""
    cookie, taken = face.new_cookie(by, tenant), list[float]()

    async def read() -> bytes:
        headers = {"Host": "127.0.0.1:8765", "Cookie": cookie}
        begun = time.thread_time()
        answer = await face.client.get(f"/console{path}", headers=headers)
        taken.append((time.thread_time() - begun) * 1_000)
        assert answer.status_code == 200, answer.text
        return answer.content

    page = face.call(read())
    note(f"{label}, first time", f"{taken.pop():9.2f} ms")
    for _ in range(ROUNDS):
        page = face.call(read())
    report_bar(f"{label}, p95", quantiles(taken, n=20)[-1], MOST_MS, " ms", best=min(taken))
    report_bar(f"{label}, size", len(page) / 1_000, MOST_KB, " kB")


@contextmanager
def many_runs(path: Path, runs: int, waiting: int) -> Iterator[HttpFace]:
    """A tenant of this many runs, the last of which wait for a person or were decided."""
    from tests.http_face import TENANT, http_face

    with http_face(path) as face:
        store = face.app.stores.tenant(TENANT)

        async def fill(first: int) -> None:
            numbers = range(first, min(first + verify.AT_ONCE, runs))
            await asyncio.gather(*(store.commit(verify.synthetic(number)) for number in numbers))

        with patch.object(verify, "KEYS", face.app.keys):
            for first in range(0, runs, verify.AT_ONCE):
                face.call(fill(first))
        for _ in range(waiting):
            face.waiting_run()
        for _ in range(50):
            face.send("POST", "/v1/runs", json=face.request())
        yield face


def long_run(face: HttpFace, calls: int) -> str:
    """A session of an agent that made this many calls."""
    opened = {"session": "long", "agent": "agt_deploy", "delegation": "tok_ana"}
    run = face.send("POST", "/v1/sessions", json=opened, **DEPLOYER).json()["run_id"]
    for number in range(calls):
        body = {"call_id": f"c{number}", "tool": "deploy.ci_status", "args": {"service": "checkout"}}
        answer = face.send("POST", "/v1/sessions/long/calls", json=body, **DEPLOYER)
        assert answer.status_code == 200, answer.text
    return str(run)


async def begin_long(path: Path) -> None:
    """Make a workspace whose agent may make many calls."""
    from contextos.cli.demo import templates
    from tests.http_face import begin_deploys

    copy = templates.copy_template

    def with_room(name: str, place: Path) -> None:
        copy(name, place)
        pack = place / "packs" / "deploy.yaml"
        pack.write_text(pack.read_text("utf-8") + "budget: {max_tool_calls: 1000, wall_clock_ms: 900000}\n", "utf-8")
        settings = place / "contextos.toml"
        limits = "\n[limits]\nmax_tool_calls = 1000\nwall_clock_ms = 900000\n"
        settings.write_text(settings.read_text("utf-8") + limits, "utf-8")

    with patch("tests.http_face.copy_template", with_room):
        await begin_deploys(path)


def measure_all(path: Path, runs: int, waiting: int, calls: int) -> None:
    """Report the pages over this many runs, questions and calls of one run."""
    from tests.http_face import LEAD, OPERATOR, TENANT, http_face

    with many_runs(path / "many", runs, waiting) as face:
        run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
        measure(face, f"runs, newest of {runs:,}", "/runs", OPERATOR, TENANT)
        measure(face, f"runs by state, of {runs:,}", "/runs?state=rejected", OPERATOR, TENANT)
        measure(face, f"inbox of {waiting}", "/inbox", LEAD, TENANT)
        measure(face, "a refund", f"/runs/{run}", OPERATOR, TENANT)
    with http_face(path / "long", begin_long) as face:
        run = long_run(face, calls)
        entries = len(face.call(face.app.stores.tenant("acme").read_run(run)).entries)
        measure(face, f"a run of {entries:,} entries", f"/runs/{run}", "ana", "acme")


def main() -> None:
    gc.set_threshold(*COLLECTED_AFTER)
    with folder() as path:
        measure_all(Path(path), *((QUICK, QUICK_WAITING, QUICK_CALLS) if is_quick() else (RUNS, WAITING, CALLS)))


if __name__ == "__main__":
    main()
