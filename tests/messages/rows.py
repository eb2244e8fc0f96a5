"""The rows of the table of messages: what a reader did, at which door, and the exact words that came back.

A module of this package has `produced(folder)`, which yields its rows from the real doors. Their words are kept in a
file beside it; `python -m tests.messages` prints all rows, and `python -m tests.messages --write` keeps them anew.
"""

from __future__ import annotations

import importlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from contextos.cli import run_command_line

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """One message. `door` is how it was produced, `given` what was written there, `says` the whole message."""

    id: str
    reader: str
    door: str
    given: str
    says: str


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """Return a context in which the state of commands is kept in `folder`; after it all is as before, also the
    directory.
    """
    before, state = Path.cwd(), os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.pop("XDG_STATE_HOME") if state is None else os.environ.update(XDG_STATE_HOME=state)


def readers() -> list[str]:
    """The modules of this package that have rows."""
    return sorted(
        file.stem for file in HERE.glob("*.py") if "def produced" in file.read_text("utf-8") and file.stem != "rows"
    )


def rows_of(module: str, folder: Path) -> list[Row]:
    """Produce the rows of one module in an empty folder."""
    made = importlib.import_module(f"tests.messages.{module}").produced(folder)
    return [Row(one.id, one.reader, one.door, one.given, plain(one.says, folder)) for one in made]


def plain(text: str, folder: Path) -> str:
    """A message without what differs from machine to machine."""
    return text.strip().replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT")


def kept(module: str) -> dict[str, str]:
    """The words that are kept of a module's rows, by id."""
    file = HERE / f"{module}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def keep(module: str, rows: list[Row]) -> None:
    """Keep the words of a module's rows."""
    said = {one.id: one.says for one in rows}
    (HERE / f"{module}.json").write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", "utf-8")


def markdown(rows: list[Row]) -> Iterator[str]:
    """The rows as lines of a table."""
    yield "| id | reader | door | input | message |"
    yield "| --- | --- | --- | --- | --- |"
    for one in rows:
        cells = (one.id, one.reader, one.door, one.given, one.says)
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"


def typed(*words: str) -> str:
    """What the command line prints."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        run_command_line(list(words))
    return said.getvalue()
