"""Finds the files that the code of an adapter can run beside its own, and computes their digest.

Code that only has import statements is bound to the files that Python will find for the imported names: to their
distributions and all that these require, and to whole packages of no distribution with the imports of the packages.
Code that runs other code by a name or a path (`importlib`, `exec`, `runpy`, a subprocess and the like) is bound to all
that this process can import, and to each file of its workspace that looks like code or that it names. All code is bound
to the files that Python runs at its start (`.pth`, `sitecustomize`). A module is of the standard library by its place.
"""

from __future__ import annotations

import csv
import math
import os
import pkgutil
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from time import monotonic
from typing import Final

from contextos.adapters.function.imports import Imports, read_imports
from contextos.adapters.function.trees import (
    INSTALLED_FOLDERS,
    LOOSE_FOLDER,
    MODULE,
    START_FILES,
    STATED,
    WORKSPACE,
    Tree,
    file_digest,
    folder_sign,
)
from contextos.contracts.encoding.jcs import content_address

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA: Final = re.compile(r"\bextra\s*==")
_OWN_PACKAGES: Final = frozenset({"contextos"})
_AT_START: Final = frozenset({"sitecustomize", "usercustomize"})
_PROGRAM: Final = os.path.realpath(sys.path[0] if sys.path else "")
"""The folder of the program: the first entry of `sys.path` when this module was imported."""
_STANDARD: Final = tuple({os.path.realpath(os.path.dirname(os.__file__)), sysconfig.get_path("stdlib")})


@dataclass(slots=True)
class PackageFiles:
    """The files that code with these imports can run beside its own. `workspace` is the folder of its workspace; an
    object that an application made has none, and then the folders of the program count instead.

    `now` returns None once a file differs from its first state: then nobody knows which version this process runs. It
    always returns None if some code comes from no file (`without_files` has the names of the modules).
    """

    imports: Imports
    workspace: Path | None = None
    without_files: tuple[str, ...] = ()
    _trees: dict[str, Path] = field(default_factory=dict)
    _absent_names: tuple[str, ...] = ()
    _origins: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    _path: tuple[object, ...] = ()
    _seen_trees: Mapping[str, Tree] = field(default_factory=dict)
    _first_digest: str | None = None
    _loose_tree: Tree = field(default_factory=partial(Tree.joined, ()))
    _installed_until: float = 0.0

    def __post_init__(self) -> None:
        self._path = _path_signs()
        closure = _Closure(self.imports.runs_others)
        closure.follow(self.imports.names | _AT_START)
        closure.trees |= {f"{START_FILES}{number}": Path(path) for number, path in enumerate(_import_places(_is_site))}
        if closure.runs_others:
            closure.trees |= dict(self._search_places())
        self._trees, self._absent_names = closure.trees, tuple(sorted(closure.absent))
        self.without_files, self._origins = tuple(sorted(closure.without_files)), closure.origins
        self._current_digest()

    @classmethod
    def of(cls, imports: Imports, workspace: Path | None = None) -> PackageFiles:
        """Return the files of these imports. A result is shared while its imports, `workspace` and the import path are
        the same and its files have not changed.
        """
        key = imports, workspace, tuple(_import_places(lambda _: True))
        files = _SHARED_FILES.get(key)
        if files is None or files.now() is None:
            files = _SHARED_FILES[key] = cls(imports, workspace)
        return files

    def now(self) -> str | None:
        """Return the digest of these files, or None if one is not as it was when this process began to use them."""
        path = _path_signs()
        if path != self._path and any(
            _origins(_find_spec(name), name) != places for name, places in self._origins.items()
        ):
            return None
        self._path = path
        return self._first_digest if not self.without_files and self._current_digest() == self._first_digest else None

    def _current_digest(self) -> str:
        # Installed files are not looked at again before their time has passed (`Tree.until`).
        is_due = monotonic() >= self._installed_until
        if self._first_digest is not None and not is_due and self._loose_tree.is_as_seen():
            return self._first_digest
        seen = self._seen_trees
        fresh = {label: self._tree(label) for label in self._trees if label not in seen or not seen[label].is_as_seen()}
        if self._first_digest is None or any(fresh[label].files != seen[label].files for label in fresh):
            trees = {**seen, **fresh}.values()
            digests = {_ascii_key(key): file_digest(*file) for tree in trees for key, file in tree.files.items()}
            content_digest = content_address({"files": digests, "absent": list(self._absent_names)})
            if self._first_digest not in (None, content_digest):
                return content_digest
            self._first_digest = content_digest
        self._seen_trees = seen = {**seen, **fresh}
        if fresh:
            self._loose_tree = Tree.joined([tree for tree in seen.values() if not tree.is_installed])
        self._installed_until = min((tree.until for tree in seen.values() if tree.is_installed), default=math.inf)
        return self._first_digest

    def _tree(self, label: str) -> Tree:
        return Tree.of(label, self._trees[label], self.imports.texts)

    def _search_places(self) -> Iterator[tuple[str, Path]]:
        """Yield (label, folder) of each place that this process imports from, without the standard library."""
        yield from ((f"site{number}", Path(path)) for number, path in enumerate(_import_places(_is_site)))
        # The commands of a workspace are other programs than its service, and their folders are not the tools'.
        loose = [
            path
            for path in _import_places(_is_loose_place)
            if self.workspace is None or os.path.realpath(path) != _PROGRAM
        ]
        yield from ((f"{LOOSE_FOLDER}{number}", Path(path)) for number, path in enumerate(loose))
        if self.workspace is not None:
            yield WORKSPACE, self.workspace
        if sys.prefix != sys.base_prefix:
            yield f"{LOOSE_FOLDER}/scripts", Path(sysconfig.get_path("scripts"))


_SHARED_FILES: Final[dict[tuple[Imports, Path | None, tuple[str, ...]], PackageFiles]] = {}


class _Closure:
    """Follows imports to the distributions and the files that they lead to."""

    def __init__(self, runs_others: bool) -> None:
        self.runs_others = runs_others
        self.trees: dict[str, Path] = {}
        self.absent: set[str] = set()
        self.without_files: set[str] = set()
        self.origins: dict[str, Sequence[str] | None] = {}
        self._visited: set[str] = set()
        self._required: set[tuple[str, bool]] = set()

    def follow(self, names: Collection[str]) -> None:
        """Add the files and distributions that these absolute dotted names lead to."""
        for name in sorted(names):
            top = name.partition(".")[0]
            if name in self._visited or not top or top in _OWN_PACKAGES:
                continue
            self._visited.add(name)
            spec = _find_spec(top)
            places = self.origins[top] = _origins(spec, top)
            if places is not None and _is_standard(spec, places):
                continue
            if places is None:
                self.absent.add(top)
                continue
            for owner in _owners().get(top, ()):
                self._add_distribution(owner, is_named=True)
            if not places:
                self.without_files.add(top)
            else:
                self._add_module(name, spec, places)

    def _add_distribution(self, owner: str, *, is_named: bool) -> None:
        """Add a distribution and all it requires. With `is_named` also the installed requirements of its extras."""
        key = _normal_name(owner)
        if {(key, True), (key, is_named)} & self._required or key in _OWN_PACKAGES:
            return
        self._required.add((key, is_named))
        distribution = _distributions().get(key)
        if distribution is None:
            self.absent.add(key)
            return
        for entry in _top_entries(distribution):
            self.trees[f"package/{key}/{entry}"] = Path(str(distribution.locate_file(entry)))
        for text in distribution.requires or ():
            match = _NAME.match(text)
            name = _normal_name(match[0]) if match else ""
            if name and (name in _distributions() or ";" not in text) and (is_named or not _EXTRA.search(text)):
                self._add_distribution(name, is_named="[" in text.partition(";")[0])

    def _add_module(self, name: str, spec: ModuleSpec | None, places: Sequence[str]) -> None:
        """Add a module that belongs to no distribution, with its whole package, and follow its imports."""
        top, *rest = name.split(".")
        for number, place in enumerate(places):
            if not self._is_bound(place):
                self.trees[f"{MODULE}/{top}/{number}"] = Path(_file_of(place))
        self._follow_module(top, spec, places[0])
        for part in rest:
            within = spec.submodule_search_locations if spec is not None else None
            top, spec = f"{top}.{part}", _find_spec(f"{top}.{part}", within or ())
            if spec is None:
                return
            self._follow_module(top, spec, spec.origin or "")

    def _follow_module(self, name: str, spec: ModuleSpec | None, origin: str) -> None:
        """Follow the imports of a module. Code without a readable source counts as code that runs other code."""
        if f"{name}:" in self._visited or self._is_bound(origin, "package/"):
            return
        self._visited.add(f"{name}:")
        if spec is None or spec.loader is None:
            return
        try:
            source = getattr(spec.loader, "get_source", lambda _: None)(name)
            is_package = spec.submodule_search_locations is not None
            imports = Imports(runs_others=True) if source is None else read_imports(source, name, is_package=is_package)
        except ImportError:
            imports = Imports(runs_others=True)
        except (SyntaxError, ValueError):
            # The module cannot run, and cannot change into one that runs, because its bytes are bound.
            return
        self.runs_others = self.runs_others or imports.runs_others
        self.follow(imports.names)

    def _is_bound(self, place: str, kind: str = "") -> bool:
        place = os.fspath(Path(place))
        trees = (os.fspath(tree) for label, tree in self.trees.items() if label.startswith(kind))
        return any(place == tree or place.startswith(f"{tree}{os.sep}") for tree in trees)


def _find_spec(name: str, within: Iterable[str] | None = None) -> ModuleSpec | None:
    """Return the spec that Python will find for a name, or None; `within` has the folders of its package, if any."""
    if within is None:
        specs = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        return next((spec for spec in specs if spec is not None), None)
    portions: list[str] = []
    for place in within:
        finder = pkgutil.get_importer(place)
        spec = finder.find_spec(name) if finder is not None else None
        if spec is not None and spec.loader is not None:
            return spec
        portions += (spec.submodule_search_locations or ()) if spec is not None else ()
    if not portions:
        return None
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _origins(spec: ModuleSpec | None, name: str) -> Sequence[str] | None:
    """Return the folders and files of a module. None: there is no such module. (): it comes from no file."""
    if spec is None:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        return (file,) if isinstance(file, str) else None if module is None else ()
    folders = tuple(spec.submodule_search_locations or ())
    file = spec.origin if spec.has_location and spec.origin else None
    places = folders if file is None or os.path.dirname(file) in folders else (*folders, file)
    return tuple(place for place in places if os.path.exists(_file_of(place)))


def _ascii_key(key: str) -> str:
    """Return the key of a file as ASCII. The bytes of any other key are written in hex, as they can be no text."""
    return key if key.isascii() else f"//{os.fsencode(key).hex()}"


def _file_of(place: str) -> str:
    """Return the archive that contains `place`, or `place` itself if it is not in an archive."""
    inner = place
    while not os.path.exists(inner) and inner != os.path.dirname(inner):
        inner = os.path.dirname(inner)
    return inner if os.path.isfile(inner) else place


def _is_standard(spec: ModuleSpec | None, places: Sequence[str]) -> bool:
    if spec is not None and spec.origin in ("built-in", "frozen"):
        return True
    return bool(places) and all(_is_below_standard(place) for place in places)


def _is_below_standard(place: str) -> bool:
    rest = [place.removeprefix(root) for root in _STANDARD if place.startswith(f"{root}{os.sep}") or place == root]
    return bool(rest) and not any(f"{os.sep}{name}{os.sep}" in f"{rest[0]}{os.sep}" for name in INSTALLED_FOLDERS)


def _top_entries(distribution: metadata.Distribution) -> list[str]:
    """Return the top-level files and folders of a distribution, and the files of its metadata that count (`STATED`)."""
    paths = {file.parts for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    tops = {path[0] for path in paths if not path[0].endswith((".dist-info", ".egg-info"))}
    if not paths:
        tops = set((distribution.read_text("top_level.txt") or "").split())
        tops |= {f"{top}.py" for top in tops}
    tops |= {"/".join(path) for path in paths if path[0].endswith((".dist-info", ".egg-info")) and path[-1] in STATED}
    return sorted(tops)


def _owners() -> Mapping[str, Sequence[str]]:
    """Return the names of the distributions that have a top-level module, by the name of the module."""
    return _scan_path(_path_signs())[0]


def _distributions() -> Mapping[str, metadata.Distribution]:
    return _scan_path(_path_signs())[1]


def _import_places(predicate: Callable[[str], bool]) -> list[str]:
    """Return the places of `sys.path` for which `predicate` is true, each once."""
    places = {os.path.realpath(place): place or os.getcwd() for place in reversed(sys.path)}
    return [place for place in reversed(places.values()) if predicate(place)]


def _is_site(place: str) -> bool:
    return os.path.basename(place) in INSTALLED_FOLDERS


def _is_loose_place(place: str) -> bool:
    return not _is_site(place) and not _is_below_standard(place) and os.path.exists(place)


def _path_signs() -> tuple[object, ...]:
    """Return the finders of `sys.meta_path` and the status of each place of `sys.path`: a new module changes them."""
    signs: list[object] = [*map(id, sys.meta_path)]
    for place in dict.fromkeys(sys.path):
        try:
            signs.append((place, folder_sign(os.stat(place or os.getcwd()))))
        except OSError:
            continue
    return tuple(signs)


@lru_cache(maxsize=8)
def _scan_path(signs: tuple[object, ...]) -> tuple[Mapping[str, Sequence[str]], Mapping[str, metadata.Distribution]]:
    owners: dict[str, list[str]] = {}
    distributions: dict[str, metadata.Distribution] = {}
    for name, tops, distribution in (row for sign in signs if isinstance(sign, tuple) for row in _scan_folder(sign)):
        # Python imports the first distribution of a name on the path.
        distributions.setdefault(name, distribution)
        for top in tops:
            owners.setdefault(top, []).append(name)
    return owners, distributions


@lru_cache(maxsize=64)
def _scan_folder(sign: tuple[object, ...]) -> Sequence[tuple[str, Collection[str], metadata.Distribution]]:
    """Return (name, top-level modules, distribution) of each distribution in one folder of the path."""
    pairs = ((dist.metadata["Name"], dist) for dist in metadata.distributions(path=[str(sign[0]) or os.getcwd()]))
    return [(_normal_name(name), _top_modules(dist), dist) for name, dist in pairs if name]


def _top_modules(distribution: metadata.Distribution) -> Collection[str]:
    declared = (distribution.read_text("top_level.txt") or "").split()
    # `distribution.files` makes a `Path` for each of some ten thousand files: that would take most of a start.
    paths = [row[0] for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()) if row]
    files = paths or [file.as_posix() for file in distribution.files or ()]
    return declared or {path.partition("/")[0].removesuffix(".py") for path in files if path.endswith(".py")}


def _normal_name(name: str) -> str:
    """Return the normal form of a distribution's name: lower case, with `-` for each run of `-`, `_` and `.`."""
    return re.sub(r"[-_.]+", "-", name).lower()
