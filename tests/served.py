"""`contextos serve` in processes of their own: started on a stated port, with their logs in files."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.http_face import REQUESTER, TENANT
from tests.processes import ended


@dataclass
class Served:
    """One server: its process, its port, and the file of its log."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def login(self, person: str = REQUESTER, tenant: str = TENANT) -> str:
        """The development login of a person, once the server has printed it."""
        while True:
            for line in self.log.read_text("utf-8").splitlines(keepends=True):
                words = line.split()
                if line.endswith("\n") and words[:2] == [tenant, person]:
                    return words[2]
            assert self.process.poll() is None, self.log.read_text("utf-8")
            time.sleep(0.05)

    def stop(self) -> str:
        """Stop as a supervisor does, and return the log."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0, self.log.read_text("utf-8")
        return self.log.read_text("utf-8")


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(
    workspace: Path, port: int | None = None, *options: str, command: Sequence[str] = ("serve",)
) -> Iterator[Served]:
    """A server of a workspace, which may still be starting: clients that connect then wait."""
    port = free_port() if port is None else port
    log = workspace.parent / f"{command[0]}-{port}-{time.monotonic_ns()}.log"
    line = [sys.executable, "-m", "contextos.cli", *command, "--port", str(port), "-w", str(workspace), *options]
    with log.open("wb") as said, ended(subprocess.Popen(line, stderr=said, env=dict(os.environ))) as process:
        yield Served(process, port, log)


@contextmanager
def three_servers(workspace: Path) -> Iterator[list[Served]]:
    """Three servers of one workspace, which have begun to serve."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(workspace)) for _ in range(3)]
        for one in servers:
            one.login()
        yield servers
