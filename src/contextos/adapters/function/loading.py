"""Trusted function code, loaded by path and digest from an explicit list. Nothing is discovered.

An entry is `module.py:attribute`, a file below `root`, or `package.module:attribute`, something installed. The bytes
that are hashed are the bytes that run. The attribute is an adapter, or a function that makes one or several: it is
called with the workspace's directory.
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
    """The one adapter of an entry.

    Raises:
        InvalidSettings: as `load_function_adapters`, or the entry gives several.
    """
    found = load_function_adapters(path, digest, root=root, workspace=workspace)
    if len(found) != 1:
        _refuse(path, "several_adapters", f"it gives {len(found)} adapters, not one", "name one of them")
    return found[0]


def load_function_adapters(
    path: str, digest: str | None, *, root: Path, workspace: Path | None = None
) -> tuple[Adapter, ...]:
    """The adapters of an entry. `digest` is `sha256:<hex>` of the source; None trusts whatever is there.

    `workspace` is what a function is called with; without it, `root`.

    Raises:
        InvalidSettings: no such code, code outside `root`, another digest, or no adapter in it.
    """
    where, _, attribute = path.partition(":")
    if not where or not attribute:
        _refuse(path, "not_an_entry", "an entry names a module and an attribute", "write it like `shop.py:adapters`")
    file = _file(path, where, root)
    source = _source(path, file)
    found = digest_of(source)
    if digest is not None and found != digest:
        _refuse(path, "digest_mismatch", f"the code has the digest `{found}`", "review the change, then pin it")
    made = getattr(_module(path, file, source, found), attribute, None)
    if callable(made) and not _is_adapter(made):
        made = made(workspace or root)
    adapters = tuple(made) if isinstance(made, Sequence) else (made,)
    if not adapters or not all(map(_is_adapter, adapters)):
        mend = "make it an adapter, or a function of the workspace that gives some"
        _refuse(path, "no_adapter", f"`{attribute}` gives no adapter", mend)
    return adapters


def source_digest(path: str, *, root: Path) -> str:
    """The digest to pin for an entry, as its source is now. Raises `InvalidSettings`."""
    return digest_of(_source(path, _file(path, path.partition(":")[0], root)))


def _file(path: str, where: str, root: Path) -> Path:
    if where.endswith(".py"):
        file = (root / where).resolve()
        if not file.is_relative_to(root.resolve()):
            _refuse(path, "outside_root", "the file lies outside the workspace", "move it inside")
        return file
    try:
        spec = importlib.util.find_spec(where)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        _refuse(path, "no_module", f"there is no module `{where}`", "install it, or name a file")
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
    sys.modules[name] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)  # noqa: S102 - the bytes whose digest was checked
    except (ImportError, SyntaxError) as error:
        del sys.modules[name]
        _refuse(path, "not_importable", f"the code does not load: {type(error).__name__}: {error}", "mend it")
    return module


def _is_adapter(value: Any) -> bool:
    return all(callable(getattr(value, method, None)) for method in _METHODS)


def _refuse(path: str, code: str, detail: str, remedy: str) -> NoReturn:
    raise InvalidSettings(Problem("/adapters", code, f"`{path[:200]}`: {detail}", remedy))
