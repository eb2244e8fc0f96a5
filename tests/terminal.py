"""The commands of a page, typed in one bash session on a terminal, with the answers that the page types there."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.docs.pages import Typed, as_shown

PATIENCE_S: Final = 240

PROMPT = re.compile(r"\[y/N\]: $")
ANSWER = re.compile(r"\[y/N\]: (?P<typed>\w+)$", re.MULTILINE)
MARK: Final = "\x1e"
"""Written after each command, around its exit code."""


def play(
    found: list[Typed],
    folder: Path,
    programs: Sequence[Path],
    *,
    path: str | None = None,
    more: Mapping[str, str] | None = None,
    patience_s: float = PATIENCE_S,
) -> list[tuple[int, str]]:
    """Run the commands in one bash on a terminal; exit code and what the terminal shows of each. Where a command asks,
    what the page types there is typed. `programs` are directories that come first on the PATH, before `path`, which is
    that of this process by default. `more` are the only other variables.
    """
    environment = {
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"] if path is None else path]),
        "HOME": str(folder.parent),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        **(more or {}),
    }
    script = folder.parent / "session.sh"
    script.write_text("".join(f"{one.command}\nprintf '{MARK}%s{MARK}' $?\n" for one in found), "utf-8")
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve("/bin/bash", ["bash", "--noprofile", "--norc", str(script)], environment)
    shown, answered, until = "", 0, time.monotonic() + patience_s
    answers = [said["typed"] for one in found for said in ANSWER.finditer("\n".join(one.shown))]
    while True:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            read = os.read(terminal, 65_536)
        except OSError:
            break
        shown += read.decode()
        if not read:
            break
        if PROMPT.search(shown):
            assert answered < len(answers), f"the page does not answer\n{shown[-2000:]}"
            os.write(terminal, f"{answers[answered]}\n".encode())
            answered += 1
            shown += "\x00"
    os.waitpid(child, 0)
    os.close(terminal)
    parts = shown.replace("\x00", "").replace("\r\n", "\n").split(MARK)
    return [(int(code), said) for said, code in zip(parts[0::2], parts[1::2], strict=False)]


def check_session(found: Sequence[Typed], said: Sequence[tuple[int, str]]) -> None:
    """Each command ended as the page states, and said what it shows."""
    for one, (code, shown) in zip(found, said, strict=False):
        assert code == one.exit_code, f"`{one.command}` ended with {code}\n{shown}"
        assert not one.shown or as_shown(one.shown, shown), f"`{one.command}` says\n{shown}"
    assert len(said) == len(found), f"the session ended after `{found[len(said)].command}`"
