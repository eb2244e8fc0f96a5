"""Finds the code files of function adapters that differ from their pins in `contextos.toml`, and pins them again.

No code of a changed file runs before a person has seen the change. Then the file is loaded once, so that the settings
never name code that does not load.
"""

from __future__ import annotations

import ast
import codecs
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from io import BytesIO, StringIO
from pathlib import Path
from tokenize import detect_encoding
from typing import Final, NoReturn

from contextos.adapters.function.loading import MAX_SOURCE_BYTES, code_files, load_function_adapters
from contextos.contracts.encoding.jcs import digest as digest_of
from contextos.errors import InvalidInput, Problem
from contextos.files import read_regular_file
from contextos.workspace.adapter_files import edit_settings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.calls import AdapterSetting, is_adapter_file

_PATIENCE_S: Final = 10


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file whose bytes are not the pinned ones: its path as the settings name it, and both digests.

    `entry` is the adapter to which the file belongs. `tools` are the functions of the file that are tools and differ;
    if the text `before` is not known (None), all its tools.
    """

    entry: str
    path: str
    pinned: str
    found: str
    before: str | None
    after: str
    tools: tuple[str, ...]

    def diff(self) -> list[str]:
        """Return the lines of a unified difference; no lines if the text before is not known.

        A line ends at a line feed and nowhere else, so that two texts that differ never look the same.
        """
        if self.before is None:
            return []
        before, after = list(StringIO(self.before)), list(StringIO(self.after))
        lines = unified_diff(before, after, f"{self.path} as pinned", f"{self.path} now")
        return [line[:-1] if line.endswith("\n") else f"{line} (no line feed)" for line in lines]


def changed_files(workspace: Path, names: Sequence[str]) -> list[ChangedFile]:
    """Return the pinned code files that changed, among `names` (paths as in the settings), or among all if it is empty.

    Raises:
        InvalidInput: a name is not a pinned code file, nothing changed, or a file is not Python in UTF-8.
        InvalidSettings: the settings are invalid, or a file cannot be read.
    """
    settings = Settings.read(workspace)
    functions = [adapter for adapter in settings.adapters if not is_adapter_file(adapter)]
    pinned = [(adapter, *file) for adapter in functions for file in _pinned_files(adapter, workspace)]
    names = [_relative_path(name, workspace) for name in names]
    for name in names:
        if not any(name == _relative_path(path, workspace) for _, path, _, _ in pinned):
            is_published = any(adapter.path == name for adapter in settings.adapters)
            remedy = f"use one of {', '.join(sorted({path for _, path, _, _ in pinned})) or 'no file yet'}"
            remedy += "; list a new file under `[[adapters]]` in contextos.toml, with any digest"
            if is_published:
                remedy = f"review it, then `contextos adapters publish {name}`"
            raise InvalidInput(Problem("", "not_pinned", f"`{name[:200]}` is not a code file with a digest", remedy))
    changes = [
        _changed_file(workspace, adapter.path, path, digest, raw)
        for adapter, path, digest, raw in pinned
        if digest_of(raw) != digest and (not names or _relative_path(path, workspace) in names)
    ]
    if not changes:
        files = ", ".join(dict.fromkeys(names or (path for _, path, _, _ in pinned))) or "no code"
        detail = f"nothing changed: the settings have the digests of {files}"
        raise InvalidInput(Problem("", "nothing_changed", detail, "leave it as it is"))
    return changes


def pin_files(workspace: Path, changed: Sequence[ChangedFile]) -> None:
    """Write the digests of changed files to the settings, once each adapter with one was loaded with its new digests.

    Raises:
        InvalidSettings: the code does not load or changed meanwhile, or the settings cannot be edited.
    """
    digests: dict[str, dict[str, str]] = {}
    for change in changed:
        digests.setdefault(change.entry, {})[change.path] = change.found
    for adapter in Settings.read(workspace).adapters:
        if new_digests := digests.get(adapter.path):
            digest = new_digests.get(_entry_file(adapter), adapter.digest)
            files = {name: new_digests.get(name, old) for name, old in adapter.files.items()}
            loaded = load_function_adapters(adapter.path, digest, root=workspace, workspace=workspace, files=files)
            for instance in loaded.adapters if loaded.made else ():
                if hasattr(instance, "close"):
                    instance.close()
    edit_settings(workspace, {(change.entry, change.path): change.found for change in changed})


def _relative_path(name: str, workspace: Path) -> str:
    """Return a path relative to the workspace. Converts an absolute path, and a path that starts with `./`."""
    root = os.path.realpath(workspace)
    path = Path(os.path.realpath(name) if os.path.isabs(name) else name)
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _entry_file(adapter: AdapterSetting) -> str:
    return adapter.path.partition(":")[0]


def _pinned_files(adapter: AdapterSetting, workspace: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the path, the pinned digest and the bytes of each file of an adapter."""
    pinned = {_entry_file(adapter): adapter.digest, **adapter.files}
    for path, raw in code_files(adapter.path, adapter.files, root=workspace).items():
        yield path, pinned[path], raw


def _changed_file(workspace: Path, entry: str, path: str, pinned: str, raw: bytes) -> ChangedFile:
    after = _source_text(raw)
    if after is None:
        _refuse(path, "not_utf8", "is not UTF-8, or says another coding, so nobody sees what runs", "write it in UTF-8")
    try:
        ast.parse(raw)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" at line {error.lineno or 1}: {error.msg}" if isinstance(error, SyntaxError) else ""
        _refuse(path, "not_python", f"is not Python{place}", "correct it there")
    before = next((_source_text(copy) for copy in _old_versions(workspace, path) if digest_of(copy) == pinned), None)
    old, new = _tool_sources(before or ""), _tool_sources(after)
    tools = tuple(sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name)))
    return ChangedFile(entry, path, pinned, digest_of(raw), before, after, tools)


def _refuse(path: str, code: str, detail: str, remedy: str) -> NoReturn:
    raise InvalidInput(Problem("", code, f"`{path}` {detail}", remedy))


def _source_text(raw: bytes) -> str | None:
    """Return the text that Python reads in these bytes, or None where it is not UTF-8 or has a coding of its own."""
    try:
        coding, _ = detect_encoding(BytesIO(raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).readline)
        return raw.decode() if codecs.lookup(coding).name in ("utf-8", "utf-8-sig") else None
    except (SyntaxError, UnicodeDecodeError):
        return None


def _old_versions(workspace: Path, path: str) -> Iterator[bytes]:
    """Yield texts that the file perhaps had: from the copies beside it, the examples, and the last commit."""
    import contextos

    place = workspace / path
    package = Path(contextos.__file__).parent
    shipped = [*package.glob(f"_examples/*/{place.name}"), *package.parents[1].glob(f"examples/*/{place.name}")]
    for file in (*sorted(place.parent.glob(f"{place.name}?*")), *shipped):
        try:
            yield read_regular_file(file, MAX_SOURCE_BYTES)
        except OSError:
            continue
    command = ["git", "-C", str(place.parent), "cat-file", "blob", f"HEAD:./{place.name}"]
    try:
        yield subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE_S).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return


def _tool_sources(source: str) -> Mapping[str, str]:
    """Return the source of each function with a decorator `read` or `write`, by name; empty if this is not Python."""
    try:
        body = ast.parse(source.encode()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: ast.unparse(node) for node in functions if any(map(_is_tool, node.decorator_list))}


def _is_tool(decorator: ast.expr) -> bool:
    callee = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "")) in ("read", "write")
