"""Every code block of the README and of the docs runs, as a reader would run it, and every doctest of the package.

A page gets a copy of one demo workspace as its directory. Python blocks of a page are one program, in a file, since its
tools are bound to their source; a block with a title is saved as that file, and a later command uses it. Commands of a
console block run for real, end as they say (`# exit 5`, else 0) and say what is shown below them.
"""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shutil
import sys
import tomllib
from contextlib import chdir
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, Block, as_shown, blocks, make_shim, play, stock_section, typed, written

if TYPE_CHECKING:
    from tests.postgres import Database

MAKE = re.compile(r"make (?P<targets>[a-z ]+)")
TARGET = re.compile(r"^(?P<name>[a-z]+):", re.MULTILINE)
UNCHECKED = {"text", "mermaid"}

WITHOUT_BLOCKS = {"concepts.md", "console.md", "controls.md"}
"""Pages that explain terms or list."""
ELSEWHERE = {"first-decision.md", "integrate.md", "service.md"}
"""Pages that begin in an empty directory: `tests/e2e/test_first_decision.py`, `test_integrate_page.py` and
`test_service_page.py` type them.
"""
SERVICE = ROOT / "docs" / "production.md"
"""A page that needs a PostgreSQL server, which it names by these URLs."""
OWNER = "postgresql://owner@db.example/contextos"
LOGIN = "postgresql://service@db.example/contextos?sslmode=verify-full&sslrootcert=/etc/contextos/db-ca.pem"
PAGES = [page for page in written() if page.name not in WITHOUT_BLOCKS | ELSEWHERE | {SERVICE.name}]
FOLDERS = (ROOT / "src", ROOT / "agentspec")
WITH_DOCTESTS = sorted(
    path
    for folder in FOLDERS
    for path in folder.rglob("*.py")
    if re.search(r"^\s*>>> ", path.read_text("utf-8"), re.MULTILINE)
)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shim(tmp_path_factory.mktemp("path") / "bin")


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, shim: Path) -> Path:
    """A folder with the demo's `workspace`, the `state` folder of its user, and a copy of both under `fresh`."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(folder / "state"))
        code, said = play(f"contextos demo --yes --keep {folder / 'workspace'}", shim)
    assert code == 0, said
    for name in ("workspace", "state"):
        shutil.copytree(folder / name, folder / "fresh" / name)
    return folder


@pytest.fixture
def workspace(demo: Path, shim: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's workspace as it was made, at the place where it was made: its witness is named after that place."""
    monkeypatch.setenv("PATH", f"{shim}{os.pathsep}{os.environ['PATH']}")
    for name in ("workspace", "state"):
        shutil.rmtree(demo / name)
        shutil.copytree(demo / "fresh" / name, demo / name)
    monkeypatch.setenv("XDG_STATE_HOME", str(demo / "state"))
    monkeypatch.delenv("CONTEXTOS_WORKSPACE", raising=False)
    return demo / "workspace"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_block_of_a_page_runs(page: Path, workspace: Path, shim: Path) -> None:
    if page.name == "agents.md":
        pytest.importorskip("wayflowcore", reason="this page runs in the environment of `make agentspec`")
    text = page.read_text("utf-8")
    if page.name == "README.md":
        text = text.replace(stock_section(text), "")
    run_page(page, text, workspace, shim)


def test_every_code_block_of_the_page_about_production_runs(database: Database, workspace: Path, shim: Path) -> None:
    text = SERVICE.read_text("utf-8")
    assert text.count(OWNER) == text.count(LOGIN) == 1
    run_page(SERVICE, text.replace(OWNER, database.owner).replace(LOGIN, database.app), workspace, shim)


def run_page(page: Path, text: str, workspace: Path, shim: Path) -> None:
    found = list(blocks(text))
    assert found, f"{page.name} has no block; take it off the list of pages"
    typed_here = " ".join(block.text for block in found if block.language == "console")
    assert all(block.title in typed_here for block in found), f"{page.name} saves a file that no command uses"
    program = ModuleType("page")
    program.__file__ = str(workspace / "page.py")
    Path(program.__file__).write_text("\n".join(one.text for one in found if one.language == "python"), "utf-8")
    with chdir(workspace), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "page", program)
        for block in found:
            run_block(block, page, vars(program), shim)


def run_block(block: Block, page: Path, namespace: dict[str, object], shim: Path) -> None:
    if block.title:
        Path(block.title).write_text(block.text, "utf-8")
    elif block.language == "python":
        # Blank lines before it, so that a traceback names the line of the page.
        exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True), namespace)
    elif block.language == "console":
        run_console(block, page, shim)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)
    else:
        assert block.language in UNCHECKED, f"{page.name}:{block.line} is `{block.language}`, which nothing checks"


def run_console(block: Block, page: Path, shim: Path) -> None:
    commands = list(typed(block.text))
    assert commands, f"{page.name}:{block.line} has no `$ ` to type"
    for one in commands:
        made = MAKE.fullmatch(one.command)
        if made:
            # They would run these tests; that they exist is what can be said here.
            assert set(made["targets"].split()) <= set(TARGET.findall((ROOT / "Makefile").read_text("utf-8")))
            continue
        if one.command.startswith("cd "):
            os.chdir(one.command.removeprefix("cd "))  # for the rest of the page; `chdir` around it goes back
            continue
        code, said = play(one.command, shim)
        assert code == one.exit_code, f"{page.name}:{block.line} `{one.command}` ended with {code}\n{said}"
        assert not one.shown or as_shown(one.shown, said), f"{page.name}:{block.line} `{one.command}` says\n{said}"


@pytest.mark.parametrize("path", WITH_DOCTESTS, ids=lambda path: path.stem)
def test_every_doctest_of_a_module_holds(path: Path) -> None:
    folder = next(one for one in FOLDERS if path.is_relative_to(one))
    name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0


FALSE = [
    ("python", "assert 1 == 2\n"),
    ("console", "$ contextos runs list  # exit 5\n"),
    ("console", "$ contextos runs show req_none\n"),
    ("console", "$ contextos verify\neverything is fine\n"),
    ("console", "$ false && contextos runs list\n"),
    ("console", "$ make nothing\n"),
    ("console", "contextos runs list\n"),
    ("json", "{'a': 1}\n"),
    ("toml", "a = \n"),
    ("yaml", "a: 1\n"),
    ("", "plain\n"),
]


@pytest.mark.parametrize(("language", "text"), FALSE)
def test_a_false_block_is_found(language: str, text: str, workspace: Path, shim: Path) -> None:
    [block] = blocks(f"# A page\n\n```{language}\n{text}```\n")
    with chdir(workspace), pytest.raises((AssertionError, ValueError)):
        run_block(block, Path("page.md"), {}, shim)


def test_a_saved_file_that_no_command_uses_is_found(workspace: Path, shim: Path) -> None:
    page = '```python title="lost.py"\nassert 1 == 2\n```\n\n```console\n$ true\n```\n'
    with pytest.raises(AssertionError, match="no command uses"):
        run_page(Path("page.md"), page, workspace, shim)
    with pytest.raises(AssertionError, match="ended with 1"):
        run_page(Path("page.md"), page.replace("$ true", "$ python lost.py"), workspace, shim)


def test_shown_output_can_omit_lines_and_differ_only_in_ids_and_times() -> None:
    said = "run_0123456789abcdef completed\n  1.5 ms  pays INR 4200\nnext: show\n"
    assert as_shown(("run_fedcba9876543210 completed", "  33.1 ms  pays INR 4200", "next: show"), said)
    assert as_shown(("run_fedcba9876543210 completed", "  1.58 s  pays INR 4200", "next: show"), said)
    assert as_shown(("...", "next: show"), said)
    assert as_shown(("run_fedcba9876543210 completed", "..."), said)
    assert not as_shown(("run_fedcba9876543210 completed",), said)
    assert not as_shown(("...", "  1.5 ms  pays INR 9900", "..."), said)
