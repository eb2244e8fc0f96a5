"""`ask`: ask any operation of the table, also one that has no command of its own.

Source: docs/adr/0076-operations-are-a-table.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.acting import ActKeyOption, named_actor
from contextos.cli.command_context import (
    MAX_FILE_BYTES,
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    with_context,
    with_read_context,
)
from contextos.cli.layout import folded
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.contracts.model import Model
    from contextos.service.operations.operation import Operation

_STATED: Final = ("at_us", "observed_at_us")
"""The fields for the time of a statement. `ask` fills them in with the present time."""


def ask_command(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Its name, as `contextos ops` lists it.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [FIELD=VALUE]...",
            help="What it is about, if it is about one thing, and the fields of its input. A field that is not a text "
            "takes JSON, and `FIELD=@FILE` JSON from a file.",
        ),
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="ID", help="Who asks; an operation that is signed needs it.")] = "",
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Ask one operation of the table of this workspace.

    `contextos ops OPERATION` says what it takes.
    """
    from contextos.contracts.encoding.codec import parse
    from contextos.service.acts import signer_elsewhere
    from contextos.service.operations.operation import OF_RUN, Asked
    from contextos.service.operations.table import named_operation

    asked_for = named_operation(operation)
    if asked_for.signs and not by:
        detail = f"`{asked_for.name}` is signed by who asks"
        raise InvalidInput(Problem("", "usage", detail, "name them with --by, and their key with --key"))
    actor = named_actor(by, key) if asked_for.signs else signer_elsewhere(by)
    name, fields = _sent(asked_for, words or [])

    async def ask(context: CommandContext) -> Any:
        stated = {
            one: context.deployment.ports.clock.now_us() for one in _STATED if one in asked_for.input.model_fields
        }
        sent = parse(asked_for.input, stated | fields, max_bytes=MAX_FILE_BYTES)
        named = await context.run_id(name) if asked_for.about is OF_RUN else name
        made = await asked_for.run(Asked(context.app, context.tenant_id, actor, named), sent)
        return await made.signed() if asked_for.signs else made

    answer = (with_context if asked_for.signs else with_read_context)(workspace, tenant, ask)
    if isinstance(answer, bytes):
        sys.stdout.buffer.write(answer)
        return 0
    document = answer.to_json()
    print_result(document, _lines(document), as_json=as_json)
    return 0


def _sent(operation: Operation, words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the name of the thing that the operation is about ("" if none), and the fields of its input."""
    named, given = list(words[: operation.about is not None]), words[operation.about is not None :]
    if operation.about is not None and not named:
        detail = f"`{operation.name}` lacks its `{operation.about.name}`"
        raise InvalidInput(Problem("", "usage", detail, "name it behind the operation"))
    fields = dict[str, Any]()
    for word in given:
        field, equals, text = word.partition("=")
        if not equals or field not in operation.input.model_fields or field in fields:
            detail = f"`{displayed(field)[:80]}` is not a field of `{operation.name}`, or is there twice"
            remedy = f"write each as FIELD=VALUE; `contextos ops {operation.name}` lists them"
            raise InvalidInput(Problem("", "usage", detail, remedy))
        fields[field] = _value(field, text, operation.input)
    return "".join(named), fields


def _value(field: str, text: str, model: type[Model]) -> Any:
    from contextos.contracts.encoding.codec import loads

    if text.startswith("@"):
        path = Path(text[1:])
        with about(path):
            return loads(read_file(path), max_bytes=MAX_FILE_BYTES)
    stated = model.model_json_schema()["properties"][field]
    if {one.get("type") for one in stated.get("anyOf", [stated])} <= {"string", "null"}:
        return text
    try:
        return loads(text)
    except InvalidInput:
        detail = f"`{displayed(text)[:80]}` is not a JSON value"
        remedy = "write a text in quotes and a list in brackets, or name a file: FIELD=@FILE"
        raise InvalidInput(Problem(f"/{field}", "no_json", detail, remedy)) from None


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield an answer as lines: each item of a list, or the answer itself, with its first field as the heading."""
    items = document.get("items")
    for item in items if isinstance(items, list) else [document]:
        (_, head), *rest = item.items()
        yield from folded("", _said(head))
        for name, value in rest:
            if value not in (None, "", [], {}):
                yield from folded("  ", f"{displayed(name)}: {_said(value)}")
    if isinstance(items, list):
        if not items:
            yield "there is nothing"
        if document.get("cursor"):
            yield f"more: cursor={displayed(document['cursor'])}"


def _said(value: Any) -> str:
    return displayed(value) if isinstance(value, str) else displayed_json(value)
