"""`apply` and `pack`: sign packs, publish artifacts, and decide which packs requests may use, for what, and where."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.acting import ActKeyOption, ByOption, ExpectOption, ReasonOption, named_actor, person_key
from contextos.cli.command_context import (
    MAX_FILE_BYTES,
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    about,
    read_file,
    with_read_context,
    with_unchecked_context,
    write_new_file,
)
from contextos.cli.governance.declarations import whole_artifact
from contextos.cli.governance.policies import active_set, unmatched_documents, unmatched_lines
from contextos.cli.terminal import Heading, print_note, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidArtifact, InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.cli.governance.policies import InForce
    from contextos.contracts.acts import PackPin
    from contextos.service.artifacts import CatalogArtifact

RefsArgument = Annotated[
    list[str], typer.Argument(metavar="REF...", help="A pack, and the catalogs and policies named beside it.")
]
IntentOption = Annotated[list[str], typer.Option("--intent", metavar="ID", help="An intent. Repeatable.")]
EnvironmentOption = Annotated[
    str,
    typer.Option(
        "--environment", help="The environment: that of the workspace, also by default; or where an old pin is."
    ),
]


def apply_command(
    by: ByOption,
    key: ActKeyOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the pins of other versions of the packs, which requests can still use.")
    ] = False,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Publish and pin packs, and put the policies in force.

    A new store runs nothing before this. What is done already is left as it is. Of each pack the newest version is
    pinned, and the pins of its other versions end: questions that wait under them are void.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> tuple[list[str], list[tuple[str, Problem]]]:
        steps = await context.app.initialise(context.tenant_id, by=actor, keep=keep, before=_note_effects)
        return steps, await context.app.configuration.of_tenant(context.tenant_id)

    done, unmatched = with_unchecked_context(workspace, tenant, operation)
    lines = [displayed(step) for step in done] or ["everything is done already"]
    document = {"done": done, "unmatched": unmatched_documents(unmatched)}
    print_result(document, [*lines, *unmatched_lines(unmatched)], as_json=as_json)
    return 0


def publish_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A signed artifact in its envelope.")],
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Publish a signed pack, catalog or policy bundle, or a profile or routing rules of models.

    The publisher cannot approve what depends on it. Nothing uses it before it is pinned or activated.
    """
    from contextos.contracts.encoding.codec import loads
    from contextos.deployment.acts.governance import publish_artifact

    raw, actor = read_file(file), named_actor(by, key)

    async def operation(context: CommandContext) -> str:
        with about(file):
            envelope = loads(raw, max_bytes=MAX_FILE_BYTES) if raw.lstrip()[:1] == b"{" else None
            if not isinstance(envelope, dict) or "payloadType" not in envelope:
                detail = "it is not a signed envelope (JSON with `payloadType`)" if raw else "it is empty"
                remedy = "name the file that `contextos pack sign PACK --out FILE` wrote"
                raise InvalidInput(Problem("", "not_signed", detail, remedy))
            ref, _ = await publish_artifact(context.deployment, context.tenant_id, envelope, by=actor)
            return ref

    ref = with_unchecked_context(workspace, tenant, operation)
    print_result({"ref": ref}, [f"{displayed(ref)} is published"], as_json=as_json)
    return 0


def sign_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A pack, short or whole, another artifact or an adapter file.")
    ],
    key: Annotated[
        Path, typer.Option("--key", metavar="FILE", help="File with the author's private key, as `key new` makes it.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the envelope here, instead of printing it.")
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Sign a pack or another artifact, or an adapter file, with the key of its author.

    What is signed is the whole pack: a short form is expanded for the tools of the workspace. A deployment publishes it
    if `runtime.json` lists the public key for the purpose `pack`, and loads an adapter file if `adapter_authors` of the
    settings does. A file in an envelope is signed again as its kind.
    """
    from contextos.contracts.encoding.jcs import canonical
    from contextos.control.artifacts import ADAPTER_TYPE, read_artifact
    from contextos.packs.checking import artifact_problems
    from contextos.trust.seal import KeyRing, seal

    payload_type, document = whole_artifact(file, workspace, to_sign=True)
    content = canonical(document)
    if payload_type != ADAPTER_TYPE:
        with about(file):
            if problems := tuple(artifact_problems(read_artifact(payload_type, content).artifact)):
                raise InvalidArtifact(*problems)
    ring = KeyRing({"pack": person_key(key)})
    envelope = seal(payload_type, content, ring, "pack")
    [kid] = ring.kids("pack")
    if out is None:
        print_result(envelope, [json.dumps(envelope)], as_json=as_json)
        return 0
    write_new_file(out, json.dumps(envelope))
    print_result(
        {"file": str(out), "kid": kid}, [f"{displayed(str(out))} is written, signed by {kid}"], as_json=as_json
    )
    return 0


def published_command(
    ref: Annotated[str, typer.Argument(metavar="[REF]", help="A published artifact, to print its JSON.")] = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the artifacts that are published. With REF print one of them.

    Who published each is who signed the act; its author signed the content.
    """

    from contextos.service.pages import MAX_PAGE_ITEMS

    if ref:
        published = with_read_context(workspace, tenant, lambda on: on.app.artifacts.get(on.tenant_id, ref))
        document = published.to_json()
        print_result(document, [json.dumps(document["document"], indent=2)], as_json=as_json)
        return 0

    async def operation(context: CommandContext) -> list[CatalogArtifact]:
        artifacts: list[CatalogArtifact] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await context.app.artifacts.list(context.tenant_id, limit=MAX_PAGE_ITEMS, cursor=cursor)
            artifacts += page.items
            cursor = page.cursor
        return artifacts

    published_artifacts = with_read_context(workspace, tenant, operation)
    documents = [artifact.to_json() for artifact in published_artifacts]
    lines: list[str] = [Heading(f"{'kind':<16}  {'publisher':<16}  ref")]
    for artifact in published_artifacts:
        state = "  withdrawn" if artifact.withdrawn else ""
        lines.append(f"{artifact.kind:<16}  {displayed(artifact.publisher):<16}  {displayed(artifact.ref)}{state}")
    print_result({"artifacts": documents}, lines if published_artifacts else ["nothing is published"], as_json=as_json)
    return 0


def packs_list_command(
    workspace: WorkspaceOption = None, tenant: TenantOption = "", as_json: JsonOption = False
) -> int:
    """List the tenant pins: which packs requests may use."""

    _print_pins(with_read_context(workspace, tenant, active_set), as_json)
    return 0


def pin_command(
    refs: RefsArgument,
    intent: IntentOption,
    expect: ExpectOption,
    by: ByOption,
    key: ActKeyOption = None,
    environment: EnvironmentOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Allow requests that name exactly these refs, for these intents.

    A request that names others, for example an older version, is refused.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> None:
        pin = _build_pin(refs, intent, environment or context.deployment.config.environment)
        proposal = await context.app.configuration.propose_pin(
            context.tenant_id, pin, expected=expect, by=actor, before=_note_effects
        )
        await proposal.signed()

    return _change_pins(operation, workspace, tenant, as_json)


def withdraw_command(
    refs: RefsArgument,
    intent: IntentOption,
    expect: ExpectOption,
    by: ByOption,
    key: ActKeyOption = None,
    environment: EnvironmentOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """End what `pack pin` allowed.

    Approvals that wait under a pack without any pin become void.
    """
    from contextos.deployment.acts.governance import withdraw_pin

    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> None:
        pin = _build_pin(refs, intent, environment or context.deployment.config.environment)
        await withdraw_pin(context.deployment, context.tenant_id, pin, expected=expect, by=actor)

    return _change_pins(operation, workspace, tenant, as_json)


def retire_command(
    ref: Annotated[str, typer.Argument(metavar="REF", help="A published artifact.")],
    expect: ExpectOption,
    by: ByOption,
    key: ActKeyOption = None,
    reason: ReasonOption = "",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Withdraw a published artifact for ever, with all its pins.

    Runs that used it still replay.
    """
    from contextos.deployment.acts.governance import withdraw_artifact

    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> None:
        await withdraw_artifact(context.deployment, context.tenant_id, ref, reason=reason, expected=expect, by=actor)

    return _change_pins(operation, workspace, tenant, as_json)


def _note_effects(problems: list[tuple[str, Problem]]) -> None:
    """Print the effects of a publication as notes, before anything is published."""
    for _, problem in problems:
        print_note(f"note: {displayed(str(problem))}")


def _build_pin(refs: list[str], intents: list[str], environment: str) -> PackPin:
    from contextos.contracts.acts import PackPin
    from contextos.contracts.encoding.codec import parse

    fields = {"refs": sorted(set(refs)), "intents": sorted(set(intents)), "environment": environment}
    return parse(PackPin, fields)


def _change_pins(
    act: Callable[[CommandContext], Awaitable[None]], workspace: Path | None, tenant: str, as_json: bool
) -> int:
    async def operation(context: CommandContext) -> InForce:
        await act(context)
        return await active_set(context)

    _print_pins(with_unchecked_context(workspace, tenant, operation), as_json)
    return 0


def _print_pins(in_force: InForce, as_json: bool) -> None:
    active, unmatched = in_force
    lines: list[str] = [Heading(f"{'where':<9}  {'intents':<24}  refs")]
    lines += [
        f"{pin.environment:<9}  {displayed(', '.join(pin.intents)):<24}  {displayed(', '.join(pin.refs))}"
        for pin in active.packs
    ]
    if not active.packs:
        lines = ["no pack is pinned, so no request is accepted"]
    lines += [f"withdrawn  {displayed(ref)}" for ref in sorted(active.withdrawn)]
    lines += unmatched_lines(unmatched)
    document: dict[str, Any] = {
        "version": active.version,
        "packs": [pin.to_json() for pin in active.packs],
        "withdrawn": sorted(active.withdrawn),
        "unmatched": unmatched_documents(unmatched),
    }
    print_result(document, [*lines, f"version {active.version}"], as_json=as_json)
