"""`FileWitness`: the `Witness` port over a file that only grows.

The file belongs on a disk, or under a user, that the owner of the store cannot write: then what they delete from the
store is still known here. It is one JSON object a line, so that a log shipper can carry it further away.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import WitnessedHead
from contextos.errors import Integrity, InvalidInput, Unavailable

_BEGINS = b'{"at_us":'
_TEXT = rb'"([^"\\\x00-\x1f\x80-\xff]*)"'
_NUMBER = rb"(0|[1-9][0-9]{0,15})"
_PLAIN = re.compile(
    rb'\{"at_us":'
    + _NUMBER
    + rb',"hash":'
    + _TEXT
    + rb',"kid":'
    + _TEXT
    + rb',"seq":'
    + _NUMBER
    + rb',"signature":'
    + _TEXT
    + rb',"stream":'
    + _TEXT
    + rb',"tenant":'
    + _TEXT
    + rb"\}"
)
_KINDS = {"tenant": str, "stream": str, "seq": int, "hash": str, "kid": str, "signature": str, "at_us": int}


class FileWitness:
    """Appends heads to `path`, which is made if it is not there. May be used from any thread and process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        await asyncio.to_thread(self._append, b"".join(canonical(one._asdict()) + b"\n" for one in heads))

    async def heads(self, tenant_id: str) -> Sequence[WitnessedHead]:
        raw = await asyncio.to_thread(self._read)
        known = [self._line(number, line) for number, line in enumerate(raw.split(b"\n"), start=1) if line]
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
        """The head of a line; None for the beginning of one that was cut off while it was written.

        What we wrote has one form and is read by it, some ten times faster than as JSON.
        """
        if plain := _PLAIN.fullmatch(line):
            at_us, digest, kid, seq, signature, stream, tenant = (part.decode() for part in plain.groups())
            return WitnessedHead(tenant, stream, int(seq), digest, kid, signature, int(at_us))
        if _is_torn(line):
            return None
        return read_head(line, f"line {number} of `{self.path}`")


def read_head(raw: bytes, where: str) -> WitnessedHead:
    """The head that somebody gives as one. Raises `Integrity`: it is none."""
    try:
        said: Any = loads(raw)
    except InvalidInput:
        said = None
    fits = isinstance(said, dict) and said.keys() == _KINDS.keys()
    if not fits or any(type(said[name]) is not kind for name, kind in _KINDS.items()):
        raise Integrity(f"{where} is no witnessed head; keep it, and look who wrote it")
    return WitnessedHead(**said)


def _is_torn(line: bytes) -> bool:
    if not (line.startswith(_BEGINS) or _BEGINS.startswith(line)):
        return False
    try:
        loads(line)
    except InvalidInput:
        return True
    return False
