"""`pack expand` and `pack diff`: expand the short form of a pack, and compare two packs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    WorkspaceOption,
    about,
    read_file,
    with_authors_context,
)
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.errors import InvalidEnvelope, InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.contracts.envelopes.tool import AdapterDefinition
    from contextos.packs.expansion import Expansion

DIFFERENT = 1
"""The exit code of `pack diff` where the packs differ."""


def expand_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The short form of a pack, in YAML or JSON.")],
    origins: Annotated[
        bool, typer.Option("--origins", help="Print each field with its origin: written, default or derived.")
    ] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print the whole pack of a short form, for the tools of the workspace."""
    expansion = _expand(file, read_file(file), workspace_definitions(workspace))
    lines = [json.dumps(expansion.document, indent=2)]
    if origins:
        lines = [
            f"{origin:<8} {displayed(place)} {json.dumps(resolve_pointer(expansion.document, place))}"
            for place, origin in expansion.origins.items()
        ]
    print_result({"pack": expansion.document, "origins": expansion.origins}, lines, as_json=as_json)
    return 0


def diff_command(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="A pack, short or whole, policy, catalog or adapter file.")
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The other one.")],
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show the fields in which two packs, policies, catalogs or adapter files differ, after expansion.

    Ends with the exit code 1 if they differ.
    """
    from contextos.packs.difference import pack_changes

    (old_type, old), (new_type, new) = (whole_artifact(path, workspace) for path in (before, after))
    if old_type != new_type:
        detail = f"one is of the type `{old_type[:80]}`, and the other of `{new_type[:80]}`"
        raise InvalidInput(Problem("", "other_kind", detail, "name two packs, policies, catalogs or adapter files"))
    changes = pack_changes(old, new)
    documents, lines = [], []
    for change in changes:
        sides = {"before": change.before, "after": change.after}
        present = {name: value for name, value in sides.items() if value is not MISSING}
        documents.append({"at": change.at, **present})
        mark = "~" if len(present) == 2 else "-" if "before" in present else "+"
        lines.append(f"{mark} {displayed(change.at)}: {' -> '.join(json.dumps(value) for value in present.values())}")
    print_result({"changes": documents}, lines or ["the packs are equal"], as_json=as_json)
    return DIFFERENT if changes else 0


def workspace_definitions(workspace: Path | None) -> Mapping[str, AdapterDefinition]:
    """Return the definitions of the workspace's adapters, by id."""
    from contextos.action.foreign_code import describe_adapter

    async def operation(context: CommandContext) -> Mapping[str, AdapterDefinition]:
        adapters = context.deployment.ports.adapters(context.tenant_id)
        return {name: describe_adapter(name, adapter) for name, adapter in adapters.items()}

    return with_authors_context(workspace, None, operation)


def _expand(path: Path, raw: bytes, definitions: Mapping[str, AdapterDefinition]) -> Expansion:
    from contextos.packs.building import expand_file

    return expand_file(raw, str(path), definitions.values())


def whole_pack(path: Path, workspace: Path | None) -> Any:
    """Return a pack as one JSON document: expanded if it is a short form, and without its envelope."""
    from contextos.control.artifacts import PACK_TYPE

    payload_type, document = whole_artifact(path, workspace)
    if payload_type != PACK_TYPE:
        detail = f"`{path}` is of the type `{payload_type[:80]}` and not a pack"
        raise InvalidInput(Problem("", "not_a_pack", detail, "name a pack"))
    return document


def whole_artifact(path: Path, workspace: Path | None, *, to_sign: bool = False) -> tuple[str, Any]:
    """Return the payload type and the JSON of an artifact or an adapter file. A short form is expanded; an envelope is
    opened, and its payload type counts. With `to_sign` every fault is raised, else only a wrong form
    (`InvalidEnvelope`).
    """
    from contextos.contracts.encoding.codec import loads
    from contextos.contracts.encoding.jcs import canonical
    from contextos.contracts.encoding.yaml_text import lines_in, read_document
    from contextos.control.artifacts import ADAPTER_TYPE, PACK_TYPE, read_artifact
    from contextos.packs.checking import payload_type_of, yaml_of_models
    from contextos.trust.seal import MAX_ENVELOPE_BYTES, decode_base64
    from contextos.workspace.adapter_files import refuse_adapter_content

    raw = read_file(path)
    with about(path), lines_in(raw):
        is_json = raw.lstrip()[:1] in (b"{", b"[")
        models_document = None if is_json else yaml_of_models(raw)
        value = loads(raw, max_bytes=MAX_ENVELOPE_BYTES) if is_json else models_document or read_document(raw)
        fields = value if isinstance(value, dict) else {}
        if "name" not in fields and (is_json or models_document or not fields):
            payload_type = payload_type_of(fields)
            if "payloadType" in fields:
                payload_type, value = str(fields["payloadType"]), loads(decode_base64(fields.get("payload")))
            if payload_type is None:
                detail = "it is neither an artifact nor an adapter file"
                remedy = (
                    "name a pack, a policy bundle, a catalog, a profile or routing rules of models, or an adapter file"
                )
                raise InvalidInput(Problem("", "unknown_kind", detail, remedy))
            try:
                if payload_type == ADAPTER_TYPE:
                    refuse_adapter_content(canonical(value))
                else:
                    read_artifact(payload_type, canonical(value))
            except InvalidInput as error:
                if to_sign or isinstance(error, InvalidEnvelope):
                    raise
            return payload_type, value
    return PACK_TYPE, _expand(path, raw, workspace_definitions(workspace)).document
