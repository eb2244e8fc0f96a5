"""A workspace whose tools are those of a file, for a server of the MCP face; and the person who allows its calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import contextos
from contextos.adapters.function.loading import source_digest
from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.workspace import read_seed

TENANT, AGENT, USER, DELEGATION = "acme", "agt_deploy", "ana", "tok_ana"
SUITE_TOOLS = Path(__file__).with_name("suite_tools.py")
POLL_S = 0.1

PACK = """
name: acme.suite
version: 1.0.0
tenant: acme
who: [deployer]
approver: oncall
"""
SUITE_PACK = """
tools:
  - test_simple_text
  - test_error_handling
  - test_tool_with_progress
  - json_schema_2020_12_tool
  - greet
  - slow_compute
  - failing_job
budget: {max_tool_calls: 50, wall_clock_ms: 30000}
"""


def tools_workspace(path: Path, code: str, pack: str) -> Path:
    """A workspace with people, keys and one pack in force. `code` defines its tools as `TOOLS`."""
    WORKSPACE_TEMPLATES["deploy"](path)
    (path / "suite.py").write_text(code, "utf-8")
    (path / "packs" / "deploy.yaml").write_text(PACK + pack, "utf-8")
    adapter = {"path": "suite.py:TOOLS", "digest": source_digest("suite.py:TOOLS", root=path)}
    lines = ['unsafe = ["unsafe_local_directory", "unsafe_local_keys"]', "[[adapters]]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in adapter.items()]
    (path / "contextos.toml").write_text("\n".join([*lines, ""]), "utf-8")
    with contextos.open(path) as app:
        app.initialise(TENANT, by=contextos.Actor.with_key("otto", read_seed(path / "keys" / "otto.key")))
    return path


def session_words(workspace: Path, *more: str) -> list[str]:
    """The words after `contextos` that start a server of the session `s1`."""
    who = ["--agent", AGENT, "--user", USER, "--delegation", DELEGATION, "--session", "s1"]
    return ["mcp", "serve", "-w", str(workspace), *who, *more]


@contextmanager
def everything_is_allowed(workspace: Path) -> Iterator[None]:
    """While the block runs, the person on call allows whatever waits, soon after it is asked."""
    over, seed = threading.Event(), read_seed(workspace / "keys" / "olga.key")

    def watch() -> None:
        while not over.wait(POLL_S):
            for question in app.approvals.waiting(TENANT).items:
                question.answer(question.statement("olga", "approved").signed_with(seed))

    with contextos.open(workspace) as app:
        person = threading.Thread(target=watch)
        person.start()
        try:
            yield
        finally:
            over.set()
            person.join()
