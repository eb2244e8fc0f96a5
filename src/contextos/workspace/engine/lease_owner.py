"""The identity of this process in leases (who drives a run), and whether another process that holds one is alive.

A lease holds the id of its owner. An owner on this machine locks a file, and the kernel releases the lock when the
process dies in any way. So after a kill another process can take the lease over at once.
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
    """The identity of this process in leases, until it ends or calls `close`. `id` is 16 random hex digits.

    With the path of a store, the process locks the file `<path>.owners/<id>.lock`. The lock shows other processes on
    this machine that it lives. With None, every other owner counts as dead. For a store on several machines use
    `LeasedOwner`.

    Raises:
        InvalidSettings: the lock cannot be created.
    """

    def __init__(self, path: Path | str | None) -> None:
        self.id = secrets.token_hex(8)
        self._directory = Path(f"{path}.owners").absolute() if path is not None else None
        self._lock: int | None = None
        self._closed = False
        if self._directory is not None:
            try:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                self._lock = _lock_file(self._directory / f"{self.id}.lock")
            except OSError as fault:
                detail = f"cannot create a lock in `{self._directory}`: {fault.strerror}"
                remedy = "make its parent directory writable"
                raise InvalidSettings(Problem("/store", "no_owner_lock", detail, remedy)) from fault
            self._remove_dead()

    def alive(self, owner_id: str) -> bool:
        """Return whether the process with `owner_id` lives on this machine. False for an unknown or malformed id.

        Removes the lock file of a dead owner.
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
            # Shared, so that two processes that check at the same time do not take each other for the owner.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(lock)

    def close(self) -> None:
        """Release the lock. Other processes can take over the leases of this owner at once."""
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
    """The identity of this process in leases of a store that several machines share.

    A process on another machine cannot be checked from here, so it counts as alive, and its lease is taken over when it
    expires (`lease_ttl_s`), unless the store says that it is dead.
    """

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self._dead: frozenset[str] = frozenset()
        self._closed = False

    def set_dead(self, owners: frozenset[str]) -> None:
        """Set the ids of the workers that are dead by the store's clock. Only their leases count as over early."""
        self._dead = owners

    def alive(self, owner_id: str) -> bool:
        """Return whether the process `owner_id` can still be driving a run."""
        return owner_id not in self._dead if owner_id != self.id else not self._closed

    def close(self) -> None:
        self._closed = True


def _lock_file(path: Path) -> int:
    """Return a descriptor that holds the lock of `path`. Retries if another process removed the file meanwhile."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)
