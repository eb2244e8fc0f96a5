"""The agents of `examples/frameworks` over HTTP: the tools and the gate are those of `contextos serve`.

The agent is killed where it waits, and the server right after the effect; then both go on, with one effect.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import contextos
from contextos.adapters.function.loading import load_function_adapters, source_digest
from contextos.client import connect
from examples.frameworks import desk
from tests.frameworks.model_server import served
from tests.frameworks.runs import EXAMPLES, ROOT, TENANT, Ended, effects, workspace
from tests.service_process import ServiceProcess, service

pytestmark = pytest.mark.slow

REQUESTER, LEAD = "usr_771", "user_finance_lead_77"
AGENTS = ("with_openai", "with_anthropic", "with_pydantic_ai", "with_langgraph", "with_openai_agents")
ENTRY = "desk_tools.py:TOOLS"
TOOLS = "from examples.frameworks.desk import decorated\n\nTOOLS = decorated()\n"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace whose settings have the tools of the desk, and whose pack is pinned; and a model for the SDKs."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = workspace(tmp_path / "desk")
    (made / "desk_tools.py").write_text(
        "from examples.frameworks.desk import decorated\n\nTOOLS = decorated()\n", "utf-8"
    )
    digest = source_digest(ENTRY, root=made)
    toml = made / "contextos.toml"
    toml.write_text(
        f'lease_ttl_s = 2\n{toml.read_text("utf-8")}\n[[adapters]]\npath = "{ENTRY}"\ndigest = "{digest}"\n', "utf-8"
    )
    [deploy] = load_function_adapters(ENTRY, digest, root=made).adapters

    async def publish() -> None:
        async with contextos.open(made) as app:
            await desk.publish(app, deploy, made)  # type: ignore[arg-type]

    asyncio.run(publish())
    with served([[(name, args, f"call_{number}")] for number, (name, args) in enumerate(desk.CALLS)]) as url:
        for sdk in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{sdk}_BASE_URL", url)
            monkeypatch.setenv(f"{sdk}_API_KEY", "sk-scripted")
        yield made


def step(module: str, directory: Path, server: ServiceProcess, dies: str = "") -> Ended:
    """Run the agent in a process of its own, which knows the server and nothing of the workspace's store."""
    environment = {
        **os.environ,
        "DESK_DIES": dies,
        "CONTEXTOS_URL": server.url,
        "CONTEXTOS_TOKEN": server.tokens[REQUESTER],
    }
    agent_files = directory.parent / "agent"
    agent_files.mkdir(exist_ok=True)
    command = [sys.executable, "-W", "error", "-m", "tests.frameworks.runs", f"{EXAMPLES}.{module}", str(agent_files)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    return Ended(ended.returncode, (ended.stdout or ended.stderr).strip())


def approve(directory: Path, server: ServiceProcess) -> str:
    """The finance lead signs the answer to the only question; return the run."""
    key = bytes.fromhex((directory / "keys" / f"{LEAD}.key").read_text("utf-8"))
    with connect(server.url, server.tokens[LEAD]) as client:
        [question] = client.questions().items
        return str(client.answer(question, "approved", sign=Ed25519PrivateKey.from_private_bytes(key).sign).run_id)


@pytest.mark.parametrize("module", AGENTS)
def test_an_agent_over_http_goes_on_with_one_effect_whatever_is_killed(module: str, directory: Path) -> None:
    books = str(directory / "books.log")
    with service(directory, TENANT, REQUESTER, LEAD, DESK_BOOKS=books, DESK_DIES="after_effect") as server:
        waited = step(module, directory, server, dies="waiting")
        assert waited.exit == -signal.SIGKILL, waited.said
        assert effects(directory) == []
        run = approve(directory, server)
        # The server makes the call that was approved, and dies with the effect.
        assert server.process.wait(60) == -signal.SIGKILL
    assert effects(directory) == ["api prod"]
    with service(directory, TENANT, REQUESTER, LEAD, DESK_BOOKS=books) as server:
        gone_on = step(module, directory, server)
        assert gone_on == Ended(0, f"finished completed {run}")
        with connect(server.url, server.tokens[REQUESTER]) as client:
            record = client.record(run)
        assert [one.state for one in record.effects] == ["happened"]
        assert [one.approver for one in record.approvals] == [LEAD]
    assert effects(directory) == ["api prod"]


def test_a_server_that_dies_under_a_call_is_asked_again_for_the_same_call(directory: Path) -> None:
    books = str(directory / "books.log")
    where = {"service": "api", "env": "prod"}
    with (
        service(directory, TENANT, REQUESTER, LEAD, DESK_BOOKS=books) as server,
        connect(server.url, server.tokens[REQUESTER]) as client,
    ):
        gate = client.gate(session="thread_1", agent=desk.AGENT, delegation="tok_usr_771", intent="acme.deploy")
        gate.call("deploy.ci_status", {"service": "api"}, call_id="ci")
        assert gate.call("deploy.rollback", where, call_id="back").waits_for == "approval"
        port = server.url.rpartition(":")[2]
        server.process.kill()
        server.process.wait(60)
        # The same client, the same gate: another process at the same address has the answer.
        with service(directory, TENANT, REQUESTER, LEAD, port=port, DESK_BOOKS=books) as again:
            approve(directory, again)
            done = gate.call("deploy.rollback", where, call_id="back", wait_s=30)
            assert done == gate.call("deploy.rollback", where, call_id="back")
            assert done.output == {"result": "api in prod is back"}
            assert gate.finish("approved").ended
    assert effects(directory) == ["api prod"]
