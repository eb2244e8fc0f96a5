"""What the source of a module imports by statement, and whether it runs other code by a name or a path."""

from __future__ import annotations

import ast
import threading
from dataclasses import dataclass
from typing import Final

_RUNNERS: Final = frozenset(
    {
        "builtins",
        "cffi",
        "cloudpickle",
        "code",
        "codeop",
        "ctypes",
        "dill",
        "imp",
        "importlib",
        "marshal",
        "multiprocessing",
        "pickle",
        "pkgutil",
        "pty",
        "runpy",
        "shelve",
        "subprocess",
        "zipimport",
    }
)
"""Modules that run code by a name, a path or a value."""
_RUNS: Final = frozenset(
    {
        "ProcessPoolExecutor",
        "__builtins__",
        "__import__",
        "__loader__",
        "create_subprocess_exec",
        "create_subprocess_shell",
        "exec_module",
        "execl",
        "execle",
        "execlp",
        "execlpe",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "import_module",
        "load_module",
        "popen",
        "posix_spawn",
        "posix_spawnp",
        "run_in_process",
        "spawnl",
        "spawnle",
        "spawnlp",
        "spawnlpe",
        "spawnv",
        "spawnve",
        "spawnvp",
        "spawnvpe",
        "startfile",
        "subprocess_exec",
        "subprocess_shell",
        "system",
    }
)
"""Names and attributes that do so."""
_BUILTINS: Final = frozenset({"exec", "eval", "compile"})
"""Names that do so as builtins; an attribute of this name is something else (`re.compile`)."""

_PARSING: Final = threading.Lock()
"""`ast.parse` keeps its depth in one counter of the interpreter, and fails if two threads parse at once (gh-106905)."""


@dataclass(frozen=True, slots=True)
class Imports:
    """What code imports by statement (absolute dotted names), and whether it runs code by a name or a path."""

    names: frozenset[str] = frozenset()
    runs_others: bool = False

    def __or__(self, other: Imports) -> Imports:
        return Imports(self.names | other.names, self.runs_others or other.runs_others)


def read_imports(source: bytes, name: str, *, is_package: bool, file: str = "<code>") -> Imports:
    """Return the imports of a module with this dotted name, wherever in it they are. Raises `SyntaxError`."""
    parents = name.split(".") if is_package else name.split(".")[:-1]
    tree = _parsed(source, file)
    names: list[str] = []
    runs = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = parents[: len(parents) + 1 - node.level] if node.level else []
            origin += [node.module] if node.module else []
            # Each name can be an attribute or a file of its own.
            names += [".".join(origin), *(".".join([*origin, alias.name]) for alias in node.names)]
            runs = runs or any(alias.name in _RUNS for alias in node.names)
        elif isinstance(node, ast.Attribute):
            runs = runs or node.attr in _RUNS
        elif isinstance(node, ast.Name):
            runs = runs or node.id in _RUNS | _BUILTINS
    runs = runs or any(one in _RUNNERS or one.partition(".")[0] in _RUNNERS for one in names)
    return Imports(frozenset(names), runs)


def _parsed(source: bytes, file: str) -> ast.Module:
    with _PARSING:
        try:
            return ast.parse(source, file)
        except SystemError:
            # Another thread, which takes no lock, compiled at this moment.
            return ast.parse(source, file)
