"""`KeyFiles`: the runtime's keys, one for each purpose, from the files of a directory.

`runtime.json` lists every public key: its purpose, when it begins to sign, and when it was retired. The private half of
each key that signs, now or soon, is in a file `<kid>.key` of 32 bytes in hex, which only its owner can read (the module
`encrypted_keys` uses other files). The first process that finds the private half of a replaced key deletes it, also
after a crash, and in a copy on another machine. The directory is read again whenever it changes, and when a key begins
or ceases to sign.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from contextos.adapters.file_status import is_settled
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.facts import name_remedy
from contextos.contracts.model import MAX_COUNT, Count, Model, Name, Seq
from contextos.contracts.ports.outside import Clock
from contextos.deployment.acts.keys import OVERLAP_US, NewKey, overtaken
from contextos.errors import InvalidInput, InvalidSettings, Problem
from contextos.files import read_private_file, read_regular_file, why
from contextos.trust.seal import KEY_BYTES, MAX_KEYS_PER_PURPOSE, PURPOSES, KeyRing

RING_FILE: Final = "runtime.json"
READABLE: Final = "run this as its owner, or let its owner give it to this user"
MAX_KEY_FILE_BYTES: Final = 4096
MAX_RING_BYTES: Final = 262_144


class ListedKey(Model):
    """A public key (hex) of the runtime. Times are Unix microseconds; `retired_at_us` is None until a rotation."""

    purpose: Name
    kid: Name
    public_key: Name
    activated_at_us: Count
    retired_at_us: Count | None


class RingFile(Model):
    """The content of `runtime.json`."""

    keys: Seq[ListedKey]


class SeedFiles:
    """Keeps the private half of a key as a plain file: 32 bytes in hex. A development stand-in."""

    suffix = ".key"
    unsafe: tuple[str, ...] = ("unsafe_local_keys",)

    def read(self, path: Path) -> bytes:
        """Return the 32 raw bytes of a private key. Raises `InvalidSettings`."""
        return read_seed(path)

    def write(self, path: Path, raw: bytes) -> None:
        """Write a new file. Raises `FileExistsError` if it exists, and `OSError` if it cannot be written."""
        write_seed(path, raw)


class KeyFiles:
    """The `Keys` port over the directory `folder`. `files` reads and writes the private halves.

    If the private file of a purpose is missing, signatures for it can be verified and not made.

    Raises:
        InvalidSettings: from the constructor and every method, if a file cannot be read, can be read by others, or
            holds another key than the list says; from a rotation, also if a file cannot be written.
    """

    unsafe: tuple[str, ...] = SeedFiles.unsafe

    def __init__(self, folder: Path, clock: Clock, files: SeedFiles | None = None) -> None:
        self._folder, self._clock, self._files = folder, clock, files if files is not None else SeedFiles()
        self.unsafe = self._files.unsafe
        self._stamp: tuple[int, ...] | None = None
        self._next_change_us = 0
        self._listed_keys: tuple[ListedKey, ...] = ()
        self._signing_keys: dict[str, ListedKey] = {}
        self._ring = KeyRing({})
        self._current_ring()

    @classmethod
    def make(cls, folder: Path, clock: Clock, files: SeedFiles | None = None) -> KeyFiles:
        """Make one new key for each purpose in `folder`. Raises `FileExistsError` if there are some already."""
        files = files if files is not None else SeedFiles()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / RING_FILE).exists():
            raise FileExistsError(errno.EEXIST, "it has keys already")
        keys = [_make_key(folder, purpose, clock.now_us(), files) for purpose in PURPOSES]
        with open(os.open(folder / RING_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_ring_bytes(keys))
        return cls(folder, clock, files)

    def listed(self) -> tuple[ListedKey, ...]:
        """Return every key. The keys of one purpose are together, the newest first."""
        self._current_ring()
        return self._listed_keys

    def kids(self, purpose: str) -> Sequence[str]:
        """Return the ids of the keys trusted for `purpose`, the signing key first."""
        return self._current_ring().kids(purpose)

    def public_key(self, purpose: str, kid: str) -> bytes | None:
        """Return the 32 raw bytes of the public key `kid`, or None if there is no such key for `purpose`."""
        return self._current_ring().public_key(purpose, kid)

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """Sign `payload` with the key that signs now; return the key id and the signature (64 bytes)."""
        return self._current_ring().sign(purpose, payload)

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes, *, at_us: int | None = None) -> bool:
        """Return whether the key `kid` is trusted for `purpose` and made this signature before it was retired."""
        return self._current_ring().verify(purpose, kid, payload, signature, at_us=at_us)

    def discloses(self, text: str) -> bool:
        """Return whether a text, or the JSON of a value, has a private half of these keys in it."""
        return self._current_ring().discloses(text)

    def prepare(self, purpose: str, from_us: int) -> NewKey:
        """Make a key that could replace the signing key of `purpose`; see `RotatingKeys`."""
        if purpose not in PURPOSES:
            detail = f"there is no purpose `{purpose[:40]}`"
            raise InvalidInput(Problem("/purpose", "unknown_purpose", detail, name_remedy(purpose, PURPOSES)))
        kids = self.kids(purpose)
        old = self._signing_keys.get(purpose)
        if old is None:
            detail = f"this workspace cannot sign for `{purpose}`"
            raise InvalidInput(
                Problem("/purpose", "no_signing_key", detail, "rotate the key where its private half is")
            )
        if old.retired_at_us is not None:
            detail = f"the key for `{purpose}` was rotated, and the new one does not sign yet"
            raise InvalidInput(
                Problem("/purpose", "pending", detail, "rotate it again when `key list` says that it does")
            )
        if len(kids) >= MAX_KEYS_PER_PURPOSE:
            detail = f"there are {len(kids)} keys for `{purpose}`, which is the most"
            remedy = f"remove one from `{RING_FILE}` whose signatures nobody needs any more"
            raise InvalidInput(Problem("/purpose", "too_many_keys", detail, remedy))
        raw = secrets.token_bytes(KEY_BYTES)
        [kid] = (ring := KeyRing({purpose: raw})).kids(purpose)
        public = ring.public_key(purpose, kid) or b""
        with _write_faults():
            self._files.write(self._key_path(kid), raw)
        return NewKey(purpose, old.kid, kid, public.hex(), from_us, from_us + OVERLAP_US)

    def install(self, new: NewKey) -> None:
        """List a prepared key before the key that it retires; see `RotatingKeys`. The list is replaced in one step."""
        with _write_faults(), _folder_lock(self._folder, fcntl.LOCK_EX) as folder:
            with _list_faults():
                self._reload()
            keys = list(self._listed_keys)
            index = next((index for index, key in enumerate(keys) if key.kid == new.old_kid), None)
            if index is None or keys[index].retired_at_us is not None:
                raise overtaken(new)
            old = keys[index].model_copy(update={"retired_at_us": new.retired_at_us})
            new_key = ListedKey(
                purpose=new.purpose,
                kid=new.kid,
                public_key=new.public_key,
                activated_at_us=new.activated_at_us,
                retired_at_us=None,
            )
            keys[index : index + 1] = [new_key, old]
            new_path = self._folder / f"{RING_FILE}.new"
            try:
                with open(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(_ring_bytes(keys))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(new_path, self._folder / RING_FILE)
            finally:
                new_path.unlink(missing_ok=True)
            os.fsync(folder)
        self._current_ring()

    def discard(self, new: NewKey) -> None:
        """Delete the file of a prepared key, unless it is listed or the list cannot be read."""
        with suppress(OSError, InvalidSettings), _folder_lock(self._folder, fcntl.LOCK_SH), _list_faults():
            self._reload()
            if all(key.kid != new.kid for key in self._listed_keys):
                self._key_path(new.kid).unlink(missing_ok=True)

    def _key_path(self, kid: str) -> Path:
        return self._folder / f"{kid}{self._files.suffix}"

    def _current_ring(self) -> KeyRing:
        with _list_faults():
            if _stamp_of(self._statuses()) != self._stamp or self._clock.now_us() >= self._next_change_us:
                with _folder_lock(self._folder, fcntl.LOCK_SH):
                    self._reload()
        return self._ring

    def _statuses(self) -> tuple[os.stat_result, os.stat_result]:
        """Return the statuses of the list and of the directory: a private half can arrive after the list."""
        return os.stat(self._folder / RING_FILE), os.stat(self._folder)

    def _reload(self) -> None:
        """Read the directory. The caller holds its lock, so that no other process rotates a key meanwhile."""
        self._stamp, statuses, now_us = None, self._statuses(), self._clock.now_us()
        raw = read_regular_file(self._folder / RING_FILE, MAX_RING_BYTES)
        self._listed_keys = tuple(parse(RingFile, raw, max_bytes=MAX_RING_BYTES).keys)
        self._ring = self._read_ring(self._listed_keys, now_us)
        times = [time for key in self._listed_keys for time in (key.activated_at_us, key.retired_at_us or 0)]
        self._stamp = _stamp_of(statuses) if is_settled(*statuses) else None
        self._next_change_us = min((time for time in times if time > now_us), default=MAX_COUNT)

    def _read_ring(self, keys: Sequence[ListedKey], now_us: int) -> KeyRing:
        public_keys: dict[str, list[bytes]] = {}
        for key in keys:
            public_keys.setdefault(key.purpose, []).append(bytes.fromhex(key.public_key))
        self._signing_keys = {}
        for purpose in public_keys:
            present = [key for key in keys if key.purpose == purpose and self._key_path(key.kid).exists()]
            active = [key for key in present if key.activated_at_us <= now_us]
            # If the clock went back to before every key began, the oldest key signs.
            newest = next(iter(active or present[-1:]), None)
            if newest is not None and now_us < (newest.retired_at_us or MAX_COUNT):
                self._signing_keys[purpose] = newest
            for replaced in active[1:]:
                if replaced.retired_at_us is not None:
                    with suppress(OSError):
                        self._key_path(replaced.kid).unlink()
        signing = {purpose: self._files.read(self._key_path(key.kid)) for purpose, key in self._signing_keys.items()}
        current = {key.kid for key in self._signing_keys.values()}
        retired_at = {
            key.kid: key.retired_at_us for key in keys if key.retired_at_us is not None and key.kid not in current
        }
        ring = KeyRing(signing, public_keys, retired_at)
        if any(key.kid not in ring.kids(key.purpose) for key in keys):
            raise ValueError("a key id is not that of its key")
        if sum(len(ring.kids(purpose)) for purpose in PURPOSES) != len(keys):
            raise ValueError("a private key is not the one that is listed, or a key is listed twice")
        return ring


@contextmanager
def _folder_lock(folder: Path, mode: int) -> Iterator[int]:
    """Hold a lock on `folder`, to read it (`LOCK_SH`) or to change it (`LOCK_EX`). Yields its file descriptor."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, mode)
        yield file
    finally:
        os.close(file)


@contextmanager
def _list_faults() -> Iterator[None]:
    """Turn an error that makes the list of keys unusable into `InvalidSettings`."""
    try:
        yield
    except InvalidSettings:
        raise
    except (OSError, InvalidInput, ValueError) as error:
        detail = f"`{RING_FILE}` is not a list of keys: {why(error)}"
        remedy = "make them with `contextos key new DIR --runtime`, or bring them back from a backup"
        remedy = READABLE if isinstance(error, PermissionError) else remedy
        raise InvalidSettings(Problem("/keys", "unreadable", detail, remedy)) from None


@contextmanager
def _write_faults() -> Iterator[None]:
    """Turn an error that keeps a rotation from writing into `InvalidSettings`."""
    try:
        yield
    except OSError as error:
        detail = f"the directory of the keys cannot be changed: {error.strerror}"
        remedy = "see to that, list the keys, and rotate again if it is still needed"
        raise InvalidSettings(Problem("/keys", "unwritable", detail, remedy)) from None


def read_seed(path: Path) -> bytes:
    """Read a key file: 32 bytes in hex, readable by its owner only.

    Raises:
        InvalidSettings: the file is missing, other users can read it, or it holds no key.
    """
    try:
        raw = bytes.fromhex(read_private_file(path, MAX_KEY_FILE_BYTES, "/keys").decode("ascii").strip())
    except (OSError, ValueError) as error:
        reason = why(error) if isinstance(error, OSError) else f"it is not {2 * KEY_BYTES} hex digits"
        detail = f"`{path.name}` is not a key file: {reason}"
        remedy = READABLE if isinstance(error, PermissionError) else "name a file that `contextos key new FILE` wrote"
        raise InvalidSettings(Problem("/keys", "unreadable", detail, remedy)) from None
    if len(raw) != KEY_BYTES:
        detail = f"`{path.name}` has {len(raw)} bytes, not {KEY_BYTES}"
        raise InvalidSettings(Problem("/keys", "unreadable", detail, "make a new one"))
    return raw


def write_seed(path: Path, raw: bytes | None = None) -> bytes:
    """Write a key to a new key file and return its 32 bytes; a random one if `raw` is None.

    Raises `FileExistsError` if the file exists, and `OSError` if it cannot be written; then none is left.
    """
    raw = secrets.token_bytes(KEY_BYTES) if raw is None else raw
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, f"{raw.hex()}\n".encode("ascii"))
    return raw


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read.

    Raises `FileExistsError` if the file exists, and `OSError` if it cannot be written; then none is left.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink()
            raise


def _make_key(folder: Path, purpose: str, at_us: int, files: SeedFiles) -> ListedKey:
    raw = secrets.token_bytes(KEY_BYTES)
    [kid] = (ring := KeyRing({purpose: raw})).kids(purpose)
    files.write(folder / f"{kid}{files.suffix}", raw)
    public = ring.public_key(purpose, kid) or b""
    return ListedKey(purpose=purpose, kid=kid, public_key=public.hex(), activated_at_us=at_us, retired_at_us=None)


def _ring_bytes(keys: Sequence[ListedKey]) -> bytes:
    return canonical(RingFile(keys=tuple(keys)).to_json()) + b"\n"


def _stamp_of(statuses: tuple[os.stat_result, os.stat_result]) -> tuple[int, ...]:
    ring, folder = statuses
    return ring.st_mtime_ns, ring.st_ino, ring.st_size, folder.st_mtime_ns
