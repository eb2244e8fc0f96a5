"""One meaning for each public name: no two modules define the same one, and unit tests mirror the modules they test."""

from __future__ import annotations

import ast
import fnmatch
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "contextos"
AGENTSPEC = ROOT / "agentspec"
UNIT = ROOT / "tests" / "unit"
SCRIPTS = "migrations"
"""Alembic runs these by path, and asks each for `upgrade`, `revision` and `down_revision`."""


def is_type_variable(value: ast.expr | None) -> bool:
    """Whether a value is a `TypeVar`: `T` means nothing outside of its own module."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"


WHOLE_PACKAGE = {
    "cli/governance/test_authors_of_a_service.py",
    "cli/governance/test_second_pack.py",
    "cli/test_interrupted.py",
    "context/test_determinism.py",
    "context/test_injection.py",
    "contracts/envelopes/test_fuzz_envelopes.py",
    "contracts/envelopes/test_invariants.py",
    "contracts/envelopes/test_seed_examples.py",
    "context/slots/test_append_only.py",
    "context/slots/test_bounds.py",
    "context/slots/test_gate.py",
    "context/slots/test_session.py",
}
"""Tests of what several modules of their package do together."""


TESTED_ELSEWHERE = {
    "action/gateway/*.py": "tests/machines/test_gateway_idempotency.py",
    "workspace/application.py": "tests/unit/cli/test_cli_stores.py",
    "workspace/build.py": "tests/unit/cli/test_cli_stores.py",
    "audit/*.py": "tests/e2e/test_tamper.py",
    "cli/command_context.py": "tests/unit/cli/test_cli_edges.py",
    "cli/demo/*.py": "tests/unit/cli/demo/test_demo.py",
    "cli/governance/memory.py": "tests/unit/cli/runs/test_runs.py",
    "cli/operations/*.py": "tests/unit/cli/test_cli_edges.py",
    "cli/runs/approvals.py": "tests/unit/cli/runs/test_runs.py",
    "cli/slots/*.py": "tests/unit/cli/slots/test_slots.py",
    "contracts/entries/*.py": "tests/unit/contracts/entries/test_bodies.py",
    "contracts/envelopes/*.py": "tests/unit/contracts/envelopes/test_invariants.py",
    "control/art*.py": "tests/unit/control/test_catalog.py",
    "control/lint/*.py": "tests/unit/control/lint/test_pack.py",
    "decision/*.py": "tests/e2e/test_verdicts.py",
    "workspace/engine/resume.py": "tests/unit/cli/runs/test_requests_resume.py",
    "frameworks/pydantic_ai.py": "tests/frameworks/test_pydantic_ai.py",
    "deployment/*.py": "tests/e2e/test_approvals.py",
    "runtime/*.py": "tests/machines/test_run_table.py",
    "server/control/packs.py": "tests/unit/service/operations/test_packs.py",
    "server/operations.py": "tests/unit/service/operations/test_table.py",
    "server/serving.py": "tests/unit/server/mcp/test_slots.py",
    "store/*/artifact*.py": "tests/unit/context/slots/test_append_only.py",
    "store/postgres/connections.py": "tests/unit/store/postgres/test_writer.py",
    "store/sqlite/database.py": "tests/unit/store/sqlite/test_writer.py",
    "trust/identity/hops.py": "tests/attacks/test_g171_a_partners_claim_counts_once_and_is_in_the_chain.py",
    "trust/journal/record.py": "tests/golden/test_golden.py",
}
"""Modules without a mirrored unit test, because they work only as parts of a flow, and one test of that flow for each.

An entry that matches no such module any more fails, so the table only shrinks.
`ELSEWHERE_MAX` stops a new module from hiding behind a `*`.
"""
ELSEWHERE_MAX = 80
"""The number of modules that the table covers. Lower it with each new unit test."""


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
    paths = [(root, path) for root in (SRC, AGENTSPEC) for path in sorted(root.rglob("*.py"))]
    return {str(path.relative_to(root)): path.read_text("utf-8") for root, path in paths if SCRIPTS not in path.parts}


def test_every_public_name_has_one_home() -> None:
    found = list(names_with_two_homes(modules()))
    assert not found, "\n".join(found)


def test_a_second_home_is_found() -> None:
    planted = {
        "trust/a.py": "def decide(): ...\n_own = 1",
        "action/b.py": "decide: int = 1\n_own = 2",
        "c.py": "Decide = 1",
    }
    assert list(names_with_two_homes(planted)) == [
        "`decide` is defined in action/b.py, trust/a.py; rename one, or import it"
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


def is_mere_declaration(source: str) -> bool:
    """Whether a module has no function with a body, as protocols and constants have none."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)) for one in node.body):
            return False
    return True


def untested_modules(root: Path, source: Path) -> Iterator[str]:
    """Modules with functions and without `test_<module>.py` or `test_<module>_*.py` in the mirrored folder."""
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source)
        if path.stem.startswith("__") or SCRIPTS in name.parts or is_mere_declaration(path.read_text("utf-8")):
            continue
        folder = root / name.parent
        if not (folder / f"test_{path.stem}.py").exists() and not list(folder.glob(f"test_{path.stem}_*.py")):
            yield str(name)


def test_every_module_has_its_unit_test_or_is_tested_in_a_named_flow() -> None:
    untested = list(untested_modules(UNIT, SRC))
    covered = {pattern: fnmatch.filter(untested, pattern) for pattern in TESTED_ELSEWHERE}
    missing = set(untested).difference(*covered.values())
    assert not missing, f"without a unit test: {', '.join(sorted(missing))}"
    unused = [pattern for pattern, matching in covered.items() if not matching]
    assert not unused, f"remove from `TESTED_ELSEWHERE`: {', '.join(unused)}"
    assert all((ROOT / test).is_file() for test in TESTED_ELSEWHERE.values())
    assert len(untested) <= ELSEWHERE_MAX, f"{len(untested)} modules have no unit test of their own"


def test_a_module_without_a_test_is_found(tmp_path: Path) -> None:
    files = {
        "src/trust/seal.py": "def seal(): return 1",
        "src/trust/keys.py": "def keys(): return 1",
        "src/trust/port.py": "class Port:\n    def sign(self):\n        ...",
        "src/trust/__init__.py": "def about(): return 1",
        "unit/trust/test_keys_faults.py": "",
        "unit/other/test_seal.py": "",
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert list(untested_modules(tmp_path / "unit", tmp_path / "src")) == ["trust/seal.py"]
