"""Processes that a test starts: they end with it, and their files are read while they write."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr


@contextmanager
def ended(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """A process that is killed at the end if it still runs; one that is left would fail another test."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that were written to their end, without what a process is still writing."""
    return path.read_bytes().rpartition(b"\n")[0].decode().splitlines() if path.exists() else []
