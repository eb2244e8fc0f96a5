"""What the code of an adapter imports beside its own files, and the digest of these files on the disk.

Code that imports by statement is bound to the distributions that it names and to all that these require. A module of
no distribution is bound file by file, and what it imports with it. Code that runs other code by a name or a path
(`importlib`, `exec`, `runpy`, a subprocess and the like) is bound to everything that this process can import, and to
each file of its workspace that looks like code. Compiled caches (`__pycache__`) do not count.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final

from contextos.adapters.function.imports import Imports, read_imports
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.jcs import digest as digest_of

INSTALLED_FOLDERS: Final = ("site-packages", "dist-packages")

_RUNTIME: Final = Path(__file__).resolve().parents[2]
_SKIPPED: Final = frozenset({"__pycache__", "node_modules"})
_STATED: Final = frozenset({"METADATA", "PKG-INFO", "entry_points.txt"})
"""The files of a distribution's metadata that count. Others differ by installer and place."""
_SCRIPTS: Final = frozenset(
    {*importlib.machinery.all_suffixes(), ".pyw", ".pth", ".zip", ".egg", ".sh", ".bash", ".js", ".mjs", ".cjs"}
    | {".ts", ".rb", ".pl", ".php", ".lua", ".sql", ".jar", ".wasm"}
)
"""The endings of files that look like code; a file that starts with `#!` or can be executed does too."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA: Final = re.compile(r"\bextra\s*==")
_OWN: Final = frozenset({"contextos"})
_FOLDER: Final = "folder"
_WORKSPACE: Final = "workspace"
_PROGRAM: Final = Path(os.path.realpath(sys.path[0] if sys.path else ""))
"""The folder of the program, as it was when this module was imported."""


@dataclass(slots=True)
class PackageFiles:
    """The files that code with these imports can run beside its own. `workspace` is the folder of its workspace; an
    object that an application made has none, and then the folders of the program count instead.

    `now` is None once a file differs from what it was at first: then nobody knows which of both this process runs.
    """

    imports: Imports
    workspace: Path | None = None
    _trees: dict[str, Path] = field(default_factory=dict)
    _absent: tuple[str, ...] = ()
    _origins: Mapping[str, str | None] = field(default_factory=dict)
    _seen: Mapping[str, _Tree] = field(default_factory=dict)
    _first: str | None = None

    def __post_init__(self) -> None:
        tops = {one.partition(".")[0] for one in self.imports.names} - _OWN
        found = _Closure(self.imports.runs_others)
        found.follow(self.imports.names)
        if found.runs_others:
            found.trees |= dict(self._everything())
        self._trees, self._absent = found.trees, tuple(sorted(found.absent))
        self._origins = {one: _origin(one) for one in sorted(tops - sys.stdlib_module_names)}
        self._first = self._digest()

    @property
    def is_empty(self) -> bool:
        """Return whether the code imports nothing but the standard library, the runtime and its own files."""
        return not self._trees and not self._absent

    def now(self) -> str | None:
        """Return the digest of these files, or None if one is not as it was when this process began to use them."""
        if any(_origin(one) != place for one, place in self._origins.items()):
            return None
        return self._first if self._digest() == self._first else None

    def _digest(self) -> str:
        now = {label: self._seen.get(label) or _Tree.of(label, root) for label, root in self._trees.items()}
        now |= {label: _Tree.of(label, self._trees[label]) for label, tree in now.items() if not tree.is_as_seen()}
        if self._first is not None and all(now[label].files == tree.files for label, tree in self._seen.items()):
            self._seen = now
            return self._first
        listed = {key: _file_digest(*file) for tree in now.values() for key, file in tree.files.items()}
        found = content_address({"files": listed, "absent": list(self._absent)})
        if self._first in (None, found):
            self._seen = now
        return found

    def _everything(self) -> Iterator[tuple[str, Path]]:
        """The folders that this process imports from, without the standard library and the runtime."""
        standard = Path(sysconfig.get_path("stdlib")).resolve()
        places = [Path(os.path.realpath(one)) for one in dict.fromkeys(sys.path)]
        installed = [one for one in places if one.name in INSTALLED_FOLDERS]
        yield from ((f"site{number}", one) for number, one in enumerate(installed))
        # The commands of a workspace are other programs than its service, and their folders are not the tools'.
        others = [one for one in places if one not in installed and (self.workspace is None or one != _PROGRAM)]
        others = [one for one in others if not one.is_relative_to(standard) and one.suffix != ".zip"]
        yield from ((f"{_FOLDER}{number}", one) for number, one in enumerate(others))
        if self.workspace is not None:
            yield _WORKSPACE, self.workspace
        if sys.prefix != sys.base_prefix:
            yield f"{_FOLDER}/scripts", Path(sysconfig.get_path("scripts"))


@dataclass(frozen=True, slots=True)
class _Tree:
    """What was found below one folder, or of one file: the path and the status of each file that counts, by key.

    `others` has a sign of each other place: if it is another one, other files can count now (`_other_sign`).
    """

    files: Mapping[str, tuple[str, tuple[int, ...]]]
    others: Mapping[str, int]

    @classmethod
    def of(cls, label: str, root: Path) -> _Tree:
        others: dict[str, int] = {}
        files = {key: (path, _sign(stated)) for key, path, stated in _walk(label, os.fspath(root), others)}
        return cls(files, others)

    def is_as_seen(self) -> bool:
        """Return whether the status of every file and folder is what it was, so that nothing has to be listed."""
        try:
            return all(_sign(os.stat(path)) == sign for path, sign in self.files.values()) and all(
                _other_sign_at(path) == sign for path, sign in self.others.items()
            )
        except OSError:
            return False


class _Closure:
    """Follows imports to the distributions and the files that they lead to."""

    def __init__(self, runs_others: bool) -> None:
        self.runs_others = runs_others
        self.trees: dict[str, Path] = {}
        self.absent: set[str] = set()
        self._known: set[str] = set()
        self._required: set[str] = set()

    def follow(self, names: Collection[str]) -> None:
        """Add what these absolute dotted names lead to."""
        for name in sorted(names):
            top = name.partition(".")[0]
            if name in self._known or not top or top in sys.stdlib_module_names or top in _OWN:
                continue
            self._known.add(name)
            for owner in _owners().get(top, ()):
                self._require(owner, named=True)
            places = _places(top)
            if places is None:
                self.absent.add(top)
            elif not any(place.is_relative_to(tree) for place in places for tree in self.trees.values()):
                self._module(name, places)

    def _require(self, owner: str, *, named: bool) -> None:
        """Add a distribution and what it requires; of one that the code names also the extras that are installed."""
        key = _plain(owner)
        if key in self._required or key == _RUNTIME.name:
            return
        self._required.add(key)
        found = _distributions().get(key)
        if found is None:
            self.absent.add(key)
            return
        for entry in _entries(found):
            self.trees[f"package/{key}/{entry}"] = Path(str(found.locate_file(entry)))
        for stated in found.requires or ():
            match = _NAME.match(stated)
            needed = _plain(match[0]) if match else ""
            if needed and (needed in _distributions() or ";" not in stated) and (named or not _EXTRA.search(stated)):
                self._require(needed, named=False)

    def _module(self, name: str, places: Sequence[Path]) -> None:
        """Add the files of a module that no distribution has, and follow what they import."""
        parts = name.split(".")
        for place in places:
            steps = [place] if place.is_file() else [place.joinpath(*parts[1:end]) for end in range(1, len(parts) + 1)]
            for step, end in zip(steps, range(1, len(parts) + 1), strict=False):
                dotted = ".".join(parts[:end])
                file = _module_file(step)
                if file is None or f"module/{dotted}/{file.name}" in self.trees:
                    continue
                self.trees[f"module/{dotted}/{file.name}"] = file
                if file.suffix == ".py":
                    self._read(dotted, file)

    def _read(self, name: str, file: Path) -> None:
        try:
            found = read_imports(file.read_bytes(), name, is_package=file.stem == "__init__", file=str(file))
        except (OSError, SyntaxError, ValueError):
            # It does not run as it is; as its bytes are bound, it does not later either.
            return
        self.runs_others = self.runs_others or found.runs_others
        self.follow(found.names)


def _module_file(place: Path) -> Path | None:
    if place.is_file():
        return place
    for suffix in importlib.machinery.all_suffixes():
        for file in (place / f"__init__{suffix}", place.with_name(place.name + suffix)):
            if file.is_file():
                return file
    return None


def _places(top: str) -> list[Path] | None:
    """Where Python finds a module: its folders or its file. None if there is none, and [] if it has no file."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        file = getattr(sys.modules.get(top), "__file__", None)
        return [Path(file)] if isinstance(file, str) else []
    if spec is None:
        return None
    found = list(spec.submodule_search_locations or ()) or ([spec.origin] if spec.has_location and spec.origin else [])
    return [Path(os.path.realpath(one)) for one in found]


def _origin(top: str) -> str | None:
    places = _places(top)
    return None if places is None else os.pathsep.join(map(str, places))


def _entries(found: metadata.Distribution) -> list[str]:
    """The files and folders of a distribution at the top of the folder that it is installed in."""
    parts = {file.parts for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
    tops = {one[0] for one in parts if not one[0].endswith((".dist-info", ".egg-info"))}
    if not parts:
        tops = set((found.read_text("top_level.txt") or "").split())
        tops |= {f"{one}.py" for one in tops}
    tops |= {"/".join(one) for one in parts if one[0].endswith((".dist-info", ".egg-info")) and one[-1] in _STATED}
    return sorted(tops)


def _owners() -> Mapping[str, Sequence[str]]:
    """The distributions that have a top-level module, by its name."""
    return _installed(_path_signs())[0]


def _distributions() -> Mapping[str, metadata.Distribution]:
    return _installed(_path_signs())[1]


def _path_signs() -> tuple[tuple[str, int], ...]:
    places = [one or os.getcwd() for one in dict.fromkeys(sys.path)]
    return tuple((one, os.stat(one).st_mtime_ns) for one in places if os.path.isdir(one))


@lru_cache(maxsize=8)
def _installed(
    _signs: tuple[tuple[str, int], ...],
) -> tuple[Mapping[str, Sequence[str]], Mapping[str, metadata.Distribution]]:
    found: dict[str, metadata.Distribution] = {}
    for one in metadata.distributions():
        # The first one on the path is the one that is imported.
        if one.metadata["Name"]:
            found.setdefault(_plain(one.metadata["Name"]), one)
    return metadata.packages_distributions(), found


def _plain(name: str) -> str:
    """The name of a distribution in the form in which two spellings of it are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _walk(label: str, root: str, others: dict[str, int]) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield (key, path, status) of each file that counts below a folder, or of the file `root` itself, in any order.
    Add to `others` the sign of each other place (`_other_sign`).
    """
    only_code = label.startswith((_FOLDER, _WORKSPACE))
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
        is_stated = ".dist-info/" in f"{label}/"
        try:
            # In one order, so that the same link is the one that is followed.
            entries = sorted(os.scandir(place), key=lambda one: one.name)
        except OSError:
            continue
        if only_code and place != root and any(one.name == "pyvenv.cfg" for one in entries):
            continue
        for entry in entries:
            name = entry.name
            try:
                is_folder = entry.is_dir()
                if is_folder and (name in _SKIPPED or (only_code and _is_installed(name))):
                    continue
                if not is_folder and is_stated and name not in _STATED:
                    continue
                status = entry.stat()
            except OSError:
                continue
            if not is_folder:
                if not only_code or os.path.splitext(name)[1] in _SCRIPTS or status.st_mode & 0o111:
                    yield f"{label}/{name}", entry.path, status
                else:
                    others[entry.path] = _other_sign(status)
            elif (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                folders.append((f"{label}/{name}", entry.path, status))


def _is_installed(name: str) -> bool:
    """Return whether a folder is hidden, or holds what was installed and is bound for itself."""
    return name.startswith(".") or name in INSTALLED_FOLDERS


def _sign(stated: os.stat_result) -> tuple[int, ...]:
    return stated.st_dev, stated.st_ino, stated.st_mtime_ns, stated.st_ctime_ns, stated.st_size


def _other_sign(stated: os.stat_result) -> int:
    """When a folder got or lost a file, or whether a file that does not count can be executed."""
    return stated.st_mtime_ns if stat.S_ISDIR(stated.st_mode) else stated.st_mode & 0o111


def _other_sign_at(path: str) -> int:
    try:
        return _other_sign(os.stat(path))
    except OSError:
        return _GONE


_GONE: Final = -1
_DIGESTS: Final[dict[str, tuple[tuple[int, ...], str]]] = {}


def _file_digest(path: str, sign: tuple[int, ...]) -> str:
    """The digest of a file, read again where its status says that it changed. A file that is gone has none."""
    known = _DIGESTS.get(path)
    if known is None or known[0] != sign:
        try:
            known = _DIGESTS[path] = (sign, digest_of(Path(path).read_bytes()))
        except OSError:
            return ""
    return known[1]
