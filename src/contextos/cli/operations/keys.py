"""`key`: make keys of people and of a runtime, list the keys of the runtime, and rotate the key of a purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contextos.cli.acting import ActKeyOption, ByOption, named_actor, new_passphrase
from contextos.cli.command_context import (
    CommandContext,
    JsonOption,
    WorkspaceOption,
    usage_error,
    with_read_context,
    with_unchecked_context,
)
from contextos.cli.layout import moment
from contextos.cli.terminal import Heading, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem
from contextos.files import why_unwritten

if TYPE_CHECKING:
    from contextos.deployment.acts.keys import NewKey
    from contextos.workspace import ListedKey


PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Read the passphrase from here instead of the terminal."),
]


def key_new_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The new key file; with --runtime a directory.")],
    runtime: Annotated[
        bool, typer.Option("--runtime", help="Make the keys of a runtime, one for each purpose, in the directory PATH.")
    ] = False,
    pkcs8: Annotated[
        bool, typer.Option("--pkcs8", help="Encrypt with a passphrase: PKCS#8 files (PEM) instead of plain hex.")
    ] = False,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make a key of a person, or the keys of a runtime. Nothing that exists is replaced.

    Prints the public halves. That of a person belongs into `keys` of their entry in the directory.
    """
    from contextos.trust.seal import listed_key
    from contextos.workspace import make_keys, make_person_key

    if passphrase_file is not None and not pkcs8:
        detail = "a passphrase is for encrypted keys"
        raise usage_error(detail, "add --pkcs8, or leave --passphrase-file out")
    passphrase = new_passphrase(passphrase_file) if pkcs8 else None
    try:
        if runtime:
            keys = make_keys(path, passphrase).listed()
            document: dict[str, object] = {"keys": [key.to_json() for key in keys]}
            lines = [f"{key.purpose:<10} {key.kid}  {key.public_key}" for key in keys]
        else:
            public = listed_key(make_person_key(path, passphrase))
            document, lines = dict(public), [json.dumps(public)]
    except OSError as error:
        reason = "it exists" if isinstance(error, FileExistsError) else why_unwritten(error)
        detail = f"`{displayed(str(path))}` cannot be made: {reason}"
        raise InvalidInput(Problem("", "unwritable", detail, "name another path")) from None
    print_result(document, lines, as_json=as_json)
    return 0


def key_list_command(
    jwks: Annotated[
        str,
        typer.Option(
            "--jwks", metavar="PURPOSE", help="Print those of a purpose as a JWK Set (RFC 7517) for partners."
        ),
    ] = "",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the public keys of the runtime, by purpose."""
    from contextos.trust.seal import PURPOSES, jwk_set

    if jwks and jwks not in PURPOSES:
        detail = f"there is no purpose `{displayed(jwks[:40])}`"
        raise InvalidInput(Problem("/jwks", "unknown_purpose", detail, f"name one of {', '.join(PURPOSES)}"))

    async def operation(context: CommandContext) -> tuple[ListedKey, ...]:
        return context.app.key_files().listed()

    keys = with_read_context(workspace, None, operation)
    if jwks:
        document = jwk_set({key.kid: bytes.fromhex(key.public_key) for key in keys if key.purpose == jwks})
        print_result(document, [json.dumps(document, indent=2)], as_json=as_json)
        return 0
    lines: list[str] = [Heading(f"{'purpose':<8} {'key':<21} {'since':<20} retired")]
    lines += [
        f"{key.purpose:<8} {key.kid:<21} {moment(key.activated_at_us):<20} {moment(key.retired_at_us)}" for key in keys
    ]
    print_result({"keys": [key.to_json() for key in keys]}, lines, as_json=as_json)
    return 0


def key_rotate_command(
    purpose: Annotated[str, typer.Option("--purpose", help="head, claim, export, pack, active or act.")],
    by: ByOption,
    key: ActKeyOption = None,
    now: Annotated[bool, typer.Option("--now", help="On PostgreSQL: the new key signs at once.")] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Replace the key that signs for a purpose.

    The new key signs at once. On PostgreSQL, whose store several machines can share, it signs after an hour: copy
    `keys` to each machine before. What the old key signed still counts. The act is recorded in every tenant. No key is
    rotated while the record of a tenant is ahead of the clock by more than five seconds.
    """
    actor = named_actor(by, key)

    async def operation(context: CommandContext) -> NewKey:
        from contextos.deployment.acts.keys import OVERLAP_US, rotate_key
        from contextos.workspace.settings import is_postgres_url

        after_us = OVERLAP_US if is_postgres_url(context.app.settings.store) and not now else 0
        keys, tenants = context.app.key_files(), context.concerned
        return await rotate_key(context.deployment, keys, tenants, purpose, by=actor, after_us=after_us)

    new = with_unchecked_context(workspace, None, operation)
    since, retired = moment(new.activated_at_us), moment(new.retired_at_us)
    lines = [f"{new.kid} signs for {new.purpose} from {since} on; {new.old_kid} is retired at {retired}"]
    print_result(dict(new._asdict()), lines, as_json=as_json)
    return 0
