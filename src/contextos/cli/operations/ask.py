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
    document_of,
    exit_code_of,
    read_file,
    usage_error,
    with_context,
    with_read_context,
    with_unchecked_context,
)
from contextos.cli.layout import folded
from contextos.cli.terminal import print_result
from contextos.contracts.encoding.display_escape import displayed, displayed_json

if TYPE_CHECKING:
    from contextos.contracts.model import Model
    from contextos.service.operations.operation import Operation

_TIME_FIELDS: Final = ("at_us", "observed_at_us")
"""The fields for the time of a statement. `ask` fills them in with the present time."""


def ask_command(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Its name, as `contextos ops` lists it.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [FIELD=VALUE]...",
            help="What it is about, if it is about one thing, and the fields of its input. A field that is not a text "
            "takes JSON, and `FIELD=@FILE` JSON from a file. When it is stated (`at_us`) is now.",
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
    from contextos.service.operations.packs import ActiveVersion
    from contextos.service.operations.table import named_operation
    from contextos.service.views import RequestOutcome
    from contextos.trust.approvals.acts import ACT_TYP

    chosen = named_operation(operation)
    on_run = chosen.about is OF_RUN
    _check_options(chosen, by, key, as_json=as_json)
    actor = named_actor(by, key) if chosen.signs else signer_elsewhere(by)
    name, fields = _read_words(chosen, words or [])

    async def ask(context: CommandContext) -> Any:
        now_us, input_fields = context.deployment.ports.clock.now_us(), chosen.input.model_fields
        request = parse(chosen.input, {field: now_us for field in _TIME_FIELDS if field in input_fields} | fields)
        target = await context.run_id(name) if on_run else name

        async def open_run(other: str) -> tuple[str, None]:
            return await context.run_id(other), None

        asked = Asked(context.app, context.tenant_id, actor, target, open_run=open_run)
        result = await chosen.run(asked, request)
        if not chosen.signs:
            return result
        if result.typ != ACT_TYP:
            detail = f"`{chosen.name}` is signed in a form of its own, after it was shown"
            raise usage_error(detail, "use its command; `contextos runs --help` lists them")
        committed = await result.signed()
        # No engine runs in this process.
        view = await context.drive_on(target) if on_run else None
        return view if view is not None and chosen.output is RequestOutcome else committed

    open_context = with_unchecked_context if chosen.output is ActiveVersion else with_context
    answer = (open_context if chosen.signs else with_read_context)(workspace, tenant, ask)
    if isinstance(answer, bytes):
        sys.stdout.buffer.write(answer)
        return 0
    if chosen.output is RequestOutcome:
        print_result(document_of(answer), _answer_lines(document_of(answer)), as_json=as_json)
        return 0 if answer.state == "cancelled" else exit_code_of(answer)
    document = answer.to_json()
    print_result(document, _answer_lines(document), as_json=as_json)
    return chosen.exit_code(answer)


def _check_options(operation: Operation, by: str, key: Path | None, *, as_json: bool) -> None:
    """Refuse an option that the operation does not use, and an act that nobody signs."""
    remedy = "name who asks with --by, and their key with --key"
    if operation.signs and not by:
        raise usage_error(f"`{operation.name}` is signed by who asks", remedy)
    if not operation.signs and (key is not None or (by and operation.roles)):
        unused = "--key" if key is not None else "--by"
        detail = f"`{operation.name}` is not signed"
        raise usage_error(detail, f"leave {unused} out")
    if as_json and operation.output is bytes:
        detail = f"the answer of `{operation.name}` is {operation.media_type} and not one JSON document"
        raise usage_error(detail, "leave --json out")


def _read_words(operation: Operation, words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the name of the thing that the operation is about ("" if none), and the fields of its input."""
    names, assignments = words[: operation.about is not None], words[operation.about is not None :]
    if operation.about is not None and not names:
        detail = f"`{operation.name}` lacks its `{operation.about.name}`"
        raise usage_error(detail, "name it behind the operation")
    fields = dict[str, Any]()
    for word in assignments:
        field, equals, text = word.partition("=")
        if not equals or field not in operation.input.model_fields or field in fields:
            detail = f"`{displayed(field)[:80]}` is not a field of `{operation.name}`, or is there twice"
            remedy = f"write each as FIELD=VALUE; `contextos ops {operation.name}` lists them"
            raise usage_error(detail, remedy)
        fields[field] = _value(field, text, operation.input)
    return "".join(names), fields


def _value(field: str, text: str, model: type[Model]) -> Any:
    from contextos.contracts.encoding.codec import loads
    from contextos.service.operations.operation import field_value

    if text.startswith("@"):
        path = Path(text[1:])
        with about(path):
            return loads(read_file(path), max_bytes=MAX_FILE_BYTES)
    return field_value(model, field, text)


def _answer_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield an answer as lines: each item of a list under its first field as the heading, and each other field."""
    items: Any = document.get("items")
    is_list = isinstance(items, list)
    for item in items if is_list else ():
        (_, first), *others = item.items()
        yield from folded("", _value_text(first))
        for name, value in others:
            if value not in (None, "", [], {}):
                yield from folded("  ", f"{displayed(name)}: {_value_text(value)}")
    if is_list and not items:
        yield "there is nothing"
    for name, value in document.items():
        if not is_list or (name not in ("items", "cursor") and value not in (None, "", [], {})):
            yield from folded("", f"{displayed(name)}: {_value_text(value)}")
    if is_list and document.get("cursor"):
        yield f"more: cursor={displayed(document['cursor'])}"


def _value_text(value: Any) -> str:
    return displayed(value) if isinstance(value, str) and value else displayed_json(value)
