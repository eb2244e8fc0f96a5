"""Loads trusted function code by path and digest from an explicit list. Nothing is discovered.

An entry is `module.py:attribute`, for a file below `root`, or `package.module:attribute`, for an installed module. It
can import only the files of the workspace that are listed with it (`sources`). The bytes that are hashed are the bytes
that run. The attribute is an adapter, or a function that returns one adapter or a sequence of adapters; the function is
called with the workspace's directory.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final, NoReturn

from contextos.adapters.function.imports import Imports
from contextos.adapters.function.packages import PackageFiles
from contextos.adapters.function.sources import SourceFiles, tree_digest
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.jcs import digest as digest_of
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ports.outside import Adapter
from contextos.errors import InvalidInput, InvalidSettings, Problem
from contextos.files import read_regular_file

MAX_SOURCE_BYTES: Final = 1_048_576
_METHODS: Final = ("describe", "call", "lookup")


@dataclass(frozen=True, slots=True)
class LoadedAdapters:
    """The adapters of one entry, and the digest of the code that they were loaded from.

    The digest covers the bytes of the entry and of its helpers. For an installed entry it covers every file of its
    package. `packages` are the other files that the code can run, as they were before it ran. `made` says that a
    function of the entry made the adapters for this deployment. An entry that is an adapter itself is one object for
    all deployments of the process, so none of them closes it.
    """

    adapters: tuple[Adapter, ...]
    code_digest: str
    made: bool
    packages: PackageFiles | None = None


def load_function_adapters(
    path: str,
    digest: str | None,
    *,
    root: Path,
    workspace: Path | None = None,
    files: Mapping[str, str | None] | None = None,
) -> LoadedAdapters:
    """Load the adapters of an entry. `digest` is `sha256:<hex>` of the source; None trusts any source.

    `files` are the helpers that the entry imports from the workspace: their paths below `root`, and the digest of each.
    A function is called with `workspace`, or with `root` if there is none.

    Raises:
        InvalidSettings: a file does not exist, is outside `root` or has another digest; the code imports a file of the
            workspace that is not in `files`, or a module that comes from no file; it changes `sys.path`, does not load,
            or makes no adapter.
    """
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        _refuse(path, "not_an_entry", "an entry names a module and an attribute", "write it like `shop.py:adapters`")
    sources = _read_files(path, module, digest, files or {}, root)
    adapters: tuple[Any, ...] = ()
    by_function = False
    with _LoadFaults(path, sources):
        sources.check_imports()
        imports = _entry_imports(module, sources)
        packages = PackageFiles.of(imports, sources.root)
        loaded: Any = getattr(sources.load(), attribute, None)
        _refuse_unknown(path, imports, packages)
        if callable(loaded) and not _is_adapter(loaded):
            loaded, by_function = loaded(workspace or root), True
        adapters = tuple(loaded) if isinstance(loaded, Sequence) else (loaded,)
        if not all(_is_adapter(adapter) and isinstance(adapter.describe(), AdapterDefinition) for adapter in adapters):
            adapters = ()
    if not adapters:
        remedy = "make it an adapter, or a function of the workspace that returns adapters"
        _refuse(path, "no_adapter", f"`{attribute}` is not an adapter and makes none", remedy)
    return LoadedAdapters(adapters, _code_digest(module, sources), by_function, packages)


def _refuse_unknown(path: str, imports: Imports, packages: PackageFiles) -> None:
    """Refuse code whose imports cannot be known, because no digest would cover them."""
    if imports.changes_path:
        remedy = "put the folder on PYTHONPATH, or install what is in it"
        _refuse(path, "changes_path", "it changes where modules are found, so what it imports is not known", remedy)
    if packages.without_files:
        names = ", ".join(packages.without_files)
        _refuse(path, "no_file", f"it imports what comes from no file: {names[:200]}", "install it as files")


def source_digest(path: str, *, root: Path) -> str:
    """Return the digest of the current source code of an adapter entry, for `digest` in the settings.

    Raises:
        InvalidSettings: the source cannot be read."""
    return digest_of(code_files(path, (), root=root)[path.partition(":")[0]])


def code_files(path: str, files: Iterable[str], *, root: Path) -> dict[str, bytes]:
    """Return the current bytes of an entry and of its helpers, by the names that the settings give them; none runs.

    Raises:
        InvalidSettings: a file cannot be read, or is outside `root`.
    """
    module = path.partition(":")[0]
    return {name: _read_source(path, _source_path(path, name, root)) for name in (module, *files)}


def _read_files(path: str, module: str, digest: str | None, files: Mapping[str, str | None], root: Path) -> SourceFiles:
    """Read the entry and its helpers once, and check the digest of each."""
    entry = _source_path(path, module, root)
    code, paths = {entry.stem: _read_pinned(path, entry, digest)}, {entry.stem: entry}
    for name, file_digest in files.items():
        file = _source_path(path, name if name.endswith(".py") else f"{name}.py", root)
        if not name.endswith(".py") or not file.is_relative_to(entry.parent):
            remedy = "move it beside the entry, or into a folder there"
            _refuse(path, "not_beside", f"`{name[:80]}` is not a `.py` file in the folder of the entry", remedy)
        parts = file.relative_to(entry.parent).with_suffix("").parts
        helper = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not helper or helper in code:
            _refuse(path, "duplicate", f"`{name[:80]}` is listed twice, or is the entry", "list each helper once")
        code[helper], paths[helper] = _read_pinned(path, file, file_digest), file
    return SourceFiles(Path(os.path.realpath(root)), code, paths)


def _read_pinned(path: str, file: Path, digest: str | None) -> bytes:
    source = _read_source(path, file)
    actual = digest_of(source)
    if digest is not None and actual != digest:
        _refuse(
            path,
            "digest_mismatch",
            f"`{file.name}` has the digest `{actual}`",
            "review the change with `contextos pin-code`, which pins it",
        )
    return source


def _code_digest(module: str, sources: SourceFiles) -> str:
    code: dict[str, Any] = {"files": {name: digest_of(source) for name, source in sources.code.items()}}
    package = importlib.util.find_spec(module.partition(".")[0]) if not module.endswith(".py") else None
    if package is not None and package.submodule_search_locations:
        code["package"] = [tree_digest(Path(place)) for place in sorted(package.submodule_search_locations)]
    return content_address(code)


def _entry_imports(module: str, sources: SourceFiles) -> Imports:
    """Return the imports of an entry. An installed entry also counts as importing its own module."""
    return sources.imports() | Imports(frozenset() if module.endswith(".py") else frozenset({module}))


def _source_path(path: str, module: str, root: Path) -> Path:
    if module.endswith(".py"):
        file = Path(os.path.realpath(root / module))
        if not file.is_relative_to(os.path.realpath(root)):
            _refuse(path, "outside_root", "the file is outside the workspace", "move it inside")
        return file
    module_file = _installed_file(module)
    if module_file is None:
        _refuse(path, "no_module", f"there is no module `{module}`", "install it, or name a file")
    return module_file


def _installed_file(module: str) -> Path | None:
    """Return the file of an installed module, or None. Nothing is imported, so no code of its packages runs."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top) if all(map(str.isidentifier, [top, *rest])) else None
    except (ImportError, ValueError):
        spec = None
    files = [Path(spec.origin)] if spec and spec.origin and spec.origin.endswith(".py") and not rest else []
    for place in (spec.submodule_search_locations or ()) if spec and rest else ():
        files += [Path(place, *rest, "__init__.py"), Path(place, *rest).with_name(f"{rest[-1]}.py")]
    return next((file for file in files if file.is_file()), None)


def _read_source(path: str, file: Path) -> bytes:
    try:
        return read_regular_file(file, MAX_SOURCE_BYTES)
    except OSError as error:
        _refuse(path, "unreadable", f"`{file.name}` cannot be read: {error.strerror}", "check the path")


_SHOWN_ERRORS: Final = (ImportError, SyntaxError, NameError, AttributeError, TypeError, InvalidInput)


class _LoadFaults(AbstractContextManager[None]):
    """Turns each exception of the code while it is loaded into `InvalidSettings`. `KeyboardInterrupt` passes."""

    def __init__(self, path: str, sources: SourceFiles) -> None:
        self._path, self._files = path, {str(file): file.name for file in sources.paths.values()}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt | InvalidSettings):
            return
        # The text of any other exception can hold a secret.
        text = f": {str(error)[:400]}" if issubclass(kind, _SHOWN_ERRORS) else ""
        frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(trace)]
        lines = [f"`{self._files[file]}` line {line}: " for file, line in frames if file in self._files]
        detail = f"the code does not load: {lines[-1] if lines else ''}{kind.__name__}{text}"
        _refuse(self._path, "not_importable", detail, "correct it there" if lines else "fix the code")


def _is_adapter(value: Any) -> bool:
    return all(callable(getattr(value, method, None)) for method in _METHODS)


def _refuse(path: str, code: str, detail: str, remedy: str) -> NoReturn:
    raise InvalidSettings(Problem("/adapters", code, f"`{path[:200]}`: {detail}", remedy))
