"""The log of the real command line: where an adapter failed and for which run, and never what the exception holds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.issuer import issuer
from tests.mcp_face import ENVIRONMENT, access_token, free_port, oauth_workspace, serve_tokens_words
from tests.processes import ended
from tests.served import serving

ROOT = Path(__file__).resolve().parents[2]
SECRET, CARD, KEY = "hunter2-of-the-vendor", "4111111111111111", "sk-live-0123456789abcdefghij"
FAILING = f'''

class VendorFault(Exception):
    """What a vendor's client raises: its message and its attributes hold what was sent."""

    def __init__(self, password):
        super().__init__(f"login with {{password}} failed for card {CARD}")
        self.password = password


def log_in(password):
    try:
        raise ValueError("{KEY}")
    except ValueError as error:
        raise VendorFault(password) from error


def adapters(workspace):
    store = Shop(Path(workspace) / FILE)

    def lookup(args, context):
        log_in("{SECRET}")

    failing = FunctionAdapter(orders(store).describe(), {{"lookup": lookup}})
    return (failing, policy(store), payments(store, "keyed", unix_us))
'''


def command(workspace: Path, *arguments: str, debug: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `contextos` in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CONTEXTOS_")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "CONTEXTOS_WORKSPACE": str(workspace)}
    if debug is not None:
        environment["CONTEXTOS_DEBUG"] = debug
    line = [sys.executable, "-m", "contextos.cli", *arguments]
    return subprocess.run(line, env=environment, text=True, capture_output=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's workspace. The adapter of the orders raises an exception of its own, with secrets in it."""
    path = tmp_path_factory.mktemp("logging") / "shop"
    made = command(path.parent, "demo", "--yes", "--json", "--keep", str(path))
    assert made.returncode == 0, made.stderr
    source, settings = path / "shop.py", path / "contextos.toml"
    source.write_text(source.read_text("utf-8") + FAILING, "utf-8")
    digest = f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}"
    settings.write_text(re.sub(r"sha256:[0-9a-f]{64}", digest, settings.read_text("utf-8")), "utf-8")
    return path


def invoke(workspace: Path, name: str, *, debug: str | None = None) -> tuple[dict[str, Any], str]:
    """The result of one request in JSON, and stderr."""
    done = command(workspace, "invoke", str(workspace / "requests" / f"{name}.json"), "--json", debug=debug)
    assert not [one for one in (SECRET, CARD, KEY) if one in done.stdout + done.stderr]
    return json.loads(done.stdout), done.stderr


def test_with_debug_the_log_names_the_run_the_capability_and_the_frames_without_secrets(workspace: Path) -> None:
    view, log = invoke(workspace, "next", debug="1")
    lines = [json.loads(line) for line in log.splitlines()]
    raised, *retries = [line for line in lines if line["message"] == "foreign code raised"]
    assert [line["tool_call"] for line in retries] == [raised["tool_call"]] * len(retries)
    assert raised["trace"] == json.loads((workspace / "requests" / "next.json").read_text())["trace"]["trace_id"]
    assert raised["level"] == "ERROR"
    assert raised["logger"] == "contextos.adapters"
    assert raised["tenant"] == "tenant_acme_prod"
    assert raised["run"] == view["run_id"]
    assert raised["capability"] == "adp_orders.lookup"
    assert raised["error"] == "VendorFault"
    traceback = raised["traceback"]
    assert traceback[0] == "VendorFault"
    frames = [line for line in traceback if "shop.py" in line]
    assert [line.rpartition(" in ")[2] for line in frames] == ["adapters.<locals>.lookup", "log_in", "log_in"]
    assert traceback[-3:-1] == ["  caused by:", "ValueError"]


def test_without_debug_there_is_no_log(workspace: Path) -> None:
    _, log = invoke(workspace, "deny")
    assert log == ""


def test_the_history_of_the_run_names_the_class_of_the_exception(workspace: Path) -> None:
    view, _ = invoke(workspace, "cancel")
    shown = command(workspace, "runs", "show", view["run_id"])
    assert shown.returncode == 0, shown.stderr
    assert "VendorFault" in shown.stdout
    assert not [one for one in (SECRET, CARD, KEY) if one in shown.stdout]


def refused(log: str) -> list[str]:
    """The messages of a server's log about refused tokens."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {line["level"] for line in lines} <= {"WARNING", "ERROR"}
    return [line["message"] for line in lines if line["logger"] == "contextos.identity"]


def test_an_operator_of_the_service_finds_a_refused_token_without_debugging(workspace: Path) -> None:
    with serving(workspace) as server:
        server.login()
        answer = httpx.get(f"{server.url}/v1/caller", headers={"Authorization": "Bearer a.b.c"}, trust_env=False)
        log = server.stop()
    assert (answer.status_code, len(refused(log))) == (401, 1), log


def test_an_operator_of_mcp_finds_a_refused_token_without_debugging(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    with issuer() as keys, log.open("wb") as out:
        words = serve_tokens_words(oauth_workspace(tmp_path / "shop", keys.url, port), port)
        command_line = [sys.executable, "-m", "contextos.cli", *words]
        with ended(subprocess.Popen(command_line, stdout=out, stderr=out, env=ENVIRONMENT)) as process:
            while b"listening" not in log.read_bytes():
                assert process.poll() is None, log.read_text("utf-8")
            said = {"Authorization": f"Bearer {access_token(port, aud='payroll')}"}
            answer = httpx.post(f"http://127.0.0.1:{port}/mcp", json={}, headers=said, trust_env=False)
    [line] = refused(log.read_text("utf-8"))
    assert answer.status_code == 401
    assert "claim aud: expected" in line
    assert "found `payroll`" in line
