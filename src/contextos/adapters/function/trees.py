"""The files below a folder that count for the digest of what code can run, and the signs by which a change is seen.

Compiled caches (`__pycache__`) do not count, and of a distribution's metadata only what is the same everywhere.
"""

from __future__ import annotations

import importlib.machinery
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final

from contextos.contracts.encoding.jcs import digest as digest_of

INSTALLED_FOLDERS: Final = ("site-packages", "dist-packages")
LOOSE_FOLDER: Final = "folder"
"""The label of a folder of which only files that look like code count."""
WORKSPACE: Final = "workspace"
"""The label of the workspace: as `LOOSE_FOLDER`, and what the code names counts too."""
MODULE: Final = "module"
"""The label of a package of no distribution: every file counts but what a process writes as it works."""
START_FILES: Final = "start"
"""The label of a folder of which only the `.pth` files count, which each process runs when it starts."""
STATED: Final = frozenset({"METADATA", "PKG-INFO", "entry_points.txt"})
"""The files of a distribution's metadata that count. Others differ by installer and place."""
LOOK_AGAIN_S: float = 1.0
"""For how many seconds what was seen of installed files counts as what they are. An adapter can have thousands of them,
and at each call the status of each would take most of its time. All other files are looked at each time."""
_INSTALLED: Final = ("site", "package", START_FILES)

_RUNTIME: Final = Path(__file__).resolve().parents[2]
_SCRIPTS: Final = frozenset(
    {*importlib.machinery.all_suffixes(), ".pyw", ".pth", ".zip", ".egg", ".sh", ".bash", ".js", ".mjs", ".cjs"}
    | {".ts", ".rb", ".pl", ".php", ".lua", ".sql", ".jar", ".wasm", ".pkl", ".pickle"}
)
"""The endings of files that look like code; a file that can be executed does too."""
_STORES: Final = (".db", ".sqlite", ".sqlite3", "-wal", "-shm", "-journal", ".log", ".lock")
"""The endings of what a process writes as it works. Such a file is data everywhere but in a distribution."""
_RECORDS: Final = (*_STORES, ".json", ".jsonl", ".csv")
"""The endings of what tools write into a workspace. Such a file is data there, also where the code names it."""


@dataclass(slots=True)
class Tree:
    """What was found below one folder, or of one file: the path and the status of each file that counts, by key.

    `others` has a sign of each other place: if it is another one, other files can count now. `looked_at` is when the
    last look began that found all as it was, in seconds of the monotonic clock.
    """

    files: Mapping[str, tuple[str, tuple[int, ...]]]
    others: Mapping[str, tuple[int, ...]]
    is_installed: bool
    looked_at: float
    _looking: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, label: str, root: Path, named: Collection[str] = ()) -> Tree:
        """Return what is there. `named` are names of files and folders that count in the workspace.

        The adapters of a process share what was found of the same folder, as long as it is so.
        """
        first = _first(label)
        key = label, os.fspath(root), frozenset(named) if first == WORKSPACE else frozenset()
        with _LISTING:
            found = _TREES.get(key)
            if found is None or not found.is_as_seen():
                at = monotonic()
                others: dict[str, tuple[int, ...]] = {}
                files = {key: (path, _sign(stated)) for key, path, stated in walk(label, key[1], others, named)}
                found = _TREES[key] = cls(files, others, first in _INSTALLED, at)
            return found

    def is_as_seen(self) -> bool:
        """Return whether the status of every file and folder is what it was, so that nothing has to be listed.

        For installed files it is what was seen up to `LOOK_AGAIN_S` ago.
        """
        asked = monotonic()
        # Threads that ask at once share the look that began after they asked.
        with self._looking:
            if self.looked_at > asked - (LOOK_AGAIN_S if self.is_installed else 0):
                return True
            at = monotonic()
            try:
                found = all(_sign(os.stat(path)) == sign for path, sign in self.files.values()) and all(
                    _other_sign_at(path) == sign for path, sign in self.others.items()
                )
            except OSError:
                found = False
            if found:
                self.looked_at = at
            return found


_LISTING: Final = Lock()
_TREES: Final[dict[tuple[str, str, frozenset[str]], Tree]] = {}


def _first(label: str) -> str:
    """The word that a label begins with."""
    return label.partition("/")[0].rstrip("0123456789")


def walk(
    label: str, root: str, others: dict[str, tuple[int, ...]], named: Collection[str] = ()
) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield (key, path, status) of each file that counts below a folder, or of the file `root` itself, in any order.
    Add to `others` the sign of each other place.
    """
    first = _first(label)
    counts = _Counts(first, frozenset(named) if first == WORKSPACE else frozenset())
    try:
        stated = os.stat(root)
    except OSError:
        others[root] = _GONE
        return
    if not stat.S_ISDIR(stated.st_mode):
        yield label, root, stated
        return
    runtime = os.stat(_RUNTIME)
    # A folder that a link leads back to is looked at once.
    seen = {(runtime.st_dev, runtime.st_ino), (stated.st_dev, stated.st_ino)}
    folders = [(label, root, stated)]
    while folders:
        label, place, stated = folders.pop()
        others[place] = _other_sign(stated)
        try:
            # In one order, so that the same link is the one that is followed.
            entries = sorted(os.scandir(place), key=lambda one: one.name)
        except OSError:
            continue
        for entry in entries:
            try:
                is_folder, status = entry.is_dir(), entry.stat()
            except OSError:
                continue
            if is_folder:
                inode = status.st_dev, status.st_ino
                if inode not in seen and counts.folder(entry):
                    seen.add(inode)
                    folders.append((f"{label}/{entry.name}", entry.path, status))
            elif counts.file(entry.name, status, label):
                yield f"{label}/{entry.name}", entry.path, status
            elif counts.looks_like_code:
                others[entry.path] = _other_sign(status)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Which entries of a folder count. `first` is the word that its label begins with."""

    first: str
    named: frozenset[str]

    @property
    def looks_like_code(self) -> bool:
        """Return whether of this folder only files count that look like code, or are named."""
        return self.first in (LOOSE_FOLDER, WORKSPACE)

    def folder(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        if name in self.named:
            return True
        if name in ("__pycache__", "node_modules", ".git") or self.first == START_FILES:
            return False
        # What is hidden, or holds what was installed and is bound for itself.
        hidden = name.startswith(".") or name in INSTALLED_FOLDERS or os.path.exists(f"{entry.path}/pyvenv.cfg")
        return not (self.looks_like_code and hidden)

    def file(self, name: str, status: os.stat_result, label: str) -> bool:
        if self.first == START_FILES:
            return name.endswith(".pth")
        if ".dist-info/" in f"{label}/":
            return name in STATED
        if self.first == MODULE and name.endswith(_STORES):
            return False
        if not self.looks_like_code or os.path.splitext(name)[1] in _SCRIPTS or status.st_mode & 0o111:
            return True
        return name in self.named and not name.endswith(_RECORDS)


def _sign(stated: os.stat_result) -> tuple[int, ...]:
    return stated.st_dev, stated.st_ino, stated.st_mtime_ns, stated.st_ctime_ns, stated.st_size


def _other_sign(stated: os.stat_result) -> tuple[int, ...]:
    """When a folder got or lost a file, or whether a file that does not count can be executed."""
    return folder_sign(stated) if stat.S_ISDIR(stated.st_mode) else (stated.st_mode & 0o111,)


def folder_sign(stated: os.stat_result) -> tuple[int, ...]:
    """Which folder it is, and when it changed last: the time that `os.utime` does not set."""
    return stated.st_dev, stated.st_ino, stated.st_ctime_ns


def _other_sign_at(path: str) -> tuple[int, ...]:
    try:
        return _other_sign(os.stat(path))
    except OSError:
        return _GONE


_GONE: Final[tuple[int, ...]] = ()
_DIGESTS: Final[dict[str, tuple[tuple[int, ...], str]]] = {}


def file_digest(path: str, sign: tuple[int, ...]) -> str:
    """Return the digest of a file, read again where its status says that it changed. A file that is gone has none."""
    known = _DIGESTS.get(path)
    if known is None or known[0] != sign:
        try:
            known = _DIGESTS[path] = (sign, digest_of(Path(path).read_bytes()))
        except OSError:
            return ""
    return known[1]
