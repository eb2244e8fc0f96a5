"""`examples/three_servers`: its shell runs against a real PostgreSQL, and its containers and units run the same."""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.http_face import begin_refunds
from tests.postgres import Database
from tests.processes import ended
from tests.served import Load, Served, free_port, paid, refunds
from tests.world import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "three_servers"
PORTS = ["8771", "8772", "8773"]
REQUESTS = 18
LEFT_S = 75
"""What a server takes to stop after it has drained, at most; `docs/production.md` states it."""


def served_with(line: str) -> tuple[str, int]:
    """The port and the seconds to drain of one `contextos serve`, which has no other option but its workspace."""
    words = shlex.split(line)
    assert words[0] == "serve"
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options.keys() - {"--workspace"} == {"--port", "--drain"}
    return options["--port"], int(options["--drain"])


def stated(text: str, name: str) -> str:
    """The default of a variable of the shell."""
    found = re.search(rf"\$\{{{name}:-(.*?)}}", text)
    assert found is not None
    return found[1]


def test_containers_and_units_run_what_the_shell_runs() -> None:
    shell = (EXAMPLE / "servers.sh").read_text("utf-8")
    drain = int(stated(shell, "DRAIN"))
    assert stated(shell, "PORTS").split() == PORTS
    started = re.search(r"contextos (serve .*) &", shell)
    assert started is not None
    asked = started[1].replace("$1", "8771").replace("$drain", str(drain))
    assert served_with(asked) == ("8771", drain)

    composed = yaml.safe_load((EXAMPLE / "compose.yaml").read_text("utf-8"))["services"]
    servers = [one for name, one in composed.items() if name.startswith("server-")]
    assert [served_with(shlex.join(one["command"])) for one in servers] == [(port, drain) for port in PORTS]
    for port, one in zip(PORTS, servers, strict=True):
        assert f"http://127.0.0.1:{port}/v1/health" in one["healthcheck"]["test"][-1]
        assert one["network_mode"] == "service:proxy", "it listens on the loopback alone"
        assert int(one["stop_grace_period"].removesuffix("s")) >= drain + LEFT_S

    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(EXAMPLE / "contextos@.service", "utf-8")
    program, _, line = unit["Service"]["ExecStart"].partition(" ")
    assert program.endswith("/contextos")
    assert served_with(line.replace("%i", "8771")) == ("8771", drain)
    assert int(unit["Service"]["TimeoutStopSec"]) >= drain + LEFT_S
    assert all(port in (EXAMPLE / "roll.sh").read_text("utf-8") for port in PORTS)

    proxy = (EXAMPLE / "Caddyfile").read_text("utf-8")
    assert re.findall(r"127\.0\.0\.1:(\d+)", proxy) == PORTS
    assert "health_uri /v1/ready" in proxy


def test_no_file_of_the_example_has_a_secret() -> None:
    for path in EXAMPLE.iterdir():
        assert not re.search(r"(password|token|key)\s*[:=]\s*[^\s{/]", path.read_text("utf-8"), re.IGNORECASE), path


def begun(log: Path, count: int) -> list[str]:
    """The lines of the log once so many servers of it have begun."""
    while True:
        lines = log.read_text("utf-8").splitlines()
        if sum(one.startswith("development logins") for one in lines) >= count:
            return lines
        time.sleep(0.05)


def test_the_shell_starts_three_servers_replaces_them_under_load_and_ends_them(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace, log = tmp_path / "w", tmp_path / "log"
    run(begin_refunds(workspace, store=database.app))
    ports = [free_port() for _ in PORTS]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PORTS": " ".join(map(str, ports)), "DRAIN": "1"}
    bodies = refunds(workspace, REQUESTS)

    async def replace(load: Load, shell: subprocess.Popen[bytes]) -> None:
        sending = asyncio.ensure_future(load.send_all())
        await load.until_accepted(REQUESTS // 3)
        shell.send_signal(signal.SIGHUP)
        await sending

    # A shell traps no signal that was ignored when it began, as SIGHUP is below `nohup`.
    line = ["env", "--default-signal=HUP", "sh", str(EXAMPLE / "servers.sh"), str(workspace)]
    with log.open("wb") as said, ended(subprocess.Popen(line, stdout=said, stderr=said, env=environment)) as shell:
        try:
            begun(log, 3)
            load = Load([Served(shell, port, log) for port in ports], bodies)
            run(replace(load, shell))
            begun(log, 6)
            found = run(load.ended())
        finally:
            shell.send_signal(signal.SIGTERM)
            shell.wait(120)
    told = log.read_text("utf-8")
    assert shell.returncode == 0, told
    assert len(found) == REQUESTS
    assert paid(workspace) == [100 + number for number in range(REQUESTS)]
    assert told.count("stopping: the runs in progress are released") == 6
    assert "Traceback" not in told
