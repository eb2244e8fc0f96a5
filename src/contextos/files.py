"""Reads files that people and settings name, regular ones of at most so many bytes, and writes new files whole."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from contextos.errors import InvalidSettings, Problem


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file. A pipe, a device or a directory is refused, because reading it could last for ever.

    Raises:
        OSError: the file cannot be read, is not a regular file or is larger than `max_bytes`; `strerror` says which.
    """
    return _read_with_mode(path, max_bytes)[0]


def read_private_file(path: Path, max_bytes: int, pointer: str) -> bytes:
    """Return the bytes of a file that only its owner can read: a key, a password or a token.

    Raises:
        InvalidSettings: others can read the file; `pointer` names the setting, or is empty for an option.
        OSError: as `read_regular_file`.
    """
    raw, mode = _read_with_mode(path, max_bytes)
    if mode & 0o077:
        detail = f"`{path.name}` can be read by others"
        raise InvalidSettings(Problem(pointer, "open_key", detail, "run `chmod 600` on it"))
    return raw


def _read_with_mode(path: Path, max_bytes: int) -> tuple[bytes, int]:
    """Return the bytes and the mode of a regular file, both of the file that was opened. Raises `OSError`."""
    try:
        # Without O_NONBLOCK opening a pipe waits for its writer.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds a null character") from None
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(file, "rb", closefd=False) as stream:
            raw = stream.read(max_bytes + 1)
    finally:
        os.close(file)
    if len(raw) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes} bytes")
    return raw, mode


def why_unwritten(error: OSError) -> str:
    """Return why a file could not be written, in words."""
    too_large = "this account may write no file of that size (`ulimit -f`), or the file system holds none"
    return too_large if error.errno == errno.EFBIG else (error.strerror or str(error)).lower()


def replace_file(path: Path, raw: bytes) -> None:
    """Write a file that only its owner can read, in the place of an earlier one. A reader finds the earlier or the new
    file whole, also after a crash.

    Raises:
        OSError: the file cannot be written; the earlier one stays.
    """
    try:
        file, part = tempfile.mkstemp(prefix=f".{path.name[:64]}-", suffix=".part", dir=path.parent)
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds a null character") from None
    try:
        with open(file, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        raise


def why(error: Exception) -> str:
    """Return what is wrong in words, without the number and the path that Python adds."""
    return (getattr(error, "strerror", None) or str(error)).lower()


class NewFiles:
    """New files that appear together: each is written beside its place, and moved there by `publish`.

    A name is taken by an empty file until then. Without `publish` nothing stays. Existing files are not replaced, and
    links are not followed. Files can be read by their owner only.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Path, str]] = []

    def __enter__(self) -> NewFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for path, part in self._parts:
            for name in (part, path):
                with suppress(OSError):
                    os.unlink(name)

    def write(self, path: Path, raw: bytes) -> None:
        """Take the name `path` and write `raw` beside it.

        Raises:
            FileExistsError: there is something at `path`.
            OSError: the file cannot be written.
        """
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except ValueError:
            raise OSError(errno.EINVAL, "its name holds a null character") from None
        self._parts.append((path, ""))
        file, part = tempfile.mkstemp(prefix=".export-", suffix=".part", dir=path.parent)
        self._parts[-1] = (path, part)
        try:
            remaining = memoryview(raw)
            while remaining:
                remaining = remaining[os.write(file, remaining) :]
            os.fsync(file)
        finally:
            os.close(file)

    def publish(self) -> None:
        """Move every file to its place. Raises `OSError`."""
        while self._parts:
            path, part = self._parts[-1]
            os.replace(part, path)
            self._parts.pop()
