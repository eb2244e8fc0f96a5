"""`ops`: print the table of operations."""

from __future__ import annotations

from contextos.cli.command_context import JsonOption
from contextos.cli.layout import folded
from contextos.cli.terminal import print_result


def ops_command(as_json: JsonOption = False) -> int:
    """List what a service can be asked, and which roles can ask it.

    An operation marked `signed` also needs the signature of the caller; `POST …/statement` returns what they sign.
    """
    from contextos.service.operations.table import OPERATION_TABLE

    documents, lines = list[dict[str, object]](), list[str]()
    for operation in OPERATION_TABLE:
        method, path = operation.address
        summary = f"{operation.summary}."
        documents.append(
            {
                "name": operation.name,
                "group": operation.group,
                "summary": summary,
                "method": method,
                "path": f"/v1{path}",
                "effect": operation.effect,
                "signed": bool(operation.signs),
                "paged": operation.is_paged,
                "roles": list(operation.roles),
                "input": operation.input.__name__,
                "output": operation.output.__name__,
            }
        )
        lines += [f"{operation.name}  {method} /v1{path}{'  signed' if operation.signs else ''}"]
        lines += folded("  ", summary)
        lines += folded("  ", f"roles: {', '.join(operation.roles)}")
    print_result({"operations": documents}, lines, as_json=as_json)
    return 0
