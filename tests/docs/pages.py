"""Markdown pages as their tests see them: code blocks, and what is typed and shown in them."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contextos.cli import run_command_line

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "docs" / "reference"

STOCK: Final = "## An MCP server that you have, governed"
"""The section of the README that begins in an empty directory: `tests/adopting.py` types it."""

FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[\w./-]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
EXIT = re.compile(r"\s+# exit (?P<code>\d+)$")
DIFFERS = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\b\d+ (?:bytes|entries)\b|"
    r"[0-9a-f]{8,64}|\b\d+\.\d+\b(?: m?s\b)?|(?<!\d)\d{4}_\d\d_\d\d(?!\d)"
)
SHELL = re.compile(r"[|>&;$]|^\w+=")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is where its text begins in the page, `title` the file that its reader saves it as."""

    language: str
    text: str
    line: int
    title: str


@dataclass(frozen=True)
class Typed:
    """One command of a console block, the exit code that it states (0 where it does not), and the lines shown below."""

    command: str
    exit_code: int
    shown: tuple[str, ...]


def written() -> list[Path]:
    """Every page that a person writes; the pages of `docs/reference` are generated and checked for drift."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: str) -> list[Block]:
    return [
        Block(found["language"], found["text"], page.count("\n", 0, found.start("text")) + 1, found["title"] or "")
        for found in FENCE.finditer(page)
    ]


def stock_section(readme: str) -> str:
    """The section of the README about a stock MCP server and a stock client, with its heading."""
    _, heading, after = readme.partition(STOCK)
    assert heading, "the README has no such section"
    return heading + after.partition("\n## ")[0]


def typed(text: str) -> Iterator[Typed]:
    """The commands of a console block. A backslash at the end of a line of a command continues it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.rstrip().splitlines()
        command = lines.pop(0)
        while command.endswith("\\"):
            command = f"{command[:-1]} {lines.pop(0)}"
        stated = EXIT.search(command)
        yield Typed(EXIT.sub("", command), int(stated["code"]) if stated else 0, tuple(lines))


def play(command: str, shim: Path) -> tuple[int, str]:
    """Type a command in the current directory: exit code, and what the terminal shows.

    A plain `contextos` command runs in this process, which is the same code and a second faster; anything else runs in
    a shell that finds `contextos` in `shim`.
    """
    if command.startswith("contextos ") and not SHELL.search(command):
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            return run_command_line(shlex.split(command)[1:]), said.getvalue()
    environment = {**os.environ, "PATH": f"{shim}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def make_shim(folder: Path) -> Path:
    """A directory in which `contextos` is this checkout's command line."""
    folder.mkdir()
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    script = f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {shlex.quote(sys.executable)} -m contextos.cli "$@"\n'
    (folder / "contextos").write_text(script, encoding="utf-8")
    (folder / "contextos").chmod(0o755)
    (folder / "python").write_text(script.replace(" -m contextos.cli", ""), encoding="utf-8")
    (folder / "python").chmod(0o755)
    return folder


def as_shown(shown: tuple[str, ...], said: str) -> bool:
    """Whether `said` is what is shown, but for ids, hashes and times. A line of three dots matches any lines."""
    wanted = ["(?:.*\n)*?" if line.strip() == "..." else re.escape(_settled(line)) + "\n" for line in shown]
    return re.fullmatch("".join(wanted), "".join(f"{_settled(line)}\n" for line in said.splitlines())) is not None


def _settled(line: str) -> str:
    """A line without what differs from run to run; columns close up, because such values differ in width."""
    return " ".join(DIFFERS.sub("#", line).split())
