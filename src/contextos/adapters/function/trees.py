"""Lists the files below a folder that count for the digest of code, and notices their changes by their status.

Compiled caches (`__pycache__`) do not count, nor does metadata of a distribution that differs by installer or place.
"""

from __future__ import annotations

import importlib.machinery
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final

from contextos.contracts.encoding.jcs import digest as digest_of

INSTALLED_FOLDERS: Final = ("site-packages", "dist-packages")
LOOSE_FOLDER: Final = "folder"
"""The label of a folder in which only files that look like code count."""
WORKSPACE: Final = "workspace"
"""The label of the workspace: as `LOOSE_FOLDER`, and files and folders that the code names count too."""
MODULE: Final = "module"
"""The label of a package of no distribution: every file counts, except data that a process writes (`_STORES`)."""
START_FILES: Final = "start"
"""The label of a folder in which only the `.pth` files count, which Python runs at its start."""
STATED: Final = frozenset({"METADATA", "PKG-INFO", "entry_points.txt"})
"""The files of a distribution's metadata that count. Others differ by installer and place."""
LOOK_AGAIN_S: float = 1.0
"""The least seconds between two looks at installed files. An adapter can have thousands of them, and the status of each
would take most of the time of a call. All other files are looked at each time."""
LOOK_SHARE: Final = 50
"""Installed files are looked at again after this many times the seconds that the last look at all of them took."""
MAX_LOOK_AGAIN_S: Final = 10.0
"""Installed files are looked at again after this many seconds, however long a look takes."""
_INSTALLED: Final = ("site", "package", START_FILES)

_RUNTIME: Final = Path(__file__).resolve().parents[2]
_SCRIPTS: Final = frozenset(
    {*importlib.machinery.all_suffixes(), ".pyw", ".pth", ".zip", ".egg", ".sh", ".bash", ".js", ".mjs", ".cjs"}
    | {".ts", ".rb", ".pl", ".php", ".lua", ".sql", ".jar", ".wasm", ".pkl", ".pickle"}
)
"""The endings of files that look like code; a file that can be executed does too."""
_STORES: Final = (".db", ".sqlite", ".sqlite3", "-wal", "-shm", "-journal", ".log", ".lock")
"""The endings of files that a process writes as it works. Such a file is data everywhere except in a distribution."""
_RECORDS: Final = (*_STORES, ".json", ".jsonl", ".csv")
"""The endings of files that tools write into a workspace. Such a file is data there, even if the code names it."""


FileSign = tuple[int, ...]


@dataclass(slots=True)
class Tree:
    """The files that count below one folder, or one file: by key, the path and the sign of each (`file_sign`).

    `others` has the other places and their signs; if one changes, other files can count. `looked_at` is the start of
    the last look that found no change, in seconds of the monotonic clock. `took_s` is its length in seconds, for
    installed files only.
    """

    files: Mapping[str, tuple[str, FileSign]]
    others: Others
    is_installed: bool
    looked_at: float
    took_s: float = 0.0
    _paths: Sequence[str] = ()
    _signs: Sequence[FileSign] = ()
    _looking: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._paths, self._signs = [path for path, _ in self.files.values()], [sign for _, sign in self.files.values()]

    @classmethod
    def joined(cls, trees: Collection[Tree]) -> Tree:
        """Return one tree of several whose files are not installed, so that one look checks all of them."""
        files, others = dict[str, tuple[str, FileSign]](), Others()
        for tree in trees:
            files |= tree.files
            others.folders |= tree.others.folders
            others.data |= tree.others.data
            others.gone += tree.others.gone
        return cls(files, others, is_installed=False, looked_at=min((tree.looked_at for tree in trees), default=0.0))

    @classmethod
    def of(cls, label: str, root: Path, named: Collection[str] = ()) -> Tree:
        """Return the tree of `root`. `named` are names of files and folders that count in the workspace.

        The adapters of a process share the tree of a folder as long as the folder does not change.
        """
        kind = _label_kind(label)
        key = label, os.fspath(root), frozenset(named) if kind == WORKSPACE else frozenset()
        with _TREES_LOCK:
            tree = _TREES.get(key)
            if tree is None or not tree.is_as_seen():
                start_s, others = monotonic(), Others()
                files = {name: (path, file_sign(status)) for name, path, status in walk(label, key[1], others, named)}
                tree = _TREES[key] = cls(files, others, kind in _INSTALLED, start_s)
            return tree

    @property
    def until(self) -> float:
        """The time (monotonic, seconds) before which the last look counts, so that no other look is needed."""
        if not self.is_installed:
            return self.looked_at
        share_s = LOOK_SHARE * sum(map(_look_time_s, [*_TREES.values()]))
        return self.looked_at + max(LOOK_AGAIN_S, min(share_s, MAX_LOOK_AGAIN_S))

    def is_as_seen(self) -> bool:
        """Return whether the status of every file and folder is unchanged, so that nothing has to be listed again.

        For installed files the last look can be up to `MAX_LOOK_AGAIN_S` seconds old.
        """
        asked_s = monotonic()
        # Threads that ask at the same time share one look, which began after they asked.
        with self._looking:
            if self.until > asked_s:
                return True
            start_s = monotonic()
            try:
                is_unchanged = [*map(file_sign, map(os.stat, self._paths))] == self._signs and self.others.are_as_seen()
            except OSError:
                is_unchanged = False
            if is_unchanged:
                self.looked_at, self.took_s = start_s, monotonic() - start_s if self.is_installed else 0.0
            return is_unchanged


@dataclass(slots=True)
class Others:
    """The places of a tree besides its files: folders, files that do not count (`data`), and absent paths (`gone`)."""

    folders: dict[str, FileSign] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)

    def are_as_seen(self) -> bool:
        """Return whether no place has changed. Raises `OSError` if a place no longer exists."""
        return (
            [*map(folder_sign, map(os.stat, self.folders))] == [*self.folders.values()]
            and [*map(_mode, map(os.stat, self.data))] == [*self.data.values()]
            and not any(map(os.path.exists, self.gone))
        )


_TREES_LOCK: Final = Lock()
_TREES: Final[dict[tuple[str, str, frozenset[str]], Tree]] = {}
_look_time_s: Final[Callable[[Any], float]] = attrgetter("took_s")


def _label_kind(label: str) -> str:
    """Return the first word of a label, without its number."""
    return label.partition("/")[0].rstrip("0123456789")


def walk(
    label: str, root: str, others: Others, named: Collection[str] = ()
) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield (key, path, status) of each file that counts below a folder, or of the file `root` itself, in any order.
    Add to `others` the sign of each other place.
    """
    kind = _label_kind(label)
    counts = _EntryFilter(kind, frozenset(named) if kind == WORKSPACE else frozenset())
    try:
        folder_status = os.stat(root)
    except OSError:
        others.gone.append(root)
        return
    if not stat.S_ISDIR(folder_status.st_mode):
        yield label, root, folder_status
        return
    runtime = os.stat(_RUNTIME)
    # Each folder is looked at once, also if links lead to it again. The runtime's own folder is left out.
    seen = {(runtime.st_dev, runtime.st_ino), (folder_status.st_dev, folder_status.st_ino)}
    folders = [(label, root, folder_status)]
    while folders:
        label, path, folder_status = folders.pop()
        others.folders[path] = folder_sign(folder_status)
        try:
            # A fixed order, so that of several links to a folder always the same is followed.
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
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
                others.data[entry.path] = status.st_mode


@dataclass(frozen=True, slots=True)
class _EntryFilter:
    """Decides which entries of a folder count. `first` is the first word of the label of the folder."""

    first: str
    named: frozenset[str]

    @property
    def looks_like_code(self) -> bool:
        """Whether only those files of this folder count that look like code or are named."""
        return self.first in (LOOSE_FOLDER, WORKSPACE)

    def folder(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        if name in self.named:
            return True
        if name in ("__pycache__", "node_modules", ".git") or self.first == START_FILES:
            return False
        # A hidden folder, or a folder of installed packages, which are bound separately.
        is_hidden = name.startswith(".") or name in INSTALLED_FOLDERS or os.path.exists(f"{entry.path}/pyvenv.cfg")
        return not (self.looks_like_code and is_hidden)

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


file_sign: Final[Callable[[Any], FileSign]] = attrgetter("st_dev", "st_ino", "st_mtime_ns", "st_ctime_ns", "st_size")
folder_sign: Final[Callable[[Any], FileSign]] = attrgetter("st_dev", "st_ino", "st_ctime_ns")
"""The identity of a folder, and the time of its last change that `os.utime` cannot set."""
_mode: Final[Callable[[Any], int]] = attrgetter("st_mode")
_DIGESTS: Final[dict[str, tuple[FileSign, str]]] = {}


def file_digest(path: str, sign: FileSign) -> str:
    """Return the digest of a file, which is read again if its sign changed. "" if the file cannot be read."""
    cached = _DIGESTS.get(path)
    if cached is None or cached[0] != sign:
        try:
            cached = _DIGESTS[path] = (sign, digest_of(Path(path).read_bytes()))
        except OSError:
            return ""
    return cached[1]
