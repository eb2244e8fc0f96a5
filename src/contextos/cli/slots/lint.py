"""`slots lint` and `slots agent`: check agents in Open Agent Spec before they are published, and print the selection
agent. The distribution `contextos-agentspec` holds what both need.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from contextos.cli.command_context import JsonOption
from contextos.cli.terminal import USAGE, print_result, problem_document
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidSettings, Problem


def slots_lint_command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="An Open Agent Spec document (JSON or YAML), or a directory of agents."),
    ],
    imported: Annotated[
        Path | None,
        typer.Option(
            "--imported", metavar="PATH", help="The agents as they were imported: what changed needs a higher version."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check the context slots of agents and how they are wired.

    Needs the distribution `contextos-agentspec`.
    """
    with _require_agentspec():
        from contextos_agentspec.agents import lint_agents

    agents, problems = lint_agents(paths, imported)
    documents = [
        {"file": str(path), **problem_document(problem), "pointer": displayed(problem.pointer)}
        for path, problem in problems
    ]
    # The JSON document keeps the paths as they are: it escapes what is not ASCII, and a program wants to open them.
    lines = [displayed(f"{path}: {problem.code} {problem}") for path, problem in problems]
    print_result(
        {"files": [str(path) for path in agents], "problems": documents},
        lines or [displayed(f"{path}: fine") for path in agents],
        as_json=as_json,
    )
    return USAGE if problems else 0


def slots_agent_command(as_json: JsonOption = False) -> int:
    """Print the selection agent, an Open Agent Spec flow.

    Needs the distribution `contextos-agentspec`.
    """
    with _require_agentspec():
        flow = files("contextos_agentspec").joinpath("selection_agent.json").read_text("utf-8")
    print_result(json.loads(flow), flow.splitlines(), as_json=as_json)
    return 0


@contextmanager
def _require_agentspec() -> Iterator[None]:
    """Return a context in which a module that is not installed is an `InvalidSettings` that says what to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "contextos_agentspec":
            raise
        detail = "`contextos-agentspec` is not installed"
        remedy = "install the folder `agentspec` of the source: `pip install ./agentspec`"
        raise InvalidSettings(Problem("", "missing_extra", detail, remedy)) from None
