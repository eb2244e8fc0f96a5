"""The pages of operations: each read operation of the table has one, made from its input and its answer.

So an operation that is added to the table has a page, in the section of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from contextos.contracts.documents.operations import BREAKERS
from contextos.contracts.encoding.codec import parse
from contextos.contracts.model import Model
from contextos.errors import InvalidInput, NotFound, Problem
from contextos.server.console.links import acts_on, may_sign
from contextos.server.console.reading import ConsoleReaderHere, PageRoute, render_for
from contextos.server.operate.work import WorkHere
from contextos.server.operations import asked_by
from contextos.server.problems import not_found
from contextos.service.operations.operation import OF_RUN, Operation, field_value
from contextos.service.operations.table import OPERATION_TABLE, named_operation

table_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "govern": ("packs", "pins", "policies", "facts", "memories", "models", "slots", "adapters"),
    "operate": ("dead-letters", BREAKERS.name),
    "audit": ("exports", "acts"),
}
"""The groups of operations by section. A group that no section lists is under `more`."""
MORE: Final = "more"


class Field(NamedTuple):
    """A field of an operation as a form shows it: its name, its description, its choices, and what was sent."""

    name: str
    description: str
    choices: tuple[str, ...]
    required: bool
    value: str


def section_of(operation: Operation) -> str:
    """Return the section of an operation.

    >>> section_of(named_operation("pins.list"))
    'govern'
    """
    return next((name for name, groups in SECTIONS.items() if operation.group in groups), MORE)


def pages_of(section: str, roles: frozenset[str]) -> list[Operation]:
    """Return the operations that have a page in a section, and that somebody with these roles may ask."""
    return [
        operation
        for operation in OPERATION_TABLE
        if section_of(operation) == section and _has_page(operation) and not roles.isdisjoint(operation.roles)
    ]


def forms_of(section: str, roles: frozenset[str]) -> list[Operation]:
    """Return the signed operations of a section that are about no single thing, and that these roles may sign."""
    return [one for one in OPERATION_TABLE if section_of(one) == section and one.about is None and may_sign(one, roles)]


def _has_page(operation: Operation) -> bool:
    return operation.effect == "read" and operation.about is None and issubclass(operation.output, Model)


@table_routes.get("/sections/{section}")
async def get_section(reader: ConsoleReaderHere, section: str) -> Response:
    """List the pages of a section."""
    if section not in (*SECTIONS, MORE):
        raise not_found()
    operations, forms = pages_of(section, reader.roles), forms_of(section, reader.roles)
    return render_for(reader, "section.html", section=section, operations=operations, forms=forms)


@table_routes.get("/ask/{name}")
async def get_answer(request: Request, reader: ConsoleReaderHere, name: str, work: WorkHere) -> Response:
    """Ask a read operation and show its answer: a list as a table, and everything else by its fields."""
    try:
        operation = named_operation(name)
    except NotFound:
        raise not_found() from None
    if operation.effect != "read" or not issubclass(operation.output, Model) or operation.about not in (None, OF_RUN):
        raise not_found()
    run_name = request.query_params.get("run", "") if operation.about is OF_RUN else ""
    asked = await asked_by(operation, reader.app, reader.caller, reader.roles, run_name)
    texts = {name: text for name, text in request.query_params.items() if name != "run"}
    fields, answer, problems = list(_fields(operation, texts)), None, tuple[Problem, ...]()
    if all(field.value or not field.required for field in fields):
        try:
            values = {name: field_value(operation.input, name, text) for name, text in texts.items()}
            question = parse(operation.input, values)
            if operation.is_long:
                answer = await work.do(reader.tenant_id, lambda _: operation.run(asked, question))
            else:
                answer = await operation.run(asked, question)
        except InvalidInput as error:
            problems = error.problems
    return render_for(
        reader,
        "answer.html",
        operation=operation,
        section=section_of(operation),
        fields=fields,
        answer=answer.to_json() if answer is not None else None,
        problems=problems,
        query=texts,
        run_id=asked.name,
        acts_on=lambda item: acts_on(operation.name, item, reader.roles),
    )


def _fields(operation: Operation, texts: Mapping[str, str]) -> Iterator[Field]:
    """Yield the fields of an operation but `cursor`, which the link to the next page has."""
    schema = operation.input.model_json_schema()
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        if name != "cursor":
            choices = tuple(map(str, member.get("enum", ())))
            value = texts.get(name, str(member.get("default") or ""))
            yield Field(name, member.get("description", ""), choices, name in required, value)
