"""The source files of a function adapter: an entry, and the helpers beside it that the settings list.

The files are read once. They run from the bytes that were read, as modules of a package of their own
(`contextos_function_<digest>`), so that two versions never mix in one process and no cached bytecode is used. An import
of any other file of the workspace is refused: by reading the code before it runs, and again when it runs.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from contextos.adapters.function.imports import Imports, read_imports
from contextos.adapters.function.trees import INSTALLED_FOLDERS
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.jcs import digest as digest_of

PACKAGE_PREFIX: Final = "contextos_function_"


class UnlistedImport(ImportError):
    """An import of a file of the workspace that the settings do not list for this adapter."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"it imports `{name}` from the workspace, and that file is not listed; add it to `files` of the adapter "
            "with its digest"
        )


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The source code of one adapter entry, as it was read.

    `code` maps the dotted module name of each file, relative to the entry's directory, to its bytes. `paths` maps it to
    the path of the file. The entry comes first. `root` is the workspace.
    """

    root: Path
    code: Mapping[str, bytes]
    paths: Mapping[str, Path]

    @property
    def entry(self) -> str:
        """Return the module name of the entry."""
        return next(iter(self.code))

    @property
    def directory(self) -> Path:
        return self.paths[self.entry].parent

    @property
    def package(self) -> str:
        """Return the name of the package that the files run in. The name depends on every byte of the files and on
        their place, because code can find a file beside itself by `__file__`.
        """
        digests = {name: digest_of(source) for name, source in self.code.items()}
        place = os.fsencode(os.path.realpath(self.directory)).hex()
        return PACKAGE_PREFIX + content_address({"code": digests, "place": place}).removeprefix("sha256:")[:16]

    def holds(self, name: str) -> bool:
        """Return whether a dotted name is one of the files, or a package of some of them."""
        return name in self.code or any(module.startswith(f"{name}.") for module in self.code)

    def is_package(self, name: str) -> bool:
        """Return whether a dotted name is a folder of files; "" is the folder of the entry."""
        file = self.paths.get(name)
        return not name or any(module.startswith(f"{name}.") for module in self.code) or _is_init(file)

    def refuse_unlisted(self, name: str) -> None:
        """Check one absolute import by its dotted name.

        Raises:
            UnlistedImport: the import is a file of the workspace that is not listed.
        """
        top = name.partition(".")[0]
        if not name or self.holds(name) or top == "contextos":
            return
        if self._is_beside(name) or (not self.holds(top) and _is_importable_below(top, self.root)):
            raise UnlistedImport(name)

    def check_imports(self) -> None:
        """Check every import statement of every file, wherever in the file it is, before any of them runs.

        Raises:
            UnlistedImport: an import names a file of the workspace that is not listed.
            SyntaxError: a file is not Python.
        """
        for module in self.code:
            for name in sorted(self._read_imports(module).names):
                self.refuse_unlisted(name)

    def load(self) -> ModuleType:
        """Run the entry, and with it the helpers that it imports; return it. The same bytes at the same place run once
        in a process.

        Raises:
            UnlistedImport: a file of the workspace was imported that is not listed.
        """
        _SOURCES.setdefault(self.package, self)
        loaded_before = set(sys.modules)
        with ExitStack() as on_failure:
            on_failure.callback(self._unload)
            module = importlib.import_module(f"{self.package}.{self.entry}")
            # A helper that is imported later must run the bytes that were read, and not newer bytes on the disk.
            for name in self.code:
                importlib.import_module(f"{self.package}.{name}")
            for name in set(sys.modules) - loaded_before:
                self._refuse_file(name, sys.modules.get(name))
            on_failure.pop_all()
        return module

    def imports(self) -> Imports:
        """Return the imports of the files that are not themselves among the files."""
        result = Imports()
        for module in self.code:
            result |= self._read_imports(module)
        return replace(result, names=frozenset(name for name in result.names if not self.holds(name.partition(".")[0])))

    def _read_imports(self, module: str) -> Imports:
        file = str(self.paths[module])
        return read_imports(self.code[module], module, is_package=self.is_package(module), file=file)

    def _is_beside(self, name: str) -> bool:
        if name.partition(".")[0] in sys.stdlib_module_names:
            return False
        places = [place for place in (self.directory, self.root) if _is_in_workspace(place, self.root)]
        return any(_is_module(place.joinpath(*name.split("."))) for place in places)

    def _unload(self) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == self.package]:
            del sys.modules[name]

    def _refuse_file(self, name: str, module: ModuleType | None) -> None:
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in (self.package, "contextos") or not isinstance(file, str):
            return
        if _is_in_workspace(Path(file), self.root):
            raise UnlistedImport(name)


_SOURCES: Final[dict[str, SourceFiles]] = {}


class _Loader(InspectLoader):
    """Runs one file of a `SourceFiles` from its bytes; a folder without a file of its own is an empty package."""

    def __init__(self, sources: SourceFiles, name: str) -> None:
        self._sources, self._name = sources, name

    def get_source(self, _fullname: str) -> str:
        return importlib.util.decode_source(self._sources.code.get(self._name, b""))

    def exec_module(self, module: ModuleType) -> None:
        sources, name = self._sources, self._name
        if name in sources.code:
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _make_importer(sources)}
            code = compile(sources.code[name], str(sources.paths[name]), "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102 - the bytes whose digest was checked


class _Finder(MetaPathFinder):
    """Finds the modules of loaded adapters, and nothing else."""

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        sources = _SOURCES.get(package)
        if sources is None or (name and not sources.holds(name)):
            return None
        file = sources.paths.get(name)
        spec = ModuleSpec(
            fullname, _Loader(sources, name), origin=str(file) if file else None, is_package=sources.is_package(name)
        )
        spec.has_location = file is not None
        return spec


sys.meta_path.append(_Finder())


def _make_importer(sources: SourceFiles) -> Any:
    """Return the `__import__` of an adapter's modules: listed files come from the bytes that were read."""

    def import_module(
        name: str, variables: Any = None, local: Any = None, members: Any = (), level: int = 0
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level == 0 and sources.holds(top):
            module = builtins.__import__(f"{sources.package}.{name}", variables, local, members, 0)
            return module if members else getattr(module, top)
        if level == 0:
            sources.refuse_unlisted(name)
        return builtins.__import__(name, variables, local, members, level)

    return import_module


def _is_importable_below(top: str, root: Path) -> bool:
    """Return whether Python itself would import `top` from below `root`."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or ())
    return any(_is_in_workspace(Path(place), root) for place in places)


def _is_in_workspace(place: Path, root: Path) -> bool:
    path = Path(os.path.realpath(place))
    return path.is_relative_to(root) and not any(name in INSTALLED_FOLDERS for name in path.parts)


def _is_module(place: Path) -> bool:
    return place.with_name(place.name + ".py").is_file() or (place / "__init__.py").is_file()


def _is_init(file: Path | None) -> bool:
    return file is not None and file.name == "__init__.py"


def tree_digest(folder: Path) -> str:
    """Return the digest of all files below a folder, by their relative paths. Compiled bytecode is left out."""
    files = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts and path.is_file())
    return content_address({path.relative_to(folder).as_posix(): digest_of(path.read_bytes()) for path in files})
