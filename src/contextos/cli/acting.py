"""The options that name and prove the actor of an operator act: `--by ID --key FILE`.

Without a key the actor is named and not proved. This is for development: the settings must allow it, the terminal shows
a note, and the record of the act says so too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from contextos.cli.terminal import print_note
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.deployment.acts.act import Actor

PASSPHRASE_VARIABLE: Final = "CONTEXTOS_PASSPHRASE_FILE"

ByOption = Annotated[str, typer.Option("--by", metavar="ID", help="Id of the person who acts, as in the directory.")]
ActKeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with their private key, as `key new` makes it.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="The reason; it is recorded and signed.")]
ExpectOption = Annotated[
    int, typer.Option("--expect", metavar="VERSION", min=0, help="The version of the active set that you looked at.")
]


def named_actor(by: str, key: Path | None) -> Actor:
    """Return the actor, who signs with the key in the file `key`, or signs nothing if `key` is None."""
    from contextos.deployment.acts.act import Actor, unsafe_local_assertion

    def unsigned(statement: Mapping[str, Any]) -> Mapping[str, Any]:
        print_note(f"unsafe: {displayed(by)} is named and not proved; sign with --key FILE")
        return unsafe_local_assertion(statement)

    return Actor(by, unsigned) if key is None else Actor.with_key(by, person_key(key))


def person_key(path: Path) -> bytes:
    """Return the private key (32 raw bytes) in a person's key file, plain or encrypted.

    The passphrase of an encrypted file is read from the file that `CONTEXTOS_PASSPHRASE_FILE` names, or asked for at
    the terminal.

    Raises:
        InvalidSettings: the file or its passphrase is wrong.
        InvalidInput: there is no terminal to ask at.
    """
    from contextos.workspace import read_person_key, read_secret

    def passphrase() -> bytes:
        file = os.environ.get(PASSPHRASE_VARIABLE, "")
        if file:
            return read_secret(Path(file), "", f"/{PASSPHRASE_VARIABLE}")
        remedy = f"name a file in {PASSPHRASE_VARIABLE}"
        return _prompt_passphrase(f"Passphrase of {displayed(path.name)}", remedy, twice=False)

    return read_person_key(path, passphrase)


def new_passphrase(file: Path | None) -> bytes:
    """Return the passphrase for a new key: the content of `file`, or what is typed twice at the terminal.

    Raises:
        InvalidSettings: the file cannot be read, is empty, or others can read it.
        InvalidInput: there is no terminal to ask at.
    """
    from contextos.workspace import read_secret

    if file is not None:
        return read_secret(file, "", "/passphrase")
    return _prompt_passphrase("New passphrase", "pass --passphrase-file FILE", twice=True)


def _prompt_passphrase(prompt: str, remedy: str, *, twice: bool) -> bytes:
    if not _has_terminal():
        raise InvalidInput(Problem("", "usage", "there is no terminal to ask for the passphrase at", remedy))
    typed: str = typer.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True)
    return typed.encode()


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
