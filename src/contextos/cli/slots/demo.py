"""`slots demo`: fill the example agent's context slot automatically and by a person, and replay the selections later.

The demo checks what it claims: an expectation that fails ends it with exit code 3.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos.cli.command_context import CommandContext, JsonOption, with_context
from contextos.cli.demo.templates import example_folder
from contextos.cli.demo.workspace import DEMO_WITNESS, EXAMPLE_AGENT, make_workspace
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import Integrity

if TYPE_CHECKING:
    from contextos.contracts.envelopes.slots import AgentContextSlot, PickRefused, Selected, SlotActor, SlotResolution

    Done = Selected | PickRefused

DEMO_RUN: Final = "run_of_the_demo"
DEMO_SLOT: Final = "offeringContext"
ICP: Final = "@cinatra-ai/marketing-icp-artifact"
STRATEGY: Final = "@cinatra-ai/marketing-strategy-artifact"
B2B: Final = "@acme/b2b-icp-artifact"

# id, title, extension, owner, visibility
DEMO_ARTIFACTS: Final = (
    ("icp_of_ann", "Ann's own notes on whom to write to", ICP, ("user", "user_ann"), "owner"),
    ("icp_of_sales", "ICP of the sales team", B2B, ("team", "sales"), "team:sales"),
    ("icp_of_acme", "ICP of the whole company", ICP, ("organization", "org_acme"), "org"),
    ("strategy", "Marketing strategy", STRATEGY, ("workspace", "main"), "workspace"),
    ("icp_of_legal", "What only the legal team may see", ICP, ("team", "legal"), "team:legal"),
)


@dataclass(frozen=True, slots=True)
class _Stage:
    """The parts that every scene needs: the actor, the agent's slot and package, the store, and the output."""

    context: CommandContext
    actor: SlotActor
    slot: AgentContextSlot
    package: str
    say: Callable[..., None]

    @property
    def artifacts(self) -> Any:
        return self.context.app.stores.artifacts(self.context.tenant_id)

    @property
    def now_us(self) -> int:
        return self.context.deployment.ports.clock.now_us()


def slots_demo_command(as_json: JsonOption = False) -> int:
    """Select context for the outreach example, then replay it.

    Some selections are automatic and some a user's. The replay comes after every artifact has changed.
    """

    def say(*lines: str) -> None:
        if not as_json:
            print_result({}, lines, as_json=False)

    with tempfile.TemporaryDirectory(prefix="contextos-slots-") as folder:
        workspace = make_workspace(Path(folder) / "workspace", witness=DEMO_WITNESS)
        result = with_context(workspace.path, workspace.tenant_id, lambda context: _play(context, say))
    print_result(result, (), as_json=as_json)
    return 0


async def _play(context: CommandContext, say: Callable[..., None]) -> dict[str, Any]:
    from contextos.context.slots.oas import slot_of
    from contextos.contracts.encoding.codec import loads, parse
    from contextos.contracts.envelopes.slots import SlotActor

    folder = example_folder(EXAMPLE_AGENT)
    package = loads((folder / "package.json").read_bytes())["name"]
    actor = parse(SlotActor, (folder / "actor.json").read_bytes())
    slot = slot_of(loads((folder / "cinatra" / "oas.json").read_bytes()), DEMO_SLOT)
    stage = _Stage(context, actor, slot, package, say)
    await _fill(stage)
    acts = [await _select_automatically(stage, mode) for mode in ("accumulate", "override")]
    acts += [await _select_several(stage), await _select_one(stage), await _select_nothing(stage)]
    replayed = await _replay_later(stage)
    return {"acts": [selection.act.to_json() for selection in acts], "replayed_equal": replayed}


async def _fill(stage: _Stage) -> None:
    from contextos.contracts.envelopes.artifacts import Artifact, ExtensionManifest

    stage.say(Heading("What there is"), "", f"{B2B} satisfies {ICP}, so it can be used as one.")
    for extension, satisfies in ((ICP, ()), (STRATEGY, ()), (B2B, (ICP,))):
        await stage.artifacts.register(ExtensionManifest(extension=extension, satisfies=satisfies))
    for name, title, extension, (level, owner), visibility in DEMO_ARTIFACTS:
        fields: dict[str, Any] = {
            "artifact_id": name,
            "org_id": "org_acme",
            "title": title,
            "owner_level": level,
            "owner_id": owner,
            "visibility": visibility,
            "created_by": "user_ann",
            "created_at_us": stage.now_us,
        }
        await stage.artifacts.add(Artifact(**fields))
        await _revise(stage, name, f"# {title}\n")
        await _classify(stage, name, extension)
        stage.say(f"  {name:<13} {visibility:<11} {extension}")


async def _select_automatically(stage: _Stage, mode: str) -> Selected:
    from contextos.context.slots.select import select_autonomously

    slot = _with_fields(stage.slot, selectionMode="autonomous", resolutionMode=mode)
    stage.say("", Heading(f"Nobody picks, {mode}"), "")
    resolution = await _resolve(stage, slot)
    selection = await select_autonomously(
        slot, resolution, _origin(stage, f"{mode}_by_nobody"), at_us=stage.now_us, artifacts=stage.artifacts
    )
    reasons = {
        "accumulate": "all that Ann may see, from narrow to broad",
        "override": "the narrowest scope that has any wins, and there the first",
    }
    return _expect_pinned(stage, selection, reasons[mode], {"accumulate": 4, "override": 1}[mode])


async def _select_several(stage: _Stage) -> Selected:
    stage.say("", Heading("Ann picks, accumulate"), "")
    resolution = await _resolve(stage, stage.slot)
    hidden = resolution.refs[0].to_json() | {"artifactId": "icp_of_legal"}
    for refs, reason in (
        ([hidden], "of something that she may not see"),
        ([resolution.refs[1].to_json()] * 2, "of one thing twice"),
    ):
        refusal = await _answer(stage, stage.slot, refs, "picked")
        stage.say(f"A pick {reason} is refused: {getattr(refusal, 'code', '')}. She is asked again; the run lives.")
        _expect(not hasattr(refusal, "act"), "a pick that does not count is refused")
    picked = [resolution.refs[1].to_json() | {"sourceScope": "project"}, resolution.refs[3].to_json()]
    selection = await _answer(stage, stage.slot, picked, "picked")
    reason = "her pick; scope and owner are the server's own words, whatever the answer said"
    return _expect_pinned(stage, selection, reason, 2)


async def _select_one(stage: _Stage) -> Selected:
    slot = _with_fields(stage.slot, resolutionMode="override", maxItems=None)
    stage.say("", Heading("Ann picks, override"), "")
    resolution = await _resolve(stage, slot)
    selection = await _answer(stage, slot, [resolution.refs[0].to_json()], "picked_one")
    return _expect_pinned(stage, selection, "one of the narrowest scope that has any", 1)


async def _select_nothing(stage: _Stage) -> Selected:
    stage.say("", Heading("Ann wants none of it"), "")
    selection = await _answer(stage, stage.slot, [], "picked_nothing")
    return _expect_pinned(stage, selection, "an answer of nothing is an answer, and the record says so", 0)


async def _replay_later(stage: _Stage) -> bool:
    from contextos.context.slots.select import replay_selection

    stage.say("", Heading("Years later"), "")
    acts = await stage.artifacts.selections("org_acme", DEMO_RUN)
    before = [[pin.to_json() for pin in await replay_selection(act, artifacts=stage.artifacts)] for act in acts]
    await _revise(stage, "icp_of_ann", "# Quite another text\n")
    await _classify(stage, "icp_of_sales", B2B)
    await stage.artifacts.archive("org_acme", "strategy", STRATEGY, stage.now_us)
    await stage.artifacts.tombstone("org_acme", "icp_of_acme", stage.now_us)
    stage.say("One artifact was rewritten, one classified anew, one classification ended, one artifact removed.")
    after = [[pin.to_json() for pin in await replay_selection(act, artifacts=stage.artifacts)] for act in acts]
    _expect(before == after and len(acts) == 5, "old pins read the same bytes")
    resolution = await _resolve(stage, stage.slot)
    _expect([ref.artifact_id for ref in resolution.refs] == ["icp_of_ann", "icp_of_sales"], "new selections see it all")
    stage.say(f"All {len(acts)} acts of the run replay to the same bytes.")
    return before == after


async def _revise(stage: _Stage, name: str, content: str) -> None:
    from contextos.contracts.envelopes.artifacts import NewRevision

    await stage.artifacts.revise(
        NewRevision(
            artifact_id=name,
            org_id="org_acme",
            mime="text/markdown",
            content=content,
            created_by="user_ann",
            created_at_us=stage.now_us,
        )
    )


async def _classify(stage: _Stage, name: str, extension: str) -> None:
    from contextos.contracts.envelopes.artifacts import NewAssertion

    await stage.artifacts.classify(
        NewAssertion(
            artifact_id=name,
            org_id="org_acme",
            extension=extension,
            asserted_by="user",
            principal_id="user_ann",
            asserted_at_us=stage.now_us,
        )
    )


async def _resolve(stage: _Stage, slot: AgentContextSlot) -> SlotResolution:
    from contextos.context.slots.resolve import resolve_context_slot

    installed = await stage.artifacts.extensions()
    resolution = await resolve_context_slot(stage.actor, slot, None, installed, artifacts=stage.artifacts)
    stage.say(f"Slot {slot.slot_id} can take {len(resolution.refs)}:")
    stage.say(*(f"  {line.source_scope:<12}  {displayed(line.title)}" for line in resolution.manifest))
    return resolution


async def _answer(stage: _Stage, slot: AgentContextSlot, refs: Sequence[dict[str, Any]], key: str) -> Done:
    from contextos.context.slots.resolve import resolve_context_slot
    from contextos.context.slots.select import select_interactively

    answer = {"slotId": slot.slot_id, "resolutionMode": slot.resolution_mode, "selectedRefs": list(refs)}
    installed = await stage.artifacts.extensions()
    resolution = await resolve_context_slot(stage.actor, slot, None, installed, artifacts=stage.artifacts)
    return await select_interactively(
        slot, resolution, answer, _origin(stage, key), at_us=stage.now_us, artifacts=stage.artifacts
    )


def _with_fields(slot: AgentContextSlot, **changes: Any) -> AgentContextSlot:
    fields = slot.to_json() | changes
    return type(slot).model_validate({name: value for name, value in fields.items() if value is not None})


def _origin(stage: _Stage, key: str) -> Any:
    from contextos.contracts.envelopes.slots import SelectionOrigin

    return SelectionOrigin(
        org_id="org_acme",
        parent_run_id=DEMO_RUN,
        parent_package_name=stage.package,
        principal_id="user_ann",
        act_key=key,
    )


def _expect_pinned(stage: _Stage, selection: Done, reason: str, count: int) -> Selected:
    from contextos.contracts.envelopes.slots import Selected

    if not isinstance(selection, Selected):
        raise Integrity(f"the demo expected a selection and got `{selection.code}`; please report it")
    _expect(len(selection.act.refs) == count, f"{count} refs are pinned")
    stage.say(f"Pinned {count}: {reason}.")
    stage.say(*(f"  {line.ref}  {line.source_scope}" for line in selection.manifest))
    return selection


def _expect(holds: bool, claim: str) -> None:
    if not holds:
        raise Integrity(f"the demo expected that {claim}; please report it")
