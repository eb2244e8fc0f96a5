"""Names the default witness of an embedded deployment: a file in the state folder of the user.

The folder is `$XDG_STATE_HOME/contextos`, by default `~/.local/state/contextos`. The file is named after the path of
the store and the first key for heads of the workspace, neither of which is in the database.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from contextos.errors import InvalidSettings, Problem

STATE_FOLDER: Final = "contextos"
FOLDER_MODE: Final = 0o700
REMEDY: Final = 'name a file in `witness`, or write `witness = "off"` to have none'


def default_witness_path(store: Path, first_kid: str) -> Path:
    """Return the witness file of the SQLite file `store`; `first_kid` is the first key for heads of its workspace.

    Raises:
        InvalidSettings: the user has no home directory, and `XDG_STATE_HOME` names no absolute path.
    """
    state_home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says that a relative path is ignored.
    root = state_home if os.path.isabs(state_home) else os.path.expanduser("~/.local/state")
    if not os.path.isabs(root):
        raise InvalidSettings(Problem("/witness", "no_state_folder", "there is no home for the witness file", REMEDY))
    identity = f"{os.path.realpath(store)}\0{first_kid}".encode("utf-8", "surrogateescape")
    return Path(root, STATE_FOLDER, f"witness-{sha256(identity).hexdigest()[:32]}.jsonl")


def make_state_folder(file: Path) -> None:
    """Make the folder of the witness file `file` for its owner alone.

    Raises:
        InvalidSettings: the folder or the file cannot be written; names the remedy.
    """
    folder = file.parent
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK) and (not file.exists() or os.access(file, os.W_OK))
        reason = "" if writable else "permission denied"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        detail = f"the witness `{file}` cannot be written: {reason}"
        raise InvalidSettings(Problem("/witness", "unwritable", detail, REMEDY))
