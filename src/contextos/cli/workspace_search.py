"""Finds the workspace of a command that names none: from the current directory upwards, as git finds a repository."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from contextos.errors import InvalidSettings, Problem

DEFAULT_NAME: Final = ".contextos"
"""The name of the subdirectory that can be the workspace of a directory."""


def find_workspace(named: Path | None) -> Path:
    """Return the workspace `named`, or for None the nearest workspace.

    From the current directory upwards, the first directory counts that is a workspace or has one in `.contextos`.

    A workspace names the code that its commands load. So a workspace that was found must belong to the user of this
    process, and not be writable by everybody: a directory such as `/tmp` can have a workspace of another user.

    Raises:
        InvalidSettings: there is no workspace, or the nearest one is not this user's own; names the remedy.
    """
    from contextos.workspace.settings import SETTINGS_FILE

    if named is not None:
        return named
    try:
        current = Path.cwd()
    except OSError:
        detail, remedy = "the current directory does not exist any more", "change to another, or pass -w DIR"
        raise InvalidSettings(Problem("", "no_workspace", detail, remedy)) from None
    for folder in (current, *current.parents):
        for place in (folder, folder / DEFAULT_NAME):
            if os.path.lexists(place / SETTINGS_FILE):
                _check_own(place, place / SETTINGS_FILE)
                return place
    detail = f"neither `{current}` nor a directory above it holds `{SETTINGS_FILE}` or `{DEFAULT_NAME}/{SETTINGS_FILE}`"
    remedy = "make a workspace with `contextos init DIR`, or name one with -w DIR"
    raise InvalidSettings(Problem("", "no_workspace", detail, remedy))


def _check_own(place: Path, settings_file: Path) -> None:
    """Raise `InvalidSettings` for a found workspace that belongs to another user or that everybody can write into."""
    try:
        status = (os.stat(place), os.lstat(settings_file))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    else:
        foreign = any(entry.st_uid != os.geteuid() for entry in status)
        open_to_all = any(entry.st_mode & stat.S_IWOTH and not stat.S_ISLNK(entry.st_mode) for entry in status)
        reason = "it belongs to another user" if foreign else "every user can write into it" if open_to_all else ""
    if reason:
        detail = f"the workspace `{place}` was found and is not used: {reason}"
        raise InvalidSettings(Problem("", "not_own_workspace", detail, "if you trust it, name it with -w DIR"))
