"""Makes new workspaces: each is filled from a template in a temporary directory, and moved to its path in one step.

The folder of a template is copied as it is. Then the runtime gets keys, and so does each person whom `directory.json`
lists among the approvers.
Refuses a path that is not empty. After a crash the path has no workspace, and the same command works again.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from contextos.errors import InvalidInput, Problem
from contextos.files import why_unwritten

KEYS_FOLDER: Final = "keys"
PACKS_FOLDER: Final = "packs"
DIRECTORY_FILE: Final = "directory.json"
GIT_IGNORED: Final = f"""\
# Private keys, what the runtime stores, and caches belong in no repository.
{KEYS_FOLDER}/
*.db
*.db-*
*.db.owners/
__pycache__/
"""


def example_folder(name: str) -> Path:
    """Return the directory of a shipped example, in the installed package or in the source tree."""
    import contextos

    package = Path(contextos.__file__).parent
    for place in (package / "_examples" / name, package.parents[1] / "examples" / name):
        if place.is_dir():
            return place
    raise InvalidInput(Problem("", "no_example", f"the example `{name}` is not installed", "install contextos again"))


@contextmanager
def new_workspace(path: Path) -> Iterator[Path]:
    """Yield a directory beside `path` with a `.gitignore` alone. It becomes `path` when the block ends without an
    error; after an error it is removed. Directories above `path` are made.

    Raises:
        InvalidInput: `path` is not empty, is the current directory, is not a directory, or cannot be written.
    """
    try:
        place = _resolve(path)
        _check_place(path, place)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name[:64]}-", suffix=".part", dir=place.parent))
        try:
            (draft / ".gitignore").write_text(GIT_IGNORED, "utf-8")
            yield draft
            # Fails if `path` got content meanwhile.
            os.rename(draft, place)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        reason = f"it cannot be used: {why_unwritten(error)}"
        raise _refusal(path, reason, "name a directory that you can write to") from None
    except ValueError:
        raise _refusal(path, "its name holds a null character", "name another directory") from None


def _resolve(path: Path) -> Path:
    """Return the absolute path without links. Raises `OSError` for links in a circle, as Python does from 3.13 on."""
    try:
        return path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


def _check_place(path: Path, place: Path) -> None:
    if not place.name:
        raise _refusal(path, "it is the root of the file system", "name a new directory")
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise _refusal(path, "it is not a directory", "name a new directory")
    if any(place.iterdir()):
        raise _refusal(path, "it is not empty", "name a new directory")
    if place == Path.cwd():
        raise _refusal(path, "the current directory cannot be replaced", "name a new directory in it")


def copy_template(name: str, path: Path, over: str | None = None) -> None:
    """Make a workspace in `path` from the shipped folder `name`. A file of the folder `over` replaces the file of
    `name` with the same path. Raises as `new_workspace`.
    """
    from contextos.workspace import make_keys

    with new_workspace(path) as workspace:
        ignored = shutil.ignore_patterns("__pycache__", KEYS_FOLDER)
        for folder in (name, *((over,) if over else ())):
            shutil.copytree(example_folder(folder), workspace, dirs_exist_ok=True, ignore=ignored)
        (workspace / PACKS_FOLDER).mkdir(exist_ok=True)
        make_keys(workspace / KEYS_FOLDER)
        directory = json.loads((workspace / DIRECTORY_FILE).read_text("utf-8"))
        for tenant_id, tenant_part in directory.items():
            directory[tenant_id] = with_new_keys(tenant_part, workspace / KEYS_FOLDER)
        write_json(workspace / DIRECTORY_FILE, directory)


def with_new_keys(listed: Mapping[str, Any], folder: Path, people: Collection[str] | None = None) -> dict[str, Any]:
    """Write a key file for each of `people` (None: everybody) among a tenant's approvers. Return the tenant's part of
    the directory with the public halves.
    """
    from contextos.trust.seal import listed_key
    from contextos.workspace import write_seed

    def with_key(person: Mapping[str, Any]) -> dict[str, Any]:
        if people is not None and person["approver_id"] not in people:
            return dict(person)
        return {**person, "keys": [listed_key(write_seed(folder / f"{person['approver_id']}.key"))]}

    return {**listed, "approvers": [with_key(person) for person in listed["approvers"]]}


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON to a file of a new workspace. Make the directory of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + os.linesep, encoding="utf-8")


def _refusal(path: Path, reason: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem("", "not_a_directory", f"`{path}`: {reason}", remedy))
