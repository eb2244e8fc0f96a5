"""The public surface: `contextos.__all__` and the stable modules that the package's docstring lists.

`tests/public_api.txt` is the snapshot of their names and signatures. After an intended change write it anew, and name
the change in CHANGELOG.md:

    .venv/bin/python tests/test_exports.py --write
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import contextos
import contextos_agentspec

NAMES_MAX = 32
SNAPSHOT = Path(__file__).with_name("public_api.txt")
ROOT = Path(contextos.__file__).parent
HOMES = {"contextos": ROOT, "contextos_agentspec": Path(contextos_agentspec.__file__).parent}
STABLE = re.compile(r"^- `(contextos(?:_agentspec)?\.[a-z_.]+?)(\.\*)?`: ", re.MULTILINE)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def stable_modules() -> list[Path]:
    """The source files of the modules that the docstrings of `contextos` and `contextos_agentspec` list as stable."""
    found = []
    for name, every in STABLE.findall(f"{inspect.getdoc(contextos)}\n{inspect.getdoc(contextos_agentspec)}"):
        path = HOMES[name.partition(".")[0]].joinpath(*name.split(".")[1:])
        one = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found += sorted(path.glob("[a-z]*.py")) if every else [one]
    return found


def definitions(path: Path) -> dict[str, Definition]:
    """The public classes and functions that a module defines, by name."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, Definition) and not node.name.startswith("_")}


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    decorators = "".join(f"@{ast.unparse(one)} " for one in node.decorator_list)
    return f"{decorators}{prefix}def {node.name}({ast.unparse(node.args)}){returns}"


def members(node: ast.ClassDef) -> Iterator[str]:
    """The fields and the methods of a class that its users see."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_"):
            yield ast.unparse(one)
        elif isinstance(one, FUNCTIONS) and (one.name == "__init__" or not one.name.startswith("_")):
            yield signature(one)


def described(node: Definition, *, deep: bool) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        parents = ", ".join(map(ast.unparse, node.bases))
        yield f"class {node.name}({parents})" if parents else f"class {node.name}"
        yield from (f"    {member}" for member in (members(node) if deep else ()))
    else:
        yield signature(node)


def public_api() -> str:
    """The snapshot: each name of `__all__` with its members, then the names of each stable module."""
    lines = ["# The stable names of ContextOS. Written by `python tests/test_exports.py --write`."]
    for name in contextos.__all__:
        if name in contextos._HOMES:
            lines += ["", f"[contextos.{name}]", *described(_definition(name), deep=True)]
    for path in stable_modules():
        home = next(one for one in HOMES.values() if path.is_relative_to(one))
        parts = path.relative_to(home.parent).with_suffix("").parts
        module = ".".join(one for one in parts if one != "__init__")
        lines += ["", f"[{module}]"]
        deep = path.parent.name == "ports"
        lines += [line for node in definitions(path).values() for line in described(node, deep=deep)]
    return "\n".join(lines) + "\n"


def _definition(name: str) -> Definition:
    spec = find_spec(contextos._HOMES[name])
    return definitions(Path(spec.origin))[name] if spec and spec.origin else pytest.fail(f"`{name}` has no home")


def test_every_public_name_can_be_imported_and_there_are_few() -> None:
    assert len(contextos.__all__) <= NAMES_MAX
    assert all(getattr(contextos, name) is not None for name in contextos.__all__)


def test_all_dir_and_homes_name_the_same() -> None:
    assert sorted(contextos.__all__) == list(contextos.__all__) == dir(contextos)
    assert set(contextos.__all__) == {*contextos._HOMES, "__version__"}


def test_an_unknown_name_is_refused_by_name() -> None:
    assert not hasattr(contextos, "no_such_name")


def test_every_public_name_has_a_docstring() -> None:
    silent = [name for name in contextos._HOMES if not ast.get_docstring(_definition(name))]
    assert not silent, f"say what they are for, with shapes, units and errors: {silent}"


def test_every_stable_module_exists() -> None:
    assert len(stable_modules()) > 12
    assert all(path.is_file() for path in stable_modules())


def test_the_public_names_and_signatures_are_those_of_the_snapshot() -> None:
    assert public_api() == SNAPSHOT.read_text("utf-8"), "run `python tests/test_exports.py --write` if this is intended"


def test_importing_contextos_imports_nothing_else_of_it() -> None:
    code = "import sys, contextos; print(*sorted(name for name in sys.modules if name.startswith('contextos')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["contextos"]


if __name__ == "__main__" and "--write" in sys.argv:
    SNAPSHOT.write_text(public_api(), encoding="utf-8")
