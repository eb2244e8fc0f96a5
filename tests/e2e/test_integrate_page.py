"""`docs/integrate.md`: its commands, typed in one bash session, call a real server from `curl`, Python and TypeScript.

`npm install` is a program of the test, which puts the packages of `examples/typescript` into `node_modules`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.adopting import program
from tests.docs.pages import ROOT
from tests.e2e.test_typescript_client import PINNED
from tests.npm import npm_folder
from tests.service_pages import type_page

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "integrate.md").read_text("utf-8")


def test_every_command_of_the_page_ends_and_says_what_it_shows(tmp_path: Path) -> None:
    folder = npm_folder(PINNED)
    programs = tmp_path / "programs"
    program(programs / "npm", f"ln -s {shlex.quote(str(folder / 'node_modules'))} node_modules")
    # The page's Node is the pinned one, and `npx` finds the programs of `node_modules` as it does for a reader.
    npx = shutil.which("npx")
    assert npx is not None, "npm brings npx"
    path = f"{folder / 'node_modules' / '.bin'}{os.pathsep}$PATH"
    program(programs / "npx", f'PATH="{path}" exec {shlex.quote(npx)} "$@"')
    program(programs / "node", f'exec {shlex.quote(str(folder / "node_modules" / ".bin" / "node"))} "$@"')
    type_page(PAGE, tmp_path, [programs])


def test_the_page_names_the_versions_of_the_example() -> None:
    named = set(re.findall(r"(?:@types/)?[\w-]+@\d[\d.]+", PAGE))
    assert named
    assert named <= set(PINNED)
