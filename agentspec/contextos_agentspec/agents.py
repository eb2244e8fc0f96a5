"""The agents in files and below directories: what the lint finds in each, with the file that it is in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from contextos.cli.command_context import about, read_file
from contextos.context.slots.oas import cinatra, declared_slots
from contextos.contracts.encoding.yaml_text import in_lines, read_document
from contextos.errors import InvalidInput, Problem
from contextos_agentspec.components import text_of
from contextos_agentspec.package import lint_package, lint_reimport
from contextos_agentspec.wiring import lint_wiring

DOCUMENTS: Final = ("oas.json", "oas.yaml", "oas.yml")
SKIPPED: Final = frozenset({"node_modules", ".git", ".venv"})
MAX_AGENTS: Final = 1000


def lint_agents(paths: Sequence[Path], imported: Path | None) -> tuple[list[Path], list[tuple[Path, Problem]]]:
    """Return the documents at and below `paths`, and their problems, each with the file that it is in. `imported` names
    the agents as they were imported before, if any.

    Raises:
        InvalidInput: there are more than 1,000 agents, or one of `imported` cannot be read.
    """
    agents: list[Path] = []
    found: list[tuple[Path, Problem]] = []
    for path in paths:
        below = _documents(path)
        agents += below
        if not below:
            detail = f"there is no agent below `{path}`"
            mend = f"name a document, or put it at `cinatra/{DOCUMENTS[0]}`"
            found.append((path, Problem("", "no_agent", detail, mend)))
    for agent in agents:
        found += _problems_in(agent)
    if imported is not None:
        foreign = {path for path, one in found if one.code == "not_an_agent"}
        found += _reimports([one for one in agents if one not in foreign], imported)
    return agents, found


def _documents(path: Path) -> list[Path]:
    """The document itself, or every one below a directory, in the order of their paths."""
    if not os.path.isdir(path):
        return [path]
    # A broken link is reported; a pipe is skipped, because reading it would block.
    named = (
        one for one in path.rglob("oas.*") if one.name in DOCUMENTS and (os.path.isfile(one) or not os.path.exists(one))
    )
    found = sorted(one for one in named if not SKIPPED & set(one.relative_to(path).parts))
    if len(found) > MAX_AGENTS:
        detail = f"there are more than {MAX_AGENTS} agents below `{path}`"
        raise InvalidInput(Problem("", "too_many_agents", detail, "name fewer at a time"))
    return found


def _problems_in(path: Path) -> Iterator[tuple[Path, Problem]]:
    """The problems of one agent, each with the file that it is in."""
    try:
        document = _read(path)
    except InvalidInput as error:
        yield from ((path, one) for one in error.problems)
        return
    found = lint_wiring(document)
    yield from ((path, one) for one in in_lines(found, read_file(path)))
    if any(one.code == "not_an_agent" for one in found):
        return
    package = _package(path)
    if package is not None:
        try:
            yield from ((package, one) for one in in_lines(lint_package(document, _read(package)), read_file(package)))
        except InvalidInput as error:
            yield from ((package, one) for one in error.problems)
    elif declared_slots(document).names:
        detail = "the agent declares slots and has no `package.json` to say what it depends on"
        yield path, Problem("", "no_package", detail, "put it beside the document, or beside its directory `cinatra`")


def _reimports(agents: list[Path], imported: Path) -> Iterator[tuple[Path, Problem]]:
    """The problems of importing each agent over the one of its package that was imported before."""
    earlier = {name: read for path in _documents(imported) if (name := (read := _both(path))[2])}
    compared, others = 0, list[str]()
    for agent in agents:
        try:
            document, package, name = _both(agent)
        except InvalidInput:  # reported as a fault of the agent itself
            continue
        if name not in earlier:
            others.append(f"`{name[:64]}`" if name else f"`{agent}`, which names no package")
        else:
            compared += 1
            place = _package(agent) or agent
            yield from ((place, one) for one in lint_reimport(document, package, *earlier[name][:2]))
    if others and not compared:
        detail = f"nothing was compared: `{imported}` has no agent of the package {' or '.join(others[:4])}"
        mend = "name the agents as they were imported, or leave out `--imported`"
        yield imported, Problem("", "nothing_compared", detail, mend)


def _both(path: Path) -> tuple[Any, Any, str]:
    """The document of an agent, its package, and the name of the package that either states."""
    with about(path):
        document = _read(path)
    beside = _package(path)
    package = None
    if beside is not None:
        with about(beside):
            package = _read(beside)
    stated = package.get("name") if isinstance(package, dict) else None
    own = cinatra(document).get("packageName") if isinstance(document, dict) else None
    return document, package, text_of(stated) or text_of(own)


def _package(path: Path) -> Path | None:
    """The `package.json` that goes with a document."""
    places = [path.parent, *([path.parent.parent] if path.parent.name == "cinatra" else [])]
    return next((one for place in places if os.path.isfile(one := place / "package.json")), None)


def _read(path: Path) -> Any:
    return read_document(read_file(path))
