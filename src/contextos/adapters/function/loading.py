"""Loads trusted function code by path and digest from an explicit list. Nothing is discovered.

An entry is `module.py:attribute`, for a file below `root`, or `package.module:attribute`, for an installed module. The
bytes that are hashed are the bytes that run. The attribute is an adapter, or a function that returns one adapter or a
sequence of them; the function is called with the workspace's directory.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from contextos.contracts.encoding.jcs import digest as digest_of
from contextos.contracts.ports.outside import Adapter
from contextos.errors import InvalidSettings, Problem

MAX_SOURCE_BYTES: Final = 1_048_576
_METHODS: Final = ("describe", "call", "lookup")


def load_function_adapter(path: str, digest: str | None, *, root: Path, workspace: Path | None = None) -> Adapter:
    """Load the one adapter of an entry.

    Raises:
        InvalidSettings: as `load_function_adapters`, or the entry makes several adapters.
    """
    found = load_function_adapters(path, digest, root=root, workspace=workspace)
    if len(found) != 1:
        _refuse(path, "several_adapters", f"it makes {len(found)} adapters, not one", "name one of them")
    return found[0]


def load_function_adapters(
    path: str, digest: str | None, *, root: Path, workspace: Path | None = None
) -> tuple[Adapter, ...]:
    """Load the adapters of an entry. `digest` is `sha256:<hex>` of the source; None trusts any source.

    A function is called with `workspace`, or with `root` if there is none.

    Raises:
        InvalidSettings: the code does not exist, is outside `root`, has another digest, or makes no adapter.
    """
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        _refuse(path, "not_an_entry", "an entry names a module and an attribute", "write it like `shop.py:adapters`")
    file = _file(path, module, root)
    source = _source(path, file)
    found = digest_of(source)
    if digest is not None and found != digest:
        _refuse(path, "digest_mismatch", f"the code has the digest `{found}`", "review the change, then pin it")
    made = getattr(_module(path, file, source, found), attribute, None)
    if callable(made) and not _is_adapter(made):
        made = made(workspace or root)
    adapters = tuple(made) if isinstance(made, Sequence) else (made,)
    if not adapters or not all(map(_is_adapter, adapters)):
        remedy = "make it an adapter, or a function of the workspace that returns adapters"
        _refuse(path, "no_adapter", f"`{attribute}` is no adapter and makes none", remedy)
    return adapters


def source_digest(path: str, *, root: Path) -> str:
    """Return the digest of the current source code of an adapter entry, for `digest` in the settings.

    Raises:
        InvalidSettings: the source cannot be read."""
    return digest_of(_source(path, _file(path, path.partition(":")[0], root)))


def _file(path: str, module: str, root: Path) -> Path:
    if module.endswith(".py"):
        file = (root / module).resolve()
        if not file.is_relative_to(root.resolve()):
            _refuse(path, "outside_root", "the file is outside the workspace", "move it inside")
        return file
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        _refuse(path, "no_module", f"there is no module `{module}`", "install it, or name a file")
    return Path(spec.origin)


def _source(path: str, file: Path) -> bytes:
    try:
        source = file.read_bytes()
    except OSError as error:
        _refuse(path, "unreadable", f"`{file.name}` cannot be read: {error.strerror}", "check the path")
    if len(source) > MAX_SOURCE_BYTES:
        _refuse(path, "too_large", f"the code is larger than {MAX_SOURCE_BYTES} bytes", "split it")
    return source


def _module(path: str, file: Path, source: bytes, found: str) -> ModuleType:
    name = f"contextos_function_{found.removeprefix('sha256:')[:16]}_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses look up their module when they are made
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)  # noqa: S102 - the bytes whose digest was checked
    except (ImportError, SyntaxError) as error:
        del sys.modules[name]
        _refuse(path, "not_importable", f"the code does not load: {type(error).__name__}: {error}", "fix the code")
    return module


def _is_adapter(value: Any) -> bool:
    return all(callable(getattr(value, method, None)) for method in _METHODS)


def _refuse(path: str, code: str, detail: str, remedy: str) -> NoReturn:
    raise InvalidSettings(Problem("/adapters", code, f"`{path[:200]}`: {detail}", remedy))
