"""`pack lint` and `schemas`: check governed artifacts before they are signed, publish the schemas of the contracts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import CommandContext, JsonOption, WorkspaceOption, read_file, with_authors_context
from contextos.cli.governance.declarations import workspace_definitions
from contextos.cli.terminal import USAGE, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import Integrity, InvalidArtifact, InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.contracts.envelopes.identity import HeldRoles
    from contextos.contracts.envelopes.pack import ContextPack
    from contextos.contracts.envelopes.tool import AdapterDefinition
    from contextos.control.artifacts import GovernedArtifact, MergedArtifacts
    from contextos.packs.expansion import Expansion

SHOWN_DRIFT = 5


@dataclass(frozen=True, slots=True)
class WorkspaceFacts:
    """What a workspace adds to lint: the definitions of its adapters; by tenant, held roles and egress lists."""

    definitions: Mapping[str, AdapterDefinition]
    roles: Mapping[str, HeldRoles]
    egress: Mapping[str, tuple[str, ...]]


def lint_command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="PACK...", help="Packs, short or whole, and the catalogs they need; signed or not."),
    ],
    adapters: Annotated[
        bool, typer.Option("--adapters", help="Check against the workspace's adapters and roles too.")
    ] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check packs, catalogs and policies before they are signed."""
    read: list[tuple[Path, Any, Expansion | None]] = []
    found: list[tuple[Path, Problem]] = []
    for path in files:
        try:
            read.append((path, *_artifact(read_file(path), workspace)))
        except InvalidInput as error:
            found += [(path, problem) for problem in error.problems]
    known = _workspace_facts(workspace, [pack for _, pack, _ in read]) if adapters else None
    for path, pack, expansion in read:
        beside = [other for at, other, _ in read if at is not path]
        problems = artifact_problems(pack, beside, known)
        found += [(path, problem) for problem in (expansion.placed(problems) if expansion else problems)]
    documents = [
        {
            "file": str(path),
            "pointer": one.pointer,
            "code": one.code,
            "detail": displayed(one.detail),
            "remedy": displayed(one.remedy),
        }
        for path, one in found
    ]
    lines = [f"{path}: {one.code} {displayed(str(one))}" for path, one in found]
    print_result(
        {"files": [str(path) for path in files], "problems": documents},
        lines or [f"{path}: fine" for path in files],
        as_json=as_json,
    )
    return USAGE if found else 0


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

    made = {file_name(name): schema_text(schema) for name, schema in published().items()}
    folder = out or Path("schemas")
    if check:
        drifted = _drift(folder, made)
        if drifted:
            more = f" and {len(drifted) - SHOWN_DRIFT} more" if len(drifted) > SHOWN_DRIFT else ""
            listed = ", ".join(f"`{name}`" for name in drifted[:SHOWN_DRIFT])
            raise Integrity(
                f"{listed}{more} in `{folder}` differs from the contracts; run `contextos schemas --out {folder}`"
            )
    elif out is not None:
        _write_all(out, made)
    print_result(
        {"schemas": sorted(made), "folder": str(folder) if check or out else None}, sorted(made), as_json=as_json
    )
    return 0


def _artifact(raw: bytes, workspace: Path | None) -> tuple[GovernedArtifact, Expansion | None]:
    """A pack, catalog or policy: bare, or in its envelope, whose signature is not asked for here. The short form of a
    pack is expanded for the tools of the workspace.
    """
    from contextos.contracts.encoding.codec import loads
    from contextos.contracts.encoding.jcs import canonical
    from contextos.control.artifacts import INTENTS_TYPE, PACK_TYPE, POLICY_TYPE, SPECS_TYPE, read_artifact
    from contextos.packs.building import expand_content
    from contextos.trust.seal import decode_base64

    value = loads(raw) if raw.lstrip()[:1] in (b"{", b"[") else None
    if value is None or (isinstance(value, dict) and "name" in value):
        expansion = expand_content(raw, workspace_definitions(workspace).values())
        return expansion.pack, expansion
    if not isinstance(value, dict):
        raise InvalidArtifact(Problem("", "not_an_object", "an artifact is a JSON object", "pass a pack or a catalog"))
    if "payloadType" in value:
        return read_artifact(str(value["payloadType"]), decode_base64(value.get("payload"))).artifact, None
    kinds = {"pack_meta": PACK_TYPE, "bundle": POLICY_TYPE, "intents": INTENTS_TYPE, "decision_specs": SPECS_TYPE}
    kind = next((kinds[field] for field in kinds if field in value), PACK_TYPE)
    return read_artifact(kind, canonical(value)).artifact, None


def artifact_problems(
    artifact: GovernedArtifact, beside: Sequence[GovernedArtifact] = (), known: WorkspaceFacts | None = None
) -> Iterator[Problem]:
    """Yield what is wrong with an artifact, alone or with those beside it and with what a workspace knows."""
    from contextos.contracts.envelopes.pack import ContextPack
    from contextos.control.artifacts import merge
    from contextos.control.lint.access import lint_access
    from contextos.control.lint.egress import lint_egress
    from contextos.control.lint.pack import lint_merged, lint_pack
    from contextos.trust.redact import SECRET_REMEDY, find_secrets

    yield from find_secrets(artifact.to_json(), SECRET_REMEDY)
    if not isinstance(artifact, ContextPack):
        return
    others = [one for one in beside if not isinstance(one, ContextPack)]
    merged = merge(artifact, others)
    if known is None:
        yield from lint_pack(artifact, None)
        yield from lint_access(merged, None, None)
    else:
        yield from lint_merged(merged, known.definitions)
        yield from lint_access(merged, known.definitions, known.roles[artifact.pack_meta.tenant])
        yield from lint_egress(merged, known.definitions, known.egress.get(artifact.pack_meta.tenant, ()))
    yield from _rules(artifact, merged, known)


def _rules(pack: ContextPack, merged: MergedArtifacts, known: WorkspaceFacts | None) -> Iterator[Problem]:
    """Problems of the policies: of each bundle alone, at its place in the pack, then of all together."""
    from contextos.control.vocabulary import pack_vocabulary
    from contextos.trust.policy.policy_set import compile_policy

    vocabulary = pack_vocabulary(pack, merged.specs, known.definitions.values() if known else None)

    reported: set[tuple[str, str]] = set()
    guards = pack.policy_layer.guardrails
    places = {bundle.bundle_id: index for index, bundle in enumerate(pack.policy_layer.policy_bundles)}
    rounds: list[tuple[str, list[Any], Any, Any]] = [
        (f"/policy_layer/policy_bundles/{places[name]}" if name in places else "", [leveled], (), ())
        for name, leveled in merged.bundles.items()
    ]
    rounds.append(("/policy_layer", list(merged.bundles.values()), guards.must_refuse, guards.must_escalate))
    for prefix, bundles, refuse, escalate in rounds:
        try:
            compile_policy(
                bundles, gates=merged.gates, must_refuse=refuse, must_escalate=escalate, vocabulary=vocabulary
            )
        except InvalidArtifact as error:
            for one in error.problems:
                if (one.code, one.detail) not in reported:
                    reported.add((one.code, one.detail))
                    yield Problem(prefix + one.pointer, one.code, one.detail, one.remedy)


def _workspace_facts(workspace: Path | None, artifacts: Sequence[GovernedArtifact]) -> WorkspaceFacts:
    from contextos.action.foreign_code import describe_adapter
    from contextos.contracts.envelopes.pack import ContextPack

    tenants = {one.pack_meta.tenant for one in artifacts if isinstance(one, ContextPack)}

    async def operation(context: CommandContext) -> WorkspaceFacts:
        ports = context.deployment.ports
        adapters = ports.adapters(context.tenant_id)
        return WorkspaceFacts(
            {name: describe_adapter(name, adapter) for name, adapter in adapters.items()},
            {tenant: await ports.directory.held_roles(tenant) for tenant in tenants},
            context.deployment.config.egress,
        )

    return with_authors_context(workspace, None, operation)


def _drift(folder: Path, made: dict[str, str]) -> list[str]:
    """Files that are missing, that differ, or that nothing makes any more."""
    if not os.path.isdir(folder):
        raise InvalidInput(Problem("", "no_directory", f"`{folder}` is no directory", "name it with --out"))
    there = {path.name for path in folder.glob("*.schema.json")}
    differ = {name for name, text in made.items() if name not in there or read_file(folder / name) != text.encode()}
    return sorted(differ | (there - made.keys()))


def _write_all(folder: Path, made: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        detail = f"`{folder}` cannot be written: {(error.strerror or str(error)).lower()}"
        raise InvalidInput(Problem("", "unwritable", detail, "name another directory")) from None
