"""`slots register-extension`, `add-artifact`, `add-revision`, `classify`, `archive`, `tombstone`: manage artifacts.

Nothing is rewritten: content is appended as a revision, an assertion is added, and an archived one is final.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    read_file,
    with_context,
)
from contextos.cli.terminal import REFUSED, print_result
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    pass

OrgOption = Annotated[str, typer.Option("--org", metavar="ID", help="The organisation that owns the artifact.")]
ArtifactArgument = Annotated[str, typer.Argument(metavar="ARTIFACT", help="The artifact's id within its organisation.")]
ExtensionArgument = Annotated[str, typer.Argument(metavar="EXTENSION", help="A package name, like @acme/icp.")]

UTF8: Final = "utf-8"


def register_extension_command(
    extension: ExtensionArgument,
    by: ByOption,
    key: ActKeyOption = None,
    satisfies: Annotated[
        list[str] | None,
        typer.Option("--satisfies", metavar="EXTENSION", help="An extension that it can be used as. Repeatable."),
    ] = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Install an artifact extension, or change what it satisfies."""
    from contextos.contracts.encoding.codec import parse
    from contextos.contracts.envelopes.artifacts import ExtensionManifest
    from contextos.deployment.acts.curation import register_extension

    manifest = parse(ExtensionManifest, {"extension": extension, "satisfies": satisfies or []})
    _curate(workspace, tenant, by, key, register_extension, manifest)
    print_result(manifest.to_json(), [f"{extension} is installed"], as_json=as_json)
    return 0


def add_artifact_command(
    artifact: ArtifactArgument,
    org: OrgOption,
    title: Annotated[str, typer.Option("--title", help="The title that people see when they choose.")],
    owner: Annotated[
        str, typer.Option("--owner", metavar="LEVEL:ID", help="user:, team:, organization: or workspace: and an id.")
    ],
    by: ByOption,
    key: ActKeyOption = None,
    visibility: Annotated[
        str, typer.Option("--visibility", help="owner, org, workspace, admin, team:ID or project:ID.")
    ] = "owner",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Add an artifact without content.

    Add content with `add-revision` and assert an extension with `classify`.
    """
    from contextos.deployment.acts.curation import add_artifact

    level, _, owner_id = owner.partition(":")
    fields = {
        "artifact_id": artifact,
        "org_id": org,
        "title": title,
        "owner_level": level,
        "owner_id": owner_id,
        "visibility": visibility,
    }
    added = _curate(workspace, tenant, by, key, add_artifact, fields)
    print_result(added.to_json(), [f"{artifact} is added"], as_json=as_json)
    return 0


def add_revision_command(
    artifact: ArtifactArgument,
    org: OrgOption,
    file: Annotated[Path, typer.Option("--file", help="The content: UTF-8 text; `-` is stdin.")],
    by: ByOption,
    key: ActKeyOption = None,
    mime: Annotated[str, typer.Option("--mime", help="What kind of text it is.")] = "text/markdown",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Append content to an artifact as its next revision."""
    from contextos.deployment.acts.curation import add_revision
    from contextos.errors import InvalidInput, Problem

    try:
        content = read_file(file).decode(UTF8)
    except UnicodeDecodeError:
        detail = f"`{file}` is not UTF-8"
        raise InvalidInput(Problem("/content", "not_utf8", detail, "pass UTF-8 text")) from None
    fields = {"artifact_id": artifact, "org_id": org, "mime": mime, "content": content}
    revision = _curate(workspace, tenant, by, key, add_revision, fields)
    body = {name: value for name, value in revision.to_json().items() if name != "content"}
    print_result(body, [f"{artifact} has revision {revision.revision}: {revision.revision_id}"], as_json=as_json)
    return 0


def classify_command(
    artifact: ArtifactArgument,
    extension: ExtensionArgument,
    org: OrgOption,
    by: ByOption,
    key: ActKeyOption = None,
    asserted_by: Annotated[
        str, typer.Option("--as", help="user, authoring_skill, agent or matcher (a matcher makes drafts).")
    ] = "user",
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Assert that an artifact is of an extension.

    A stronger assertion replaces a weaker one, and a weaker one is refused.
    """
    from contextos.contracts.envelopes.artifacts import Outranked
    from contextos.deployment.acts.curation import classify_artifact

    fields = {"artifact_id": artifact, "org_id": org, "extension": extension, "asserted_by": asserted_by}
    assertion = _curate(workspace, tenant, by, key, classify_artifact, fields)
    if isinstance(assertion, Outranked):
        objection = f"{displayed(assertion.by.principal_id)} asserted otherwise as {assertion.by.asserted_by}"
        line = f"refused: {objection}, which is stronger"
        print_result({"outranked": assertion.to_json()}, [line], as_json=as_json)
        return REFUSED
    line = f"{artifact} is {extension} ({assertion.eligibility}): {assertion.assertion_id}"
    print_result(assertion.to_json(), [line], as_json=as_json)
    return 0


def archive_command(
    artifact: ArtifactArgument,
    extension: ExtensionArgument,
    org: OrgOption,
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """End an assertion about an artifact.

    Revisions that were pinned under it stay readable.
    """
    from contextos.deployment.acts.curation import archive_assertion

    _curate(workspace, tenant, by, key, archive_assertion, org, artifact, extension)
    body = {"artifact_id": artifact, "extension": extension}
    print_result(body, [f"{displayed(artifact)} is no longer {displayed(extension)}"], as_json=as_json)
    return 0


def tombstone_command(
    artifact: ArtifactArgument,
    org: OrgOption,
    by: ByOption,
    key: ActKeyOption = None,
    workspace: WorkspaceOption = None,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """Hide an artifact from every later selection.

    Revisions that were pinned stay readable.
    """
    from contextos.deployment.acts.curation import delete_artifact

    _curate(workspace, tenant, by, key, delete_artifact, org, artifact)
    print_result({"artifact_id": artifact}, [f"{displayed(artifact)} is hidden from now on"], as_json=as_json)
    return 0


def _curate(
    workspace: Path | None, tenant: str, by: str, key: Path | None, act: Callable[..., Awaitable[Any]], *args: Any
) -> Any:
    """Do `act`, which changes the artifacts of the tenant, with `args` as the actor of `--by` and `--key`."""

    async def operation(context: CommandContext) -> Any:
        return await act(context.deployment, context.tenant_id, *args, by=named_actor(by, key))

    return with_context(workspace, tenant, operation)
