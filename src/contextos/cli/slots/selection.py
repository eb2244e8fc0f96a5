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
    user, declared_slot = _read_inputs(agent, slot, actor)

    async def operation(context: CommandContext) -> SlotResolution:
        return await _steps(context, broader).offer(declared_slot, user, project or None)

    resolution = with_read_context(workspace, tenant, operation)
    print_result(resolution.to_json(), _offer_lines(resolution), as_json=as_json)
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
    user, declared_slot = _read_inputs(agent, slot, actor, package)
    response = read_file(answer) if answer else None

    async def operation(context: CommandContext) -> tuple[SlotResolution | None, Any]:
        from contextos.context.slots.resolve import require_organisation
        from contextos.contracts.encoding.codec import parse
        from contextos.contracts.envelopes.slots import SelectionOrigin

        project_id, steps = project or None, _steps(context, broader)
        fields = {
            "org_id": require_organisation(user),
            "parent_run_id": run,
            "parent_package_name": package,
            "principal_id": user.principal_id,
            "act_key": key,
        }
        origin = parse(SelectionOrigin, fields)
        if declared_slot.selection_mode == "autonomous":
            return None, await steps.take(declared_slot, user, project_id, origin)
        if response is None:
            return await steps.offer(declared_slot, user, project_id), None
        return None, await steps.answer(declared_slot, user, project_id, origin, response)

    resolution, outcome = with_context(workspace, tenant, operation)
    return _print_outcome(resolution, outcome, as_json)


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
        outcome = await answer_slot(context.deployment, context.tenant_id, run_id, response, by=named_actor(by, key))
        if not isinstance(outcome, PickRefused):
            await context.drive_on(run_id)
        return None, outcome

    resolution, outcome = with_context(workspace, tenant, operation)
    return _print_outcome(resolution, outcome, as_json)


def slots_selections_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run whose selections are shown.")],
    org: Annotated[str, typer.Option("--org", metavar="ID", help="The organisation.")],
    content: Annotated[bool, typer.Option("--content", help="Show the content that was pinned.")] = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the selections of a run, in order, with the artifacts that each pinned.

    The selections of a governed run are compared with its journal.
    """

    async def operation(context: CommandContext) -> list[tuple[Any, Sequence[Any]]]:
        from contextos.audit.verify import verify_audited_run
        from contextos.context.slots.select import replay_selection
        from contextos.contracts.ids import RUN

        artifacts = context.app.stores.artifacts(context.tenant_id)
        selections = await artifacts.selections(org, run)
        if selections and RUN.fits(run, sealed=True):
            await verify_audited_run(context.store, context.tenant_id, run, context.app.keys)
        return [(selection, await replay_selection(selection, artifacts=artifacts)) for selection in selections]

    selections = with_read_context(workspace, tenant, operation)
    lines: list[str] = []
    for selection, pinned in selections:
        selector = f"by {selection.selected_by} ({selection.resolution_mode})"
        lines.append(f"{selection.selection_id}  {selection.slot_id}: {len(pinned)} {selector}")
        for pin in pinned:
            lines.append(f"  {pin.ref.source_scope:<12}  {displayed(pin.title)}  revision {pin.revision.revision}")
            lines += [f"    {displayed(line)}" for line in pin.revision.content.splitlines() if content]
    documents = [
        {"act": selection.to_json(), "pinned": [_pin_document(pin, content) for pin in pinned]}
        for selection, pinned in selections
    ]
    print_result({"selections": documents}, lines or ["there are no selections"], as_json=as_json)
    return 0


def _read_inputs(agent: Path, slot: str, actor: Path, package: str | None = None) -> tuple[SlotActor, AgentContextSlot]:
    from contextos.context.slots.oas import require_package, slot_of
    from contextos.contracts.encoding.codec import parse
    from contextos.contracts.encoding.yaml_text import read_document
    from contextos.contracts.envelopes.slots import SlotActor

    with about(actor):
        user = parse(SlotActor, read_file(actor))
    with about(agent):
        document = read_document(read_file(agent))
        declared_slot = slot_of(document, slot)
        if package is not None:
            require_package(document, package)
        return user, declared_slot


def _steps(context: CommandContext, broader: bool) -> ArtifactSlots:
    from contextos.context.slots.steps import ArtifactSlots

    shelf = context.app.stores.artifacts(context.tenant_id)
    return ArtifactSlots(shelf, shelf, context.deployment.ports.clock, include_broader=broader)


def _print_outcome(resolution: SlotResolution | None, outcome: Any, as_json: bool) -> int:
    from contextos.context.slots.select import bind_selection
    from contextos.contracts.envelopes.slots import PickRefused

    if resolution is not None and outcome is None:
        hint = "answer with --answer FILE: slotId, resolutionMode, and selectedRefs chosen from `refs` of --json"
        print_result({"offered": resolution.to_json()}, [*_offer_lines(resolution), hint], as_json=as_json)
        return WAITING
    if isinstance(outcome, PickRefused):
        line = f"refused: {outcome.code}: {displayed(outcome.detail)}; nothing is recorded, answer again"
        print_result({"refused": outcome.to_json()}, [line], as_json=as_json)
        return REFUSED
    if isinstance(outcome, str):
        print_result({"selection_id": outcome}, [f"{outcome}  sent; the flow goes on with it"], as_json=as_json)
        return 0
    head = f"{outcome.act.selection_id}  {'recorded' if outcome.wrote else 'was recorded before'}"
    body = {"act": outcome.act.to_json(), "wrote": outcome.wrote, "contextRefs": [bind_selection(outcome).to_json()]}
    print_result(body, [head, *_manifest_lines(outcome.manifest)], as_json=as_json)
    return 0


def _offer_lines(resolution: SlotResolution) -> list[str]:
    notes = ["there are more; narrow the slot or the project"] if resolution.more else []
    heading = f"{resolution.slot_id} ({resolution.resolution_mode}) can take {len(resolution.refs)}:"
    return [heading, *_manifest_lines(resolution.manifest), *notes]


def _manifest_lines(manifest: Sequence[ManifestLine]) -> Iterator[str]:
    for line in manifest:
        yield f"  {line.source_scope:<12}  {displayed(line.title)}  {line.extension}  {line.ref}"


def _pin_document(pin: Any, content: bool) -> dict[str, Any]:
    document: dict[str, Any] = pin.to_json()
    if not content:
        del document["revision"]["content"]
    return document
