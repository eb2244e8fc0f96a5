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

    listed = [named_operation(operation)] if operation else OPERATION_TABLE
    lines = [line for one in listed for line in _lines(one)]
    documents = [_document(one) for one in listed]
    if operation:
        schema = listed[0].input.model_json_schema()
        documents[0]["input_schema"] = schema
        lines += [line for one in _fields(schema) for line in one]
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
    for name, stated in schema.get("properties", {}).items():
        kinds = [displayed_json(one.get("enum", one.get("type", "any JSON"))) for one in stated.get("anyOf", [stated])]
        default = f", default {displayed_json(stated['default'])}" if stated.get("default") not in (None, "") else ""
        required = ", required" if name in schema.get("required", ()) else default
        about_it = f" {stated['description']}" if "description" in stated else ""
        yield folded("  ", f"{name}: {' or '.join(kinds)}{required}.{about_it}")
