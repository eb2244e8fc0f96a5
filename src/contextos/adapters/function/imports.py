"""Reads which modules a source imports by statement, and whether it runs other code by a name or a path."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_SAFE_MODULES: Final = frozenset(
    """
    __future__ abc argparse array ast asyncio base64 binascii bisect bz2 calendar cmath codecs collections colorsys
    concurrent configparser contextlib contextvars copy csv dataclasses datetime decimal difflib email enum errno
    fcntl filecmp fnmatch fractions ftplib functools getopt getpass gettext glob graphlib gzip hashlib heapq hmac
    html http imaplib inspect io ipaddress itertools json keyword linecache locale logging lzma math mimetypes mmap
    netrc ntpath numbers operator os pathlib platform poplib posixpath pprint queue quopri random re reprlib sched
    secrets select selectors shlex shutil signal smtplib socket socketserver sqlite3 ssl stat statistics string
    stringprep struct sys syslog tarfile tempfile textwrap threading time token tokenize tomllib traceback types
    typing unicodedata urllib uuid warnings weakref xml zipfile zlib zoneinfo
    """.split()  # noqa: SIM905 - one a line, they are a page
)
"""The modules of the standard library that run no code by a name, a path or a value, except by the names in `_RUNS`.
Code that imports any other module of it (`importlib`, `runpy`, `pickle`, `timeit` and the like) runs other code.
"""
_RUNNERS: Final = frozenset({"cffi", "cloudpickle", "dill", "joblib", "logging.config", "asyncio.subprocess"})
"""Further modules that run code by a name, a path or a value."""
_IMPORT_SYSTEM: Final = frozenset({"meta_path", "modules", "path", "path_hooks", "path_importer_cache"})
"""The attributes of `sys` that belong to the import system."""
_CHANGING_METHODS: Final = frozenset({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"})
_RUNS: Final = frozenset(
    {
        "CodeType",
        "EntryPoint",
        "ForwardRef",
        "FunctionType",
        "ImportString",
        "ProcessPoolExecutor",
        "__builtins__",
        "__import__",
        "__globals__",
        "__loader__",
        "__spec__",
        "__subclasses__",
        "_getframe",
        "create_subprocess_exec",
        "create_subprocess_shell",
        "enable_load_extension",
        "exec_module",
        "execl",
        "execle",
        "execlp",
        "execlpe",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "f_builtins",
        "f_globals",
        "get_type_hints",
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
"""Names and attributes that run code by a name, a path or a value."""
_BUILTINS: Final = frozenset({"exec", "eval", "compile", "globals", "vars"})
"""Builtins that run code or reach names by a text. An attribute of the same name is something else (`re.compile`)."""

MAX_TEXT_OF_A_PATH: Final = 255

_PARSE_LOCK: Final = threading.Lock()
"""`ast.parse` keeps its depth in one counter of the interpreter, and fails if two threads parse at once (gh-106905)."""


@dataclass(frozen=True, slots=True)
class Imports:
    """The absolute dotted names that code imports by statement, and whether it runs other code by a name or a path.

    `texts` are the parts, between slashes, of its strings that can name a file or a folder. `changes_path`: the code
    changes where Python finds modules, so its imports are not known before it runs.
    """

    names: frozenset[str] = frozenset()
    runs_others: bool = False
    texts: frozenset[str] = frozenset()
    changes_path: bool = False

    def __or__(self, other: Imports) -> Imports:
        return Imports(
            self.names | other.names,
            self.runs_others or other.runs_others,
            self.texts | other.texts,
            self.changes_path or other.changes_path,
        )


@lru_cache(maxsize=64)
def read_imports(source: bytes | str, name: str, *, is_package: bool, file: str = "<code>") -> Imports:
    """Return the imports anywhere in the source of the module with the dotted name `name`. Raises `SyntaxError`."""
    parents = name.split(".") if is_package else name.split(".")[:-1]
    nodes = list(ast.walk(_parse(source, file)))
    names: list[str] = []
    # Maps a name in the module to the import that it names.
    aliases: dict[str, str] = {}
    runs = changes = False
    texts: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
            aliases |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = parents[: len(parents) + 1 - node.level] if node.level else []
            origin += [node.module] if node.module else []
            # Each name can be an attribute or a file of its own.
            targets = {alias.asname or alias.name: ".".join([*origin, alias.name]) for alias in node.names}
            names += [".".join(origin), *targets.values()]
            aliases |= targets
            runs = runs or any(alias.name in _RUNS for alias in node.names)
            changes = changes or (origin == ["sys"] and any(alias.name in _IMPORT_SYSTEM for alias in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= MAX_TEXT_OF_A_PATH:
            texts |= set(node.value.split("/"))
    for node in nodes:
        runs = runs or _runs_other_code(node, aliases)
        changes = changes or _changes_path(node, aliases)
    tops = {dotted: dotted.partition(".")[0] for dotted in names}
    runs = runs or any(
        dotted in _RUNNERS or top in _RUNNERS or (top in sys.stdlib_module_names and top not in _SAFE_MODULES)
        for dotted, top in tops.items()
    )
    return Imports(frozenset(names), runs or changes, frozenset(texts - {"", ".", ".."}), changes)


def _runs_other_code(node: ast.AST, aliases: Mapping[str, str]) -> bool:
    """Return whether a node runs code by a name, or reaches such a function by a text (`getattr`)."""
    if isinstance(node, ast.Name):
        return node.id in _RUNS | _BUILTINS
    if isinstance(node, ast.Attribute):
        is_module = isinstance(node.value, ast.Name) and node.value.id in aliases
        return node.attr in _RUNS or (is_module and node.attr == "__dict__") or _is_import_system(node, aliases)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        value, attribute = (*node.args, None, None)[:2]
        while isinstance(value, ast.Attribute):
            value = value.value
        constant = attribute.value if isinstance(attribute, ast.Constant) else None
        is_known = isinstance(constant, str) and constant not in _RUNS | _BUILTINS | _IMPORT_SYSTEM
        return isinstance(value, ast.Name) and value.id in aliases and not is_known
    return False


def _changes_path(node: ast.AST, aliases: Mapping[str, str]) -> bool:
    if isinstance(node, ast.Attribute) and _is_import_system(node.value, aliases):
        return node.attr in _CHANGING_METHODS
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _is_import_system(node.value, aliases)
    if isinstance(node, ast.Attribute):
        is_set = isinstance(node.ctx, ast.Store | ast.Del) and _is_import_system(node, aliases)
        return is_set or node.attr == "addsitedir"
    return False


def _is_import_system(node: ast.AST, aliases: Mapping[str, str]) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in _IMPORT_SYSTEM
        and isinstance(node.value, ast.Name)
        and aliases.get(node.value.id) == "sys"
    )


def _parse(source: bytes | str, file: str) -> ast.Module:
    with _PARSE_LOCK:
        try:
            return ast.parse(source, file)
        except SystemError:
            # Another thread, which does not take the lock, compiled at this moment.
            return ast.parse(source, file)
