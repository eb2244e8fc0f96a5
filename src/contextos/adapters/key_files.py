"""`KeyFiles`: the runtime's keys, one for each purpose, from the files of a directory.

`runtime.json` lists every public key: its purpose, when it begins to sign, and when it was retired. The private half of
each key that signs, now or soon, is in a file `<kid>.key` of 32 bytes in hex, which only its owner can read (the module
`encrypted_keys` uses other files). The first process that finds the private half of a replaced key deletes it. So that
also happens after a crash, and in a copy on another machine. The directory is read again whenever it changes, and when
a key begins or ceases to sign.
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
        self._next_us = 0
        self._listed: tuple[ListedKey, ...] = ()
        self._signing: dict[str, ListedKey] = {}
        self._ring = KeyRing({})
        self._current()

    @classmethod
    def make(cls, folder: Path, clock: Clock, files: SeedFiles | None = None) -> KeyFiles:
        """Make one new key for each purpose in `folder`. Raises `FileExistsError` if there are some already."""
        files = files if files is not None else SeedFiles()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / RING_FILE).exists():
            raise FileExistsError(errno.EEXIST, "it has keys already")
        listed = [_made(folder, purpose, clock.now_us(), files) for purpose in PURPOSES]
        with open(os.open(folder / RING_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_content(listed))
        return cls(folder, clock, files)

    def listed(self) -> tuple[ListedKey, ...]:
        """Return every key. The keys of one purpose are together, the newest first."""
        self._current()
        return self._listed

    def kids(self, purpose: str) -> Sequence[str]:
        """Return the ids of the keys trusted for `purpose`, the signing key first."""
        return self._current().kids(purpose)

    def public_key(self, purpose: str, kid: str) -> bytes | None:
        """Return the 32 raw bytes of the public key `kid`, or None if there is no such key for `purpose`."""
        return self._current().public_key(purpose, kid)

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """Sign `payload` with the key that signs now; return the key id and the signature (64 bytes)."""
        return self._current().sign(purpose, payload)

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes, *, at_us: int | None = None) -> bool:
        """Return whether the key `kid` is trusted for `purpose` and made this signature before it was retired."""
        return self._current().verify(purpose, kid, payload, signature, at_us=at_us)

    def discloses(self, text: str) -> bool:
        """Return whether a text, or the JSON of a value, has a private half of these keys in it."""
        return self._current().discloses(text)

    def prepare(self, purpose: str, from_us: int) -> NewKey:
        """Make a key that could replace the signing key of `purpose`; see `RotatingKeys`."""
        if purpose not in PURPOSES:
            detail = f"there is no purpose `{purpose[:40]}`"
            raise InvalidInput(Problem("/purpose", "unknown_purpose", detail, name_remedy(purpose, PURPOSES)))
        known = self.kids(purpose)
        old = self._signing.get(purpose)
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
        if len(known) >= MAX_KEYS_PER_PURPOSE:
            detail = f"there are {len(known)} keys for `{purpose}`, which is the most"
            remedy = f"remove one from `{RING_FILE}` whose signatures nobody needs any more"
            raise InvalidInput(Problem("/purpose", "too_many_keys", detail, remedy))
        raw = secrets.token_bytes(KEY_BYTES)
        [kid] = (ring := KeyRing({purpose: raw})).kids(purpose)
        public = ring.public_key(purpose, kid) or b""
        with _write_faults():
            self._files.write(self._file(kid), raw)
        return NewKey(purpose, old.kid, kid, public.hex(), from_us, from_us + OVERLAP_US)

    def install(self, new: NewKey) -> None:
        """List a prepared key before the key that it retires; see `RotatingKeys`. The list is replaced in one step."""
        with _write_faults(), _locked(self._folder, fcntl.LOCK_EX) as folder:
            with _list_faults():
                self._reread()
            listed = list(self._listed)
            at = next((at for at, one in enumerate(listed) if one.kid == new.old_kid), None)
            if at is None or listed[at].retired_at_us is not None:
                raise overtaken(new)
            retired = listed[at].model_copy(update={"retired_at_us": new.retired_at_us})
            made = ListedKey(
                purpose=new.purpose,
                kid=new.kid,
                public_key=new.public_key,
                activated_at_us=new.activated_at_us,
                retired_at_us=None,
            )
            listed[at : at + 1] = [made, retired]
            beside = self._folder / f"{RING_FILE}.new"
            try:
                with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(_content(listed))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(beside, self._folder / RING_FILE)
            finally:
                beside.unlink(missing_ok=True)
            os.fsync(folder)
        self._current()

    def discard(self, new: NewKey) -> None:
        """Delete the file of a prepared key, unless it is listed or the list cannot be read."""
        with suppress(OSError, InvalidSettings), _locked(self._folder, fcntl.LOCK_SH), _list_faults():
            self._reread()
            if all(one.kid != new.kid for one in self._listed):
                self._file(new.kid).unlink(missing_ok=True)

    def _file(self, kid: str) -> Path:
        return self._folder / f"{kid}{self._files.suffix}"

    def _current(self) -> KeyRing:
        with _list_faults():
            if _stamp_of(self._statuses()) != self._stamp or self._clock.now_us() >= self._next_us:
                with _locked(self._folder, fcntl.LOCK_SH):
                    self._reread()
        return self._ring

    def _statuses(self) -> tuple[os.stat_result, os.stat_result]:
        """Return the statuses of the list and of the directory: a private half can arrive after the list."""
        return os.stat(self._folder / RING_FILE), os.stat(self._folder)

    def _reread(self) -> None:
        """Read the directory. The caller holds its lock, so that no other process rotates a key meanwhile."""
        self._stamp, statuses, now_us = None, self._statuses(), self._clock.now_us()
        raw = read_regular_file(self._folder / RING_FILE, MAX_RING_BYTES)
        self._listed = tuple(parse(RingFile, raw, max_bytes=MAX_RING_BYTES).keys)
        self._ring = self._read(self._listed, now_us)
        times = [time for one in self._listed for time in (one.activated_at_us, one.retired_at_us or 0)]
        self._stamp = _stamp_of(statuses) if is_settled(*statuses) else None
        self._next_us = min((time for time in times if time > now_us), default=MAX_COUNT)

    def _read(self, listed: Sequence[ListedKey], now_us: int) -> KeyRing:
        trusted: dict[str, list[bytes]] = {}
        for one in listed:
            trusted.setdefault(one.purpose, []).append(bytes.fromhex(one.public_key))
        self._signing = {}
        for purpose in trusted:
            held = [one for one in listed if one.purpose == purpose and self._file(one.kid).exists()]
            begun = [one for one in held if one.activated_at_us <= now_us]
            # If the clock went back to before every key began, the oldest key signs.
            newest = next(iter(begun or held[-1:]), None)
            if newest is not None and now_us < (newest.retired_at_us or MAX_COUNT):
                self._signing[purpose] = newest
            for replaced in begun[1:]:
                if replaced.retired_at_us is not None:
                    with suppress(OSError):
                        self._file(replaced.kid).unlink()
        signing = {purpose: self._files.read(self._file(one.kid)) for purpose, one in self._signing.items()}
        signs = {one.kid for one in self._signing.values()}
        retired = {
            one.kid: one.retired_at_us for one in listed if one.retired_at_us is not None and one.kid not in signs
        }
        ring = KeyRing(signing, trusted, retired)
        if any(one.kid not in ring.kids(one.purpose) for one in listed):
            raise ValueError("a key id is not that of its key")
        if sum(len(ring.kids(purpose)) for purpose in PURPOSES) != len(listed):
            raise ValueError("a private key is not the one that is listed, or a key is listed twice")
        return ring


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[int]:
    """Hold a lock on `folder`, to read it (`LOCK_SH`) or to change it (`LOCK_EX`). Yields its file descriptor."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, how)
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
        said = why(error) if isinstance(error, OSError) else f"it is not {2 * KEY_BYTES} hex digits"
        detail = f"`{path.name}` is not a key file: {said}"
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


def _made(folder: Path, purpose: str, at_us: int, files: SeedFiles) -> ListedKey:
    raw = secrets.token_bytes(KEY_BYTES)
    [kid] = (ring := KeyRing({purpose: raw})).kids(purpose)
    files.write(folder / f"{kid}{files.suffix}", raw)
    public = ring.public_key(purpose, kid) or b""
    return ListedKey(purpose=purpose, kid=kid, public_key=public.hex(), activated_at_us=at_us, retired_at_us=None)


def _content(listed: Sequence[ListedKey]) -> bytes:
    return canonical(RingFile(keys=tuple(listed)).to_json()) + b"\n"


def _stamp_of(statuses: tuple[os.stat_result, os.stat_result]) -> tuple[int, ...]:
    listed, around = statuses
    return listed.st_mtime_ns, listed.st_ino, listed.st_size, around.st_mtime_ns
