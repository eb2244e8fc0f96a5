"""The generated page `docs/design/map.md`: every package with its purpose, and which package imports which.

Everything is read from the source files with `ast`; nothing is imported or run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import contextos

PACKAGE: Final = Path(contextos.__file__).parent
FOUNDATION: Final = frozenset({"contracts", "errors"})
"""Imported from nearly everywhere, so the drawing leaves them out."""
SCRIPTS: Final = "migrations"
"""Alembic runs these by path; they are no part of the import graph."""


@dataclass(frozen=True, slots=True)
class PackageEntry:
    """A package or root module: its dotted name below `contextos`, its purpose, and its number of modules."""

    name: str
    purpose: str
    modules: int


def sources(root: Path = PACKAGE) -> dict[str, Path]:
    """Return the path of every module by its dotted name below `root`; the package `root` itself is ``""``."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if SCRIPTS not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def entries(root: Path = PACKAGE) -> list[PackageEntry]:
    """Return the packages, and the modules directly below `root`, ordered by name."""
    modules = sources(root)
    listed = []
    for name, path in modules.items():
        if path.name == "__init__.py" or "." not in name:
            inside = [path.parent] if path.name == "__init__.py" else []
            count = sum(other.parent in inside for other in modules.values())
            listed.append(PackageEntry(name, _purpose(path), count))
    return sorted(listed, key=lambda entry: entry.name)


def imports(root: Path = PACKAGE) -> dict[str, set[str]]:
    """Return, for each module, the modules of the package that it imports when it runs, also inside functions."""
    modules = sources(root)
    return {name: set(_imported(path, modules)) - {name} for name, path in modules.items()}


def package_arrows(root: Path = PACKAGE) -> dict[str, set[str]]:
    """Return, for each package or module directly below `root`, those that it imports."""
    arrows: dict[str, set[str]] = {}
    for name, targets in imports(root).items():
        top = name.partition(".")[0]
        arrows.setdefault(top, set()).update(target.partition(".")[0] for target in targets)
    return {name: targets - {name, ""} for name, targets in arrows.items() if name}


def cycle(arrows: Mapping[str, set[str]]) -> list[str]:
    """Return one import cycle as a path that ends where it began; empty if there is none. `arrows` maps names to
    imports.
    """
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            done.add(name)
            for target in sorted(arrows.get(name, ())):
                if found := visit(target, [*path, name]):
                    return found
        return []

    return next((found for name in sorted(arrows) if (found := visit(name, []))), [])


def page() -> Iterator[str]:
    """Yield the lines of the generated page `docs/design/map.md`."""
    arrows = package_arrows()
    yield from (
        "# Map of the packages",
        "",
        "An arrow means: imports. Arrows that follow from others are left out, and so",
    )
    yield from (
        "are those to `contracts` and `errors`, which nearly everything imports.",
        "",
        "```mermaid",
        "flowchart TD",
    )
    for name, targets in sorted(arrows.items()):
        for target in sorted(targets - FOUNDATION - _reachable(name, arrows)):
            yield f"  {name} --> {target}"
    yield from ("```", "", "## Packages", "", "| package | modules | purpose |", "| --- | --- | --- |")
    for entry in entries():
        name = f"contextos.{entry.name}" if entry.name else "contextos"
        yield f"| `{name}` | {entry.modules or 'a module'} | {entry.purpose} |"


def _reachable(name: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """What `name` reaches through another package."""
    seen: set[str] = set()
    waiting = [below for target in arrows[name] for below in arrows.get(target, ())]
    while waiting:
        found = waiting.pop()
        if found not in seen:
            seen.add(found)
            waiting += arrows.get(found, ())
    return seen


def _imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in _running(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "contextos":
            base = node.module.partition(".")[2]
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in modules else base
        elif isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("contextos."))


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _running(child)


def _purpose(path: Path) -> str:
    first = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")
