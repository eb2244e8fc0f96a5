"""`FileWitness`: the `Witness` port over a file that only grows.

The file belongs on a disk, or under a user, that the owner of the store cannot write: then what they delete from the
store is still known here. It is one JSON object a line, so that a log shipper can carry it further away.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextos.contracts.codec import canonical, loads
from contextos.contracts.journal import WitnessedHead
from contextos.errors import Integrity, InvalidInput, Unavailable

_BEGINS = b'{"at_us":'
_KINDS = {"tenant": str, "stream": str, "seq": int, "hash": str, "kid": str, "signature": str, "at_us": int}


class FileWitness:
    """Appends heads to `path`, which is made if it is not there. May be used from any thread and process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        await asyncio.to_thread(self._append, b"".join(canonical(one._asdict()) + b"\n" for one in heads))

    async def heads(self, tenant_id: str) -> Sequence[WitnessedHead]:
        lines = (await asyncio.to_thread(self._read)).split(b"\n")
        known = [self._line(number, line) for number, line in enumerate(lines, start=1) if line]
        return [one for one in known if one is not None and one.tenant == tenant_id]

    def _append(self, lines: bytes) -> None:
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # What a full disk or a kill cut off in the middle ends here, so that no head is glued to it.
                end = os.lseek(file, 0, os.SEEK_END)
                torn = end > 0 and os.pread(file, 1, end - 1) != b"\n"
                lines = b"\n" + lines if torn else lines
                if os.write(file, lines) != len(lines):
                    raise Unavailable("witness", f"`{self.path}` is full")
                os.fsync(file)
            finally:
                os.close(file)
        except ValueError as error:
            raise Unavailable("witness", f"`{self.path}` is no path") from error
        except OSError as error:
            raise Unavailable("witness", f"`{self.path}` cannot be written: {error.strerror or error}") from error

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return file.read()
        except FileNotFoundError:
            return b""
        except ValueError as error:
            raise Unavailable("witness", f"`{self.path}` is no path") from error
        except OSError as error:
            raise Unavailable("witness", f"`{self.path}` cannot be read: {error.strerror or error}") from error

    def _line(self, number: int, line: bytes) -> WitnessedHead | None:
        """The head of a line; None for the beginning of one that was cut off while it was written."""
        try:
            said: Any = loads(line)
        except InvalidInput:
            if line.startswith(_BEGINS) or _BEGINS.startswith(line):
                return None
            said = None
        fits = isinstance(said, dict) and said.keys() == _KINDS.keys()
        if not fits or any(type(said[name]) is not kind for name, kind in _KINDS.items()):
            raise Integrity(f"line {number} of `{self.path}` is no witnessed head; keep it, and look who wrote it")
        return WitnessedHead(**said)
