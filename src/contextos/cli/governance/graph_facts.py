"""`facts`: list the facts of a subject in the tenant's graph, and set, replace or retract facts by signed acts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
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
    from contextos.service.facts import KnownFact
    from contextos.service.pages import Page

INTEGRITY: Final = ("trusted", "untrusted")
CLASSIFICATIONS: Final = ("PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED")

SubjectArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The entity that it is about, such as customer:cus_77.")
]
PredicateArgument = Annotated[str, typer.Argument(metavar="PREDICATE", help="What is said, such as tier.")]
ValueArgument = Annotated[
    str, typer.Argument(metavar="JSON", help="The value as JSON: true, 4200, or a text in quotes.")
]
SourceOption = Annotated[
    str, typer.Option("--source", metavar="REF", help="Reference to the evidence, such as artifact:kyc_4711#rev_1.")
]
IntegrityOption = Annotated[
    str,
    typer.Option(
        "--integrity",
        metavar="|".join(INTEGRITY),
        help="How far it can be relied on. Only a trusted fact answers a requirement.",
    ),
]
ClassificationOption = Annotated[
    str, typer.Option("--classification", metavar="|".join(CLASSIFICATIONS), help="Who may see it.")
]
SnapshotOption = Annotated[
    str, typer.Option("--snapshot", metavar="KG_N", help="As it was in this snapshot, such as kg_7. Default: now.")
]


def facts_list_command(
    subject: SubjectArgument,
    predicate: Annotated[
        str | None, typer.Argument(metavar="[PREDICATE]", help="What is said, such as tier. Default: everything.")
    ] = None,
    snapshot: SnapshotOption = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many.")] = 50,
    after: Annotated[str, typer.Option("--after", metavar="ID", help="Continue after this fact.")] = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the facts of a subject that hold, or held in a snapshot."""

    async def operation(context: CommandContext) -> Page[KnownFact]:
        return await context.app.facts.list(
            context.tenant_id, subject, predicate, snapshot=snapshot or None, limit=limit, cursor=after
        )

    page = with_read_context(workspace, tenant, operation)
    lines = [line for fact in page.items for line in _fact_lines(fact)] or ["no such fact holds"]
    if page.cursor is not None:
        lines.append(f"more: --after {displayed(page.cursor)}")
    document = {"facts": [fact.to_json() for fact in page.items], "next_after": page.cursor}
    print_result(document, lines, as_json=as_json)
    return 0


def facts_set_command(
    subject: SubjectArgument,
    predicate: PredicateArgument,
    value: ValueArgument,
    source: SourceOption,
    integrity: IntegrityOption,
    classification: ClassificationOption,
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write a fact that nothing contradicts yet.

    The writer needs the role `knowledge_writer`, and signs.
    """
    statement = (subject, predicate, _value(value))
    origin: Any = {"source": source, "integrity": integrity, "classification": classification}
    return _write_fact("set", statement, origin | {"by": named_actor(by, key)}, workspace, tenant, as_json)


def facts_replace_command(
    subject: SubjectArgument,
    predicate: PredicateArgument,
    value: ValueArgument,
    source: SourceOption,
    integrity: IntegrityOption,
    classification: ClassificationOption,
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """End the fact that holds, and begin another in the same commit.

    An approval that rests on the old fact becomes void.
    """
    statement = (subject, predicate, _value(value))
    origin: Any = {"source": source, "integrity": integrity, "classification": classification}
    return _write_fact("replace", statement, origin | {"by": named_actor(by, key)}, workspace, tenant, as_json)


def facts_retract_command(
    subject: SubjectArgument,
    predicate: PredicateArgument,
    source: SourceOption,
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """End every fact of a subject under a predicate."""
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> None:
        await context.app.facts.retract(context.tenant_id, subject, predicate, source=source, by=actor)

    with_context(workspace, tenant, operation)
    line = f"{displayed(predicate)} of {displayed(subject)} holds no longer"
    print_result({"subject": subject, "predicate": predicate, "retracted": True}, [line], as_json=as_json)
    return 0


def facts_load_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON with `nodes` and `edges`, as `Graph.put` has it.")],
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write the nodes and edges of a file in one commit.

    What the graph has already is left as it is.
    """
    from contextos.contracts.encoding.codec import loads
    from contextos.contracts.envelopes.evidence import commit_key
    from contextos.deployment.acts.facts import write_facts

    actor = named_actor(by, key)
    with about(file):
        body = loads(read_file(file), max_bytes=MAX_FILE_BYTES)
        if not isinstance(body, dict) or set(body) != {"nodes", "edges"} or not all(map(_has_objects, body.values())):
            detail = "it is not an object with a list of objects as `nodes` and one as `edges`"
            raise InvalidInput(Problem("", "no_graph", detail, "write both, and nothing else"))
    nodes: Any = body["nodes"]
    edges: Any = body["edges"]

    async def operation(context: CommandContext) -> int:
        with about(file):
            return await write_facts(context.deployment, context.tenant_id, nodes, edges, by=actor)

    snapshot = commit_key(with_context(workspace, tenant, operation))
    print_result({"snapshot": snapshot}, [f"the graph has them as of {snapshot}"], as_json=as_json)
    return 0


def _has_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _write_fact(
    act: Literal["set", "replace"],
    statement: tuple[str, str, Any],
    origin: Mapping[str, Any],
    workspace: Path | None,
    tenant: str,
    as_json: bool,
) -> int:
    """Do the act `set` or `replace`, which both begin a fact, and print the fact."""

    async def operation(context: CommandContext) -> KnownFact:
        facts = context.app.facts
        return await (facts.set if act == "set" else facts.replace)(context.tenant_id, *statement, **origin)

    fact = with_context(workspace, tenant, operation)
    print_result(fact.to_json(), _fact_lines(fact), as_json=as_json)
    return 0


def _value(text: str) -> Any:
    from contextos.contracts.encoding.codec import loads

    try:
        return loads(text)
    except InvalidInput:
        detail = f"`{displayed(text)[:80]}` is not a JSON value"
        remedy = f"write a text in quotes: '{json.dumps(text[:40])}'"
        raise InvalidInput(Problem("/value", "no_json", detail, remedy)) from None


def _fact_lines(fact: KnownFact) -> list[str]:
    statement = f"{displayed(fact.subject)} {displayed(fact.predicate)} {displayed_json(fact.value, None)}"
    origin = f"{fact.integrity}, {fact.classification}, {displayed(fact.source)}, since {fact.snapshot}"
    return [*folded("", statement), *folded("  ", origin)]
