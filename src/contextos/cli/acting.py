"""The options by which the actor of an operator act is named and proved: `--by ID --key FILE`.

Without a key the actor is only named. That is a stand-in for development: the settings must allow it, this module says
so on the terminal, and the record of the act says so too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.terminal import print_note
from contextos.contracts.encoding.display_escape import displayed

if TYPE_CHECKING:
    from contextos.operations.acts.act import Actor

ByOption = Annotated[str, typer.Option("--by", metavar="ID", help="Id of the person who acts, as in the directory.")]
ActKeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with their private key: 32 bytes in hex.")
]
ExpectOption = Annotated[
    int, typer.Option("--expect", metavar="VERSION", min=0, help="The version of the active set that you looked at.")
]


def named_actor(by: str, key: Path | None) -> Actor:
    """Return the actor, who signs with the key in the file `key`, or is only named if it is None."""
    from contextos.operations.acts.act import Actor, unsafe_local_assertion

    def only_named(statement: Mapping[str, Any]) -> Mapping[str, Any]:
        print_note(f"unsafe: {displayed(by)} is named and not proved; sign with --key FILE")
        return unsafe_local_assertion(statement)

    if key is None:
        return Actor(by, only_named)
    from contextos.app import read_seed

    return Actor.with_key(by, read_seed(key))
