"""One meaning for each public name: no two modules define the same one, and unit tests mirror the modules they test."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "contextos"
UNIT = ROOT / "tests" / "unit"
SCRIPTS = "migrations"
"""Alembic runs these by path, and asks each for `upgrade`, `revision` and `down_revision`."""


def is_type_variable(value: ast.expr | None) -> bool:
    """Whether a value is a `TypeVar`: `T` means nothing outside of its own module."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"


WHOLE_PACKAGE = {
    "context/test_determinism.py",
    "context/test_injection.py",
    "contracts/envelopes/test_fuzz_envelopes.py",
    "contracts/envelopes/test_invariants.py",
    "contracts/envelopes/test_seed_examples.py",
    "slots/lint/test_work.py",
    "slots/test_append_only.py",
    "slots/test_bounds.py",
    "slots/test_gate.py",
}
"""Tests of what several modules of their package do together."""


def public_names(source: str) -> set[str]:
    """The names that a module defines at its top level, without those that begin with an underscore."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not is_type_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def names_with_two_homes(modules: Mapping[str, str]) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for path, source in modules.items():
        for name in public_names(source):
            homes[name].append(path)
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield f"`{name}` is defined in {', '.join(sorted(paths))}; rename one, or import it"


def modules() -> dict[str, str]:
    paths = [path for path in sorted(SRC.rglob("*.py")) if SCRIPTS not in path.parts]
    return {str(path.relative_to(SRC)): path.read_text("utf-8") for path in paths}


def test_every_public_name_has_one_home() -> None:
    found = list(names_with_two_homes(modules()))
    assert not found, "\n".join(found)


def test_a_second_home_is_found() -> None:
    planted = {
        "trust/a.py": "def judge(): ...\n_own = 1",
        "action/b.py": "judge: int = 1\n_own = 2",
        "c.py": "Judge = 1",
    }
    assert list(names_with_two_homes(planted)) == [
        "`judge` is defined in action/b.py, trust/a.py; rename one, or import it"
    ]


def orphaned_tests(root: Path, source: Path) -> Iterator[str]:
    """Unit tests whose folder and name lead to no module: `a/test_b.py` tests `a/b`, `a/test_b_faults.py` too."""
    for path in sorted(root.rglob("test_*.py")):
        folder = source / path.parent.relative_to(root)
        words = path.stem.removeprefix("test_").split("_")
        stems = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
        named = any((folder / f"{stem}.py").exists() or (folder / stem).is_dir() for stem in stems)
        if not (named or words[0] == folder.name):
            yield f"{path.relative_to(root)} mirrors no module of {folder.relative_to(source)}"


def test_unit_tests_mirror_the_source_tree() -> None:
    found = {one.split(" ")[0]: one for one in orphaned_tests(UNIT, SRC)}
    assert found.keys() == WHOLE_PACKAGE, "\n".join(found[path] for path in sorted(found.keys() - WHOLE_PACKAGE))


def test_a_test_of_nothing_is_found(tmp_path: Path) -> None:
    for name in (
        "src/trust/seal.py",
        "unit/trust/test_seal.py",
        "unit/trust/test_seal_faults.py",
        "unit/trust/test_x.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = list(orphaned_tests(tmp_path / "unit", tmp_path / "src"))
    assert found == ["trust/test_x.py mirrors no module of trust"]
