"""The command line's own words are true: every example runs, and every generated page is what the code says."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from contextos.cli import COMMANDS, run_command_line
from contextos.deployment import dead_letters
from contextos.workspace import open_app
from contextos.workspace.settings import Settings
from docsgen import reference
from tests.docs.pages import make_shim
from tests.modelled import sealed_models
from tests.openapi_documents import OK, document
from tests.servers.hostile_agent import hostile_agent

ROOT = Path(__file__).resolve().parents[2]

BEFORE: dict[str, list[str]] = {
    "approvals deny": ["invoke requests/deny.json"],
    "runs cancel": ["invoke requests/cancel.json"],
    "runs settle": ["invoke requests/lost.json"],
    "runs retry": ["invoke requests/dead.json"],
}
"""What has to have happened for an example, in a workspace of the demo."""

EXPECTED = {
    "invoke": 5,
    "approvals deny": 1,
    "approvals reask": 5,
    "runs settle": 1,
    "slots select": 5,
    "slots answer": 1,
    "runs retry": 5,
    "adapters release": 2,
    "models check": 1,
    "pack mine": 2,
    "pin-code": 2,
    "pack test": 2,
}
"""Exit codes other than 0: it waits for a person; it ended rejected; it asks nothing; it did not happen; nothing is in
quarantine, nothing was observed, no code was changed and nobody brought a provider of models in the demo.
"""
LAST = ("pack withdraw", "pack retire")
"""Other examples rely on what these take away."""
STAYS = ("worker", "serve")
"""They run until they are interrupted: `tests/unit/cli/operations/test_worker.py` and
`tests/e2e/test_service_page.py` start them as processes.
"""

LOSING = {"SHOP_PAYMENTS": "none", "SHOP_FAILPOINT": "lose_reply"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace of the demo, with `contextos` on the path: one example starts it as the server of an adapter."""
    path = tmp_path_factory.mktemp("docs") / "shop"
    assert run_command_line(["demo", "--yes", "--keep", str(path)]) == 0
    with pytest.MonkeyPatch.context() as patched:
        shim = make_shim(tmp_path_factory.mktemp("path") / "bin")
        patched.setenv("PATH", f"{shim}{os.pathsep}{os.environ['PATH']}")
        yield path


def example_in(help_text: str) -> str:
    head, _, example = help_text.rstrip().rpartition("\n\n  Example:\n")
    assert head, "the help ends with no example"
    return example.strip()


def fail_for_good(shop: Path) -> None:
    """A run of the workspace rests on the dead-letter list."""
    body = json.loads((shop / "requests" / "next.json").read_text().replace("5000", "4900"))
    body["request_id"] = "req_dead"
    (shop / "requests" / "dead.json").write_text(json.dumps(body))

    async def bury() -> None:
        app = await open_app(Settings.read(shop))
        await app.deployment.invoke(body)
        store = app.stores.tenant(body["tenant_id"])
        [claim] = await store.scan("requests", key="req_dead")
        run_id = json.loads(claim.body)["run_id"]
        seen = await dead_letters.journal_length(store, run_id)
        assert await dead_letters.add(store, run_id, ("bug", "its adapter is broken"), 1, seen=seen)
        app.close()

    asyncio.run(bury())


def exhaust(shop: Path, request_id: str) -> None:
    """A run of the workspace that may make one call, and needs three."""
    body = json.loads((shop / "requests" / "next.json").read_text().replace("5000", "800"))
    body["request_id"] = request_id
    body["runtime"]["max_tool_calls"] = 1
    (shop / "requests" / "short.json").write_text(json.dumps(body))
    assert run_command_line(["invoke", "requests/short.json"]) == 1


def void_question(shop: Path, request_id: str) -> None:
    """A run of the workspace asks about a refund, and another refund of the order changes what it rests on."""
    next_one = (shop / "requests" / "next.json").read_text()
    for name, amount, code in ((request_id, "4700", 5), ("req_beside", "700", 0)):
        body = json.loads(next_one.replace("5000", amount)) | {"request_id": name}
        (shop / "requests" / f"{name}.json").write_text(json.dumps(body))
        assert run_command_line(["invoke", f"requests/{name}.json"]) == code


def deploy_workspace(path: Path) -> Path:
    made = path / "deploy"
    assert run_command_line(["init", str(made)]) == 0
    by = ["--by", "otto", "--key", str(made / "keys" / "otto.key")]
    assert run_command_line(["apply", "-w", str(made), *by]) == 0
    return made


@pytest.mark.parametrize("name", [*(name for name in COMMANDS if name not in (*STAYS, *LAST)), *LAST])
def test_the_help_ends_with_an_example_that_runs(
    name: str, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.delenv("CONTEXTOS_WORKSPACE", raising=False)
    assert run_command_line([*name.split(), "--help"]) == 0
    words = shlex.split(example_in(capsys.readouterr().out))
    assert words[: 1 + len(name.split())] == ["contextos", *name.split()]
    if name == "mcp serve":
        # It needs a pack whose calls an agent chooses.
        monkeypatch.chdir(deploy_workspace(tmp_path))
    if name in ("slots serve", "mcp serve"):
        # It speaks over real file descriptors; a client that hangs up at once ends it.
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        served = [sys.executable, "-m", "contextos.cli", *words[1:]]
        assert subprocess.run(served, stdin=subprocess.DEVNULL, env=environment, check=False).returncode == 0
        return
    if "PROPOSAL" in words:
        run_command_line(["memory", "list", "--json"])
        words[words.index("PROPOSAL")] = json.loads(capsys.readouterr().out)["proposals"][0]["proposal_id"]
    if "VERSION" in words:
        run_command_line(["policies", "list", "--json"])
        words[words.index("VERSION")] = str(json.loads(capsys.readouterr().out)["version"])
    if name == "adapters add openapi":
        (shop / "shop_api.json").write_bytes(
            document({"/orders": {"get": {"operationId": "getOrder", "responses": OK}}})
        )
    if name == "adapters add a2a":
        with hostile_agent() as agent:
            words[words.index("--url") + 1] = agent.url
            assert run_command_line(words[1:]) == 0
        return
    if name == "models check":
        path, _ = sealed_models(shop, "fast")
        assert run_command_line(["pack", "publish", str(path), *words[words.index("--by") :]]) == 0
    if name == "runs retry":
        fail_for_good(shop)
    if name == "pack expand" and not Path(words[3]).exists():
        run_command_line(shlex.split(f"pack new {Path(words[3]).stem} --who support_agent"))
    if name == "approvals reask":
        void_question(shop, words[3])
        capsys.readouterr()
    if name in ("runs resolve", "runs reopen"):
        exhaust(shop, words[3])
        capsys.readouterr()
    with monkeypatch.context() as before:
        for variable, value in LOSING.items() if name == "runs settle" else ():
            before.setenv(variable, value)
        for line in BEFORE.get(name, ()):
            assert run_command_line(shlex.split(line)) == 5
    if "DIGEST" in words:
        capsys.readouterr()
        run_command_line(["runs", "show", words[3], "--json"])
        words[words.index("DIGEST")] = json.loads(capsys.readouterr().out)["waiting"]["binding_digest"]
    assert run_command_line(words[1:]) == EXPECTED.get(name, 0), capsys.readouterr().err


def test_the_generated_pages_agree_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert reference.write_reference(["--check"]) == 0, "run `python -m docsgen.reference`"


def test_a_page_that_drifted_or_is_missing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference.write_reference(["--check"]) == 3
    assert reference.write_reference([]) == 0
    assert reference.write_reference(["--check"]) == 0
    page = tmp_path / "docs" / "reference" / "errors.md"
    page.write_text(page.read_text().replace("| 3 |", "| 4 |"))
    assert reference.write_reference(["--check"]) == 3


def test_every_command_error_setting_and_transition_is_documented() -> None:
    from contextos import errors
    from contextos.runtime.state_machine import TABLE
    from contextos.workspace.settings import Settings

    pages = reference.reference_pages()
    assert all(f"\n## {name}\n" in pages["reference/cli.md"] for name in COMMANDS)
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.ContextOSError)]
    assert all(f"| `{one.__name__}` |" in pages["reference/errors.md"] for one in classes)
    assert all(
        f"| `{one.name}` |" in pages["reference/settings.md"] for one in fields(Settings) if one.name != "workspace"
    )
    rows = [f"| `{state}` | `{event}` | `{to}` |" for state, events in TABLE.items() for event, to in events.items()]
    assert all(row in pages["reference/run.md"] for row in rows)
