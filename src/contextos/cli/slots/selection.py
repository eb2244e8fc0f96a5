"""`slots resolve`, `select`, `answer` and `selections`: show what a slot can take, record a selection, list selections.

The slot is read from the agent's document and the actor from a JSON file. Titles are printed with `displayed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    RunArgument,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    with_context,
    with_read_context,
)
from contextos.cli.terminal import REFUSED, WAITING, print_result
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.context.slots.steps import ArtifactSlots
    from contextos.contracts.envelopes.slots import AgentContextSlot, ManifestLine, SlotActor, SlotResolution

AgentArgument = Annotated[Path, typer.Argument(metavar="AGENT", help="The agent's Open Agent Spec document.")]
SlotArgument = Annotated[str, typer.Argument(metavar="SLOT", help="The slot's id.")]
ActorOption = Annotated[
    Path,
    typer.Option(
        "--actor", metavar="ACTOR.json", help="JSON file of the user: principal, organisation, teams, projects."
    ),
]
ProjectOption = Annotated[str, typer.Option("--project", metavar="ID", help="Only artifacts of this project.")]
BroaderOption = Annotated[bool, typer.Option("--broader", help="With --project: also artifacts without a project.")]


def slots_resolve_command(
    agent: AgentArgument,
    slot: SlotArgument,
    actor: ActorOption,
    project: ProjectOption = "",
    broader: BroaderOption = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Show which artifacts a slot can take now. Nothing is written."""
    known, declared = _asked(agent, slot, actor)

    async def operation(context: CommandContext) -> SlotResolution:
        return await _steps(context, broader).offer(declared, known, project or None)

    found = with_read_context(workspace, tenant, operation)
    print_result(found.to_json(), _offered(found), as_json=as_json)
    return 0


def slots_select_command(
    agent: AgentArgument,
    slot: SlotArgument,
    actor: ActorOption,
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="The run that the selection is for.")],
    package: Annotated[
        str, typer.Option("--package", metavar="NAME", help="The name of the agent's package, as its document has it.")
    ],
    answer: Annotated[
        Path | None,
        typer.Option("--answer", metavar="FILE", help="The user's `userResponse` as JSON; `-` reads stdin."),
    ] = None,
    key: Annotated[str, typer.Option("--key", help="Idempotency key: the same key again is the same selection.")] = "1",
    project: ProjectOption = "",
    broader: BroaderOption = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Record a selection for a slot: automatic, or a user's answer.

    Without an answer an interactive slot shows its offer.
    """
    known, declared = _asked(agent, slot, actor, package)
    response = read_file(answer) if answer else None

    async def operation(context: CommandContext) -> tuple[SlotResolution | None, Any]:
        from contextos.context.slots.resolve import require_organisation
        from contextos.contracts.encoding.codec import parse
        from contextos.contracts.envelopes.slots import SelectionOrigin

        of, steps = project or None, _steps(context, broader)
        fields = {
            "org_id": require_organisation(known),
            "parent_run_id": run,
            "parent_package_name": package,
            "principal_id": known.principal_id,
            "act_key": key,
        }
        origin = parse(SelectionOrigin, fields)
        if declared.selection_mode == "autonomous":
            return None, await steps.take(declared, known, of, origin)
        if response is None:
            return await steps.offer(declared, known, of), None
        return None, await steps.answer(declared, known, of, origin, response)

    found, done = with_context(workspace, tenant, operation)
    return _print_outcome(found, done, as_json)


def slots_answer_command(
    run: RunArgument,
    by: Annotated[str, typer.Option("--by", metavar="ID", help="Id of the user whom the run asks.")],
    key: ActKeyOption = None,
    file: Annotated[
        Path | None,
        typer.Option("--answer", metavar="FILE", help="The `userResponse` as JSON. Without it, the offer is shown."),
    ] = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Answer a run, or a paused flow (by the id of its selection), that waits for a selection.

    For a run, the user signs with their key. An answer that does not fit the offer is refused, and it keeps waiting.
    """
    response = read_file(file) if file else None

    async def operation(context: CommandContext) -> tuple[SlotResolution | None, Any]:
        from contextos.contracts.envelopes.slots import SELECTION, PickRefused
        from contextos.deployment.slot_answers import answer_slot, read_offer

        if SELECTION.fits(run):
            questions = context.app.slot_questions
            if response is None:
                return (await questions.offer(context.tenant_id, by, run))[1], None
            return None, await questions.answer(context.tenant_id, by, run, response) or run
        run_id = await context.run_id(run)
        if response is None:
            return (await read_offer(context.deployment, context.tenant_id, run_id, by=by))[1], None
        done = await answer_slot(context.deployment, context.tenant_id, run_id, response, by=named_actor(by, key))
        if not isinstance(done, PickRefused):
            await context.drive_on(run_id)
        return None, done

    found, done = with_context(workspace, tenant, operation)
    return _print_outcome(found, done, as_json)


def slots_selections_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run whose selections are shown.")],
    org: Annotated[str, typer.Option("--org", metavar="ID", help="The organisation.")],
    content: Annotated[bool, typer.Option("--content", help="Show the content that was pinned.")] = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the selections of a run, in order, with what each pinned.

    Those of a governed run are compared with its journal.
    """

    async def operation(context: CommandContext) -> list[tuple[Any, Sequence[Any]]]:
        from contextos.audit.verify import verify_audited_run
        from contextos.context.slots.select import replay_selection
        from contextos.contracts.ids import RUN

        artifacts = context.app.stores.artifacts(context.tenant_id)
        selections = await artifacts.selections(org, run)
        if selections and RUN.fits(run, sealed=True):
            await verify_audited_run(context.store, context.tenant_id, run, context.app.keys)
        return [(one, await replay_selection(one, artifacts=artifacts)) for one in selections]

    found = with_read_context(workspace, tenant, operation)
    lines: list[str] = []
    for one, pinned in found:
        lines.append(f"{one.selection_id}  {one.slot_id}: {len(pinned)} by {one.selected_by} ({one.resolution_mode})")
        for pin in pinned:
            lines.append(f"  {pin.ref.source_scope:<12}  {displayed(pin.title)}  revision {pin.revision.revision}")
            lines += [f"    {displayed(line)}" for line in pin.revision.content.splitlines() if content]
    shown = [{"act": one.to_json(), "pinned": [_pin(pin, content) for pin in pinned]} for one, pinned in found]
    print_result({"selections": shown}, lines or ["there are no selections"], as_json=as_json)
    return 0


def _asked(agent: Path, slot: str, actor: Path, package: str | None = None) -> tuple[SlotActor, AgentContextSlot]:
    from contextos.context.slots.oas import require_package, slot_of
    from contextos.contracts.encoding.codec import parse
    from contextos.contracts.encoding.yaml_text import read_document
    from contextos.contracts.envelopes.slots import SlotActor

    with about(actor):
        known = parse(SlotActor, read_file(actor))
    with about(agent):
        document = read_document(read_file(agent))
        declared = slot_of(document, slot)
        if package is not None:
            require_package(document, package)
        return known, declared


def _steps(context: CommandContext, broader: bool) -> ArtifactSlots:
    from contextos.context.slots.steps import ArtifactSlots

    shelf = context.app.stores.artifacts(context.tenant_id)
    return ArtifactSlots(shelf, shelf, context.deployment.ports.clock, include_broader=broader)


def _print_outcome(found: SlotResolution | None, done: Any, as_json: bool) -> int:
    from contextos.context.slots.select import bind_selection
    from contextos.contracts.envelopes.slots import PickRefused

    if found is not None and done is None:
        how = "answer with --answer FILE: slotId, resolutionMode, and selectedRefs chosen from `refs` of --json"
        print_result({"offered": found.to_json()}, [*_offered(found), how], as_json=as_json)
        return WAITING
    if isinstance(done, PickRefused):
        line = f"refused: {done.code}: {displayed(done.detail)}; nothing is recorded, answer again"
        print_result({"refused": done.to_json()}, [line], as_json=as_json)
        return REFUSED
    if isinstance(done, str):
        print_result({"selection_id": done}, [f"{done}  sent; the flow goes on with it"], as_json=as_json)
        return 0
    head = f"{done.act.selection_id}  {'recorded' if done.wrote else 'was recorded before'}"
    body = {"act": done.act.to_json(), "wrote": done.wrote, "contextRefs": [bind_selection(done).to_json()]}
    print_result(body, [head, *_lines(done.manifest)], as_json=as_json)
    return 0


def _offered(found: SlotResolution) -> list[str]:
    more = ["there are more; narrow the slot or the project"] if found.more else []
    return [f"{found.slot_id} ({found.resolution_mode}) can take {len(found.refs)}:", *_lines(found.manifest), *more]


def _lines(manifest: Sequence[ManifestLine]) -> Iterator[str]:
    for line in manifest:
        yield f"  {line.source_scope:<12}  {displayed(line.title)}  {line.extension}  {line.ref}"


def _pin(pin: Any, content: bool) -> dict[str, Any]:
    document: dict[str, Any] = pin.to_json()
    if not content:
        del document["revision"]["content"]
    return document
