"""`contextos serve` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ended


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A server: its process, its URL without `/v1`, and the development token of each person who was asked for."""

    process: subprocess.Popen[bytes]
    url: str
    tokens: Mapping[str, str]


@contextmanager
def service(
    workspace: Path, tenant: str, *people: str, port: str = "0", **environment: str
) -> Iterator[ServiceProcess]:
    """Serve a workspace until the context is left. `environment` is added to that of this process."""
    command = [sys.executable, "-m", "contextos.cli", "serve", "--port", port, "-w", str(workspace)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, **environment})
    with ended(started) as process:
        assert process.stderr is not None
        url, tokens = "", {}
        while not set(people) <= tokens.keys():
            line = process.stderr.readline().decode()
            assert line, "the server ended before it served"
            words = line.split()
            if words[0] == "serving":
                url = words[1].removesuffix(";").removesuffix("/v1")
            elif words[0] == tenant:
                tokens[words[1]] = words[2]
        yield ServiceProcess(process, url, tokens)
