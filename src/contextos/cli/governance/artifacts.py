"""`pack lint` and `schemas`: check governed artifacts before they are signed, publish the schemas of the contracts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import CommandContext, JsonOption, WorkspaceOption, read_file, with_authors_context
from contextos.cli.governance.declarations import workspace_definitions
from contextos.cli.terminal import USAGE, print_note, print_result, problem_document
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import Integrity, InvalidInput, InvalidSettings, Problem
from contextos.files import why_unwritten

if TYPE_CHECKING:
    from contextos.control.artifacts import GovernedArtifact
    from contextos.packs.checking import KnownHere

SHOWN_DRIFT = 5


def lint_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="PACK...", help="Packs, short or whole, and the artifacts that they name; signed or not."
        ),
    ],
    adapters: Annotated[
        bool, typer.Option("--adapters", help="Check against the workspace's adapters and roles too.")
    ] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check packs, catalogs and policies before they are signed."""
    from contextos.contracts.encoding.yaml_text import in_lines
    from contextos.packs.checking import artifact_problems, read_unsigned

    artifacts: list[tuple[Path, Any, Callable[[Iterable[Problem]], Iterable[Problem]]]] = []
    problems: list[tuple[Path, Problem]] = []
    for path in files:
        try:
            raw = read_file(path)
            artifact, expansion = read_unsigned(raw, lambda: workspace_definitions(workspace).values())
            artifacts.append((path, artifact, expansion.placed if expansion else partial(in_lines, raw=raw)))
        except InvalidSettings:
            raise
        except InvalidInput as error:
            problems += [(path, problem) for problem in error.problems]
    facts = _workspace_facts(workspace, [pack for _, pack, _ in artifacts]) if adapters and artifacts else None
    for path, pack, placed in artifacts:
        others = [other for other_path, other, _ in artifacts if other_path is not path]
        problems += [(path, problem) for problem in placed(artifact_problems(pack, others, facts))]
    documents = [{"file": str(path), **problem_document(problem)} for path, problem in problems]
    lines = [f"{path}: {problem.code} {displayed(str(problem))}" for path, problem in problems]
    if not adapters and not as_json:
        print_note("not checked: tools, roles and people of a workspace; --adapters checks against those too")
    print_result(
        {"files": [str(path) for path in files], "problems": documents},
        lines or [f"{path}: fine" for path in files],
        as_json=as_json,
    )
    return USAGE if problems else 0


def schemas_command(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the schemas to this directory.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the files in --out (or `schemas`) and write nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """List, write or check the published JSON Schemas."""
    from contextos.contracts.schemas import file_name, published, schema_text

    schemas = {file_name(name): schema_text(schema) for name, schema in published().items()}
    folder = out or Path("schemas")
    if check:
        drifted = _drift(folder, schemas)
        if drifted:
            suffix = f" and {len(drifted) - SHOWN_DRIFT} more" if len(drifted) > SHOWN_DRIFT else ""
            names = ", ".join(f"`{name}`" for name in drifted[:SHOWN_DRIFT])
            raise Integrity(
                f"{names}{suffix} in `{folder}` differs from the contracts; run `contextos schemas --out {folder}`"
            )
    elif out is not None:
        _write_all(out, schemas)
    print_result(
        {"schemas": sorted(schemas), "folder": str(folder) if check or out else None}, sorted(schemas), as_json=as_json
    )
    return 0


def _workspace_facts(workspace: Path | None, artifacts: Sequence[GovernedArtifact]) -> KnownHere:
    from contextos.control.artifacts import tenant_of
    from contextos.packs.checking import known_here

    tenants = {tenant for artifact in artifacts if (tenant := tenant_of(artifact)) is not None}

    async def operation(context: CommandContext) -> KnownHere:
        facts = await known_here(context.deployment, *sorted(tenants or context.app.tenants()))
        return replace(facts, tenants=context.app.listed_tenants() or ())

    return with_authors_context(workspace, None, operation)


def _drift(folder: Path, schemas: dict[str, str]) -> list[str]:
    """Return the names of schema files that are missing, that differ, or that no contract makes any more."""
    if not os.path.isdir(folder):
        raise InvalidInput(Problem("", "no_directory", f"`{folder}` is not a directory", "name it with --out"))
    present = {path.name for path in folder.glob("*.schema.json")}
    contents = {name: read_file(folder / name) for name in present & schemas.keys()}
    differ = {name for name, text in schemas.items() if contents.get(name) != text.encode()}
    return sorted(differ | (present - schemas.keys()))


def _write_all(folder: Path, schemas: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in schemas.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        detail = f"`{folder}` cannot be written: {why_unwritten(error)}"
        raise InvalidInput(Problem("", "unwritable", detail, "name another directory")) from None
