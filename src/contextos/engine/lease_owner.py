"""Who this process is to the leases, and whether another owner on this machine still lives.

A lease says by whom it is held; a lock on a file, which the kernel lets go of when its process dies in
whatever way, says whether that owner lives. So a successor takes over at once after a kill.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from contextos.errors import InvalidSettings, Problem

_ID: Final = re.compile(r"[0-9a-f]{16}")


class Owner:
    """This process, for as long as it lives or until `close`. `id` is 16 random hex digits.

    With the path of a store, its lock is `<path>.owners/<id>.lock`; with None only this owner is ever alive.
    It knows owners on this machine alone: a store that is shared over a network needs leases that expire.

    Raises: `InvalidSettings` if the lock cannot be made.
    """

    def __init__(self, path: Path | str | None) -> None:
        self.id = secrets.token_hex(8)
        self._directory = Path(f"{path}.owners").absolute() if path is not None else None
        self._lock: int | None = None
        self._closed = False
        if self._directory is not None:
            try:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                self._lock = _locked(self._directory / f"{self.id}.lock")
            except OSError as fault:
                detail = f"no lock can be made in `{self._directory}`: {fault.strerror}; make its parent writable"
                raise InvalidSettings(Problem("/store", "no_owner_lock", detail)) from fault
            self._remove_dead()

    def alive(self, owner_id: str) -> bool:
        """Whether `owner_id` lives on this machine; False for an id that is unknown or has no form of one.

        The file of a dead owner is removed.
        """
        if owner_id == self.id:
            return not self._closed
        if self._directory is None or _ID.fullmatch(owner_id) is None:
            return False
        path = self._directory / f"{owner_id}.lock"
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who ask at the same time do not take each other for the owner.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(lock)

    def close(self) -> None:
        """Be dead to others. What this owner still holds may be taken over at once."""
        self._closed = True
        if self._lock is not None and self._directory is not None:
            (self._directory / f"{self.id}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _remove_dead(self) -> None:
        assert self._directory is not None
        for path in self._directory.glob("*.lock"):
            self.alive(path.stem)


class LeasedOwner:
    """This process, where others may be on other machines: nobody can ask them, so their leases tell.

    Whoever holds a lease counts as alive until it runs out (`lease_ttl_s`), and is then taken over.
    """

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self._closed = False

    def alive(self, owner_id: str) -> bool:
        """Whether `owner_id` may still be driving."""
        return owner_id != self.id or not self._closed

    def close(self) -> None:
        self._closed = True


def _locked(path: Path) -> int:
    """A descriptor with the lock of `path`. Another process may have removed the file before it was locked."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)
