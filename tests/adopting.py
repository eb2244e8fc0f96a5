"""The section of the README about a stock MCP server and a stock client, typed in an empty directory.

`make mcp-servers` types it with the real programs of npm (`tests/e2e/test_stock_mcp_servers.py`). The normal suite
types the same text with stand-ins made with the SDK (`tests/e2e/test_readme_mcp_server.py`), which need no network. In
both, `npm install` is a program of the test, which puts the pinned programs into `node_modules`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.docs.pages import ROOT, Typed, blocks, make_shim, stock_section, typed
from tests.terminal import check_session, play

SECTION = stock_section((ROOT / "README.md").read_text("utf-8"))
FOLDER = ROOT / "tests" / "servers"


def commands() -> list[Typed]:
    """What a reader types: the commands, and each file of the section as it is saved."""
    found: list[Typed] = []
    for block in blocks(SECTION):
        if block.language == "console":
            found += typed(block.text)
        else:
            assert block.title, "a block that is no command is a file that the reader saves"
            found.append(Typed(f"cat > {block.title} <<'END'\n{block.text}END", 0, ()))
    return found


def type_section(place: Path, installed: Mapping[str, Path], *also: Path) -> Path:
    """Type the section in an empty directory, check what it shows, and return the workspace.

    `npm install` links the programs `installed` by their names. `also` are directories that come first on the PATH.
    """
    shim, empty = make_shim(place / "bin"), place / "empty"
    empty.mkdir()
    links = [f"ln -s {shlex.quote(str(path))} node_modules/.bin/{name}" for name, path in installed.items()]
    program(shim / "npm", " && ".join(["mkdir -p node_modules/.bin", *links]))
    found = commands()
    check_session(found, play(found, empty, [shim, *also]))
    return empty / "desk"


def program(path: Path, line: str) -> Path:
    """A program of one line for the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def in_python(path: Path, script: Path) -> Path:
    """A program that runs a script of the tests."""
    return program(path, f'exec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$@"')
