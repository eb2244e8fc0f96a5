"""`ops`: print the table of operations, or the input of one operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import JsonOption
from contextos.cli.layout import folded
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed_json

if TYPE_CHECKING:
    from contextos.service.operations.operation import Operation


def ops_command(
    operation: Annotated[str, typer.Argument(metavar="[OPERATION]", help="Only this one, with its input.")] = "",
    as_json: JsonOption = False,
) -> int:
    """List what can be asked, and which roles can ask it.

    An operation marked `signed` also needs the signature of the caller; `POST …/statement` returns what they sign.
    """
    from contextos.service.operations.table import OPERATION_TABLE, named_operation

    operations = [named_operation(operation)] if operation else OPERATION_TABLE
    lines = [line for entry in operations for line in _lines(entry)]
    documents = [_document(entry) for entry in operations]
    if operation:
        schema = operations[0].input.model_json_schema()
        documents[0]["input_schema"] = schema
        lines += [line for folded_line in _fields(schema) for line in folded_line]
    print_result({"operations": documents}, lines, as_json=as_json)
    return 0


def _document(operation: Operation) -> dict[str, Any]:
    method, path = operation.address
    return {
        "name": operation.name,
        "group": operation.group,
        "summary": f"{operation.summary}.",
        "method": method,
        "path": f"/v1{path}",
        "effect": operation.effect,
        "signed": bool(operation.signs),
        "paged": operation.is_paged,
        "roles": list(operation.roles),
        "input": operation.input.__name__,
        "output": operation.output.__name__,
    }


def _lines(operation: Operation) -> Iterator[str]:
    method, path = operation.address
    yield f"{operation.name}  {method} /v1{path}{'  signed' if operation.signs else ''}"
    yield from folded("  ", f"{operation.summary}.")
    yield from folded("  ", f"roles: {', '.join(operation.roles) or 'each caller who may see the run'}")


def _fields(schema: dict[str, Any]) -> Iterator[Iterator[str]]:
    for name, field in schema.get("properties", {}).items():
        kinds = [displayed_json(kind.get("enum", kind.get("type", "any JSON"))) for kind in field.get("anyOf", [field])]
        default = f", default {displayed_json(field['default'])}" if field.get("default") not in (None, "") else ""
        required = ", required" if name in schema.get("required", ()) else default
        description = f" {field['description']}" if "description" in field else ""
        yield folded("  ", f"{name}: {' or '.join(kinds)}{required}.{description}")
