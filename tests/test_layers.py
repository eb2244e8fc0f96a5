"""The import rule holds, and each of its contracts is seen to fail on a planted violation."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "contextos"
LINT = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache', '--no-logo'])"

# module to plant, what it imports, what the linter must say
SAYS = "is not allowed to import"
PLANTED = [
    ("contracts/planted_up.py", "import contextos.trust", f"contextos.contracts {SAYS} contextos.trust"),
    ("trust/planted_sibling.py", "import contextos.action", f"contextos.trust {SAYS} contextos.action"),
    ("decision/planted_app.py", "import contextos.workspace", f"contextos.decision {SAYS} contextos.workspace"),
    ("store/planted_twin.py", "import contextos.adapters", f"contextos.store {SAYS} contextos.adapters"),
    ("planted_module.py", "", "- contextos.planted_module"),
    ("control/planted_time.py", "import time", f"contextos.control {SAYS} time"),
    ("context/planted_os.py", "import os.path", f"contextos.context {SAYS} os"),
    ("contracts/planted_chance.py", "def f(): import random", f"contextos.contracts {SAYS} random"),
    ("cli/planted_store.py", "import contextos.store", "contextos.cli.planted_store -> contextos.store"),
    (
        "frameworks/planted_wire.py",
        "import contextos.adapters.models.openai_chat",
        "contextos.frameworks.planted_wire -> contextos.adapters.models.openai_chat",
    ),
    ("adapters/openapi/planted_sdk.py", "def f(): import openai", "contextos.adapters.openapi.planted_sdk -> openai"),
    (
        "trust/planted_extra.py",
        "import contextos_agentspec.wiring",
        "contextos.trust.planted_extra -> contextos_agentspec.wiring",
    ),
    (
        "runtime/planted_provider.py",
        "import contextos.action.models.foreign_provider",
        "contextos.runtime.planted_provider -> contextos.action.models.foreign_provider",
    ),
    ("action/planted_a.py", "from contextos.action import planted_b", "No cycles are allowed in contextos.action"),
    ("action/planted_b.py", "from contextos.action import planted_a", "No cycles are allowed in contextos.action"),
]


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the tree under `root` and on no installed one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "agentspec")])}
    return subprocess.run(
        [sys.executable, "-c", LINT], cwd=root, env=environment, text=True, capture_output=True, check=False
    )


def words(text: str) -> str:
    """Without the linter's own line breaks."""
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    root = tmp_path_factory.mktemp("planted")
    shutil.copytree(SRC, root / "src" / "contextos", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "agentspec", root / "agentspec", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", root)
    for path, line, _ in PLANTED:
        (root / "src" / "contextos" / path).write_text(line + "\n", encoding="utf-8")
    return lint(root)


@pytest.mark.requirement("C-PURE")
def test_the_import_rule_holds() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("path", "line", "said"), PLANTED, ids=[path for path, _, _ in PLANTED])
def test_a_planted_import_is_found(planted: subprocess.CompletedProcess[str], path: str, line: str, said: str) -> None:
    assert planted.returncode == 1, planted.stdout + planted.stderr
    assert said in words(planted.stdout)


@pytest.fixture(scope="module")
def rule() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return parser


def layers(rule: configparser.ConfigParser) -> list[list[str]]:
    return [line.split(" | ") for line in rule["importlinter:contract:layers"]["layers"].split("\n") if line]


def built() -> set[str]:
    return {path.stem for path in SRC.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}


def test_only_layers_that_are_not_built_are_in_parentheses(rule: configparser.ConfigParser) -> None:
    optional = {name.strip("()") for layer in layers(rule) for name in layer if name.startswith("(")}
    assert not optional & built(), "take them out of the parentheses in `.importlinter`"


@pytest.mark.requirement("C-PURE")
def test_everything_that_drives_a_run_takes_time_and_chance_from_ports(rule: configparser.ConfigParser) -> None:
    order = layers(rule)
    below = order[order.index(["service"]) :]
    down = {name.strip("()") for layer in below for name in layer} - {"errors"}
    sources = rule["importlinter:contract:ports-only"]["source_modules"].split()
    judged = {name.removeprefix("contextos.") for name in sources}
    assert judged == down & built(), "list exactly them in `.importlinter`"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("datetime.datetime.now(datetime.UTC)", "TID251"),
        ("datetime.date.today()", "TID251"),
        ("asyncio.sleep(1)", "TID251"),
        ("try: f()\nexcept Exception: g()", "BLE001"),
    ],
)
def test_a_plane_that_reads_the_clock_or_catches_everything_is_found(line: str, code: str) -> None:
    source = f"import asyncio\nimport datetime\n\n{line}\n"
    assert code in ruff("src/contextos/a_plane_of_tomorrow/planted.py", source)
    assert code not in ruff("src/contextos/cli/planted.py", source)


def ruff(path: str, source: str) -> str:
    options = ["--no-cache", "--output-format=concise", "--stdin-filename", path, "-"]
    command = [sys.executable, "-m", "ruff", "check", *options]
    return subprocess.run(command, cwd=ROOT, input=source, text=True, capture_output=True, check=False).stdout


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dependencies(folder: Path) -> set[str]:
    """The distributions that a `pyproject.toml` asks for, with its extras."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    return {normal(re.split(r"[\s\[<>=!~;]", line)[0]) for line in [*project["dependencies"], *extras]}


@pytest.mark.parametrize(
    ("folder", "own"), [(SRC, ROOT), (ROOT / "agentspec", ROOT / "agentspec")], ids=["contextos", "contextos-agentspec"]
)
def test_every_third_party_import_is_a_declared_dependency(folder: Path, own: Path) -> None:
    declared = dependencies(own)
    installed = packages_distributions()
    # `compression` is in the standard library from 3.14 on.
    standard = sys.stdlib_module_names | {"compression"}
    ours = {"contextos"} if folder is SRC else {"contextos", "contextos_agentspec"}
    undeclared = {
        name
        for path in folder.rglob("*.py")
        for name in top_level_imports(path.read_text(encoding="utf-8")) - standard - ours
        if not declared & {normal(distribution) for distribution in installed.get(name, [name])}
    }
    assert not undeclared, "declare them in `pyproject.toml` and run `make lock`"


def top_level_imports(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found
