"""`slots lint`: check how agents declare and wire their context slots, before they are published."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from contextos.cli.command_context import JsonOption, about, read_file
from contextos.cli.terminal import USAGE, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem

DOCUMENTS: Final = ("oas.json", "oas.yaml", "oas.yml")
SKIPPED: Final = frozenset({"node_modules", ".git", ".venv"})
MAX_AGENTS: Final = 1000


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
    """Check the context slots of agents and how they are wired."""
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
    documents = [
        {
            "file": str(path),
            "pointer": displayed(one.pointer),
            "code": one.code,
            "detail": displayed(one.detail),
            "remedy": displayed(one.remedy),
        }
        for path, one in found
    ]
    # The JSON document keeps the paths as they are: it escapes what is not ASCII, and a program wants to open them.
    lines = [displayed(f"{path}: {one.code} {one}") for path, one in found]
    print_result(
        {"files": [str(path) for path in agents], "problems": documents},
        lines or [displayed(f"{path}: fine") for path in agents],
        as_json=as_json,
    )
    return USAGE if found else 0


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
    from contextos.contracts.encoding.yaml_text import in_lines
    from contextos.slots.lint.oas import declared_slots
    from contextos.slots.lint.package import lint_package
    from contextos.slots.lint.wiring import lint_wiring

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
    from contextos.slots.lint.package import lint_reimport

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
    from contextos.slots.lint.components import cinatra, text_of

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
    from contextos.slots.lint.documents import read_document

    return read_document(read_file(path))
