"""`FileWitness`: the `Witness` port on an append-only file.

Put the file where the owner of the store cannot write: on another disk, or under another user. Then it still contains
the heads of entries that were deleted from the store. It has one JSON object per line, for a log shipper to forward.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import SHARED_STREAMS, WitnessedHead
from contextos.errors import Integrity, InvalidInput, Unavailable

BLOCK_BYTES: Final = 1 << 20
MARGIN_US: Final = 3_600_000_000
"""How much the clocks of the publishing processes can differ, plus how late one of them can write, in microseconds."""

_LINE_START = b'{"at_us":'
_TEXT = rb'"([^"\\\x00-\x1f\x80-\xff]*)"'
_NUMBER = rb"(0|[1-9][0-9]{0,15})"
_CANONICAL_LINE = re.compile(
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
_FIELD_TYPES = {"tenant": str, "stream": str, "seq": int, "hash": str, "kid": str, "signature": str, "at_us": int}


class FileWitness:
    """Appends signed journal heads to the file `path`, which is created if it does not exist. Any thread and process
    can use it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        await asyncio.to_thread(self._append_lines, b"".join(canonical(head._asdict()) + b"\n" for head in heads))

    async def heads(self, tenant_id: str, *, since_us: int = 0) -> Sequence[WitnessedHead]:
        """Return the heads of a tenant in the order of the file. Reads the file in blocks from its end. Stops after a
        block whose heads are all more than an hour older than `since_us`, once each of the tenant's streams has a head.
        """
        return await asyncio.to_thread(self._read_heads, tenant_id, since_us - MARGIN_US)

    def _read_heads(self, tenant_id: str, oldest_us: int) -> Sequence[WitnessedHead]:
        heads, streams = list[WitnessedHead](), set[str]()
        for block in self._read_blocks():
            page = [head for offset, line in reversed(block) if (head := self._parse_line(offset, line))]
            heads += [head for head in page if head.tenant == tenant_id]
            streams.update(head.stream.partition("@")[0] for head in heads)
            if streams.issuperset(SHARED_STREAMS) and page and max(head.at_us for head in page) < oldest_us:
                break
        return heads[::-1]

    def _append_lines(self, lines: bytes) -> None:
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # End a line that a full disk or a kill has cut off, so that the next head starts a new line.
                end = os.lseek(file, 0, os.SEEK_END)
                cut_off = end > 0 and os.pread(file, 1, end - 1) != b"\n"
                lines = b"\n" + lines if cut_off else lines
                if os.write(file, lines) != len(lines):
                    raise Unavailable("witness", f"`{self.path}` is full")
                os.fsync(file)
            finally:
                os.close(file)
        except ValueError as error:
            raise Unavailable("witness", f"`{self.path}` is not a path") from error
        except OSError as error:
            raise Unavailable("witness", f"`{self.path}` cannot be written: {error.strerror or error}") from error

    def _read_blocks(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the whole lines of each block of the file with their offsets, the last block first.

        Only the end of the file is found under the lock: the lines before it never change.
        """
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                offset, partial = file.seek(0, os.SEEK_END), b""
                fcntl.flock(file, fcntl.LOCK_UN)
                while offset:
                    size = min(BLOCK_BYTES, offset)
                    offset -= size
                    raw = os.pread(file.fileno(), size, offset) + partial
                    # The line in which the block begins is read with the block before it.
                    start = (raw.find(b"\n") + 1 or len(raw)) if offset else 0
                    partial = raw[:start]
                    yield _split_lines(raw[start:], offset + start)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise Unavailable("witness", f"`{self.path}` is not a path") from error
        except OSError as error:
            raise Unavailable("witness", f"`{self.path}` cannot be read: {error.strerror or error}") from error

    def _parse_line(self, offset: int, line: bytes) -> WitnessedHead | None:
        """Return the head in the line at this offset, or None for a line that was cut off while it was written.

        Lines that this class wrote match one regular expression, which is about ten times faster than parsing JSON.
        """
        if matched := _CANONICAL_LINE.fullmatch(line):
            at_us, digest, kid, seq, signature, stream, tenant_id = (group.decode() for group in matched.groups())
            return WitnessedHead(tenant_id, stream, int(seq), digest, kid, signature, int(at_us))
        if _is_cut_off(line):
            return None
        with self.path.open("rb") as file:
            number = file.read(offset).count(b"\n") + 1
        return read_head(line, f"line {number} of `{self.path}`")


def _split_lines(raw: bytes, offset: int) -> list[tuple[int, bytes]]:
    """Return the lines of `raw` that are not empty, each with its offset in the file. `raw` starts at `offset`."""
    lines: list[tuple[int, bytes]] = []
    for line in raw.split(b"\n"):
        lines += [(offset, line)] if line else []
        offset += len(line) + 1
    return lines


def read_head(raw: bytes, where: str) -> WitnessedHead:
    """Parse a signed journal head from JSON. Raises `Integrity` if it is malformed; `where` names its source in the
    error.
    """
    try:
        parsed: Any = loads(raw)
    except InvalidInput:
        parsed = None
    fits = isinstance(parsed, dict) and parsed.keys() == _FIELD_TYPES.keys()
    if not fits or any(type(parsed[name]) is not type_ for name, type_ in _FIELD_TYPES.items()):
        raise Integrity(f"{where} is not a witnessed head; keep it and find out who wrote it")
    return WitnessedHead(**parsed)


def _is_cut_off(line: bytes) -> bool:
    if not (line.startswith(_LINE_START) or _LINE_START.startswith(line)):
        return False
    try:
        loads(line)
    except InvalidInput:
        return True
    return False
