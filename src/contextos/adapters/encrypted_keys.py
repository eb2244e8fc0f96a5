"""Keys of the runtime in PKCS#8 files that a passphrase encrypts, instead of plain files.

Everything but the private halves is as in `KeyFiles`: the list of public keys, rotation and retirement. Each private
half is `<kid>.pem`, an encrypted PKCS#8 PEM of an Ed25519 key. The passphrase comes from a file or an environment
variable that the settings name. A file that is not encrypted, another algorithm or another passphrase is refused.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contextos.adapters.key_files import MAX_KEY_FILE_BYTES, KeyFiles, SeedFiles, read_seed, write_private, write_seed
from contextos.contracts.ports.outside import Clock
from contextos.errors import InvalidSettings, Problem
from contextos.files import read_private_file, read_regular_file
from contextos.trust.seal import KEY_BYTES

MAX_PASSPHRASE_BYTES: Final = 1024
_ENCRYPTED: Final = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


class Pkcs8Files(SeedFiles):
    """Private halves as encrypted PKCS#8 PEM files. `passphrase` is not shown and not stored."""

    suffix = ".pem"
    unsafe: tuple[str, ...] = ()

    def __init__(self, passphrase: bytes) -> None:
        if not 0 < len(passphrase) <= MAX_PASSPHRASE_BYTES:
            detail = f"a passphrase has 1 to {MAX_PASSPHRASE_BYTES} bytes"
            raise InvalidSettings(Problem("/keys", "bad_passphrase", detail, "give one that nobody guesses"))
        self._passphrase = passphrase

    def read(self, path: Path) -> bytes:
        """Return the 32 raw bytes of an encrypted private key.

        Raises:
            InvalidSettings: the file is missing, others can read it, it is not an encrypted PKCS#8 file, the passphrase
                is wrong (`wrong_passphrase`), or it is a key of another algorithm (`other_algorithm`).
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        raw = _private_file(path)
        if not raw.startswith(_ENCRYPTED):
            remedy = "encrypt it: `openssl pkcs8 -topk8 -in FILE -out FILE.pem`"
            raise _refusal(path, "not_encrypted", "it is not an encrypted PKCS#8 file (PEM)", remedy)
        try:
            key = load_pem_private_key(raw, self._passphrase)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            # The library's message is not quoted. It is the same for a damaged file.
            detail = "the passphrase does not open it, or it is damaged"
            raise _refusal(path, "wrong_passphrase", detail, "give the passphrase with which it was made") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise _refusal(
                path, "other_algorithm", "it is not an Ed25519 key", "make one with `contextos key new --pkcs8`"
            )
        return key.private_bytes_raw()

    def write(self, path: Path, raw: bytes) -> None:
        """Write a new file. Raises `FileExistsError` if it exists, and `OSError` if it cannot be written."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

        key = Ed25519PrivateKey.from_private_bytes(raw)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(self._passphrase))
        write_private(path, pem)


def make_pkcs8_keys(folder: Path, passphrase: bytes, clock: Clock | None = None) -> KeyFiles:
    """Make one new key for each purpose in `folder`, encrypted with `passphrase`. They sign from the time of `clock`
    on; None: from now on.

    Raises:
        FileExistsError: the folder has keys already.
        InvalidSettings: the passphrase is empty or too long.
    """
    return KeyFiles.make(folder, clock if clock is not None else _WallClock(), Pkcs8Files(passphrase))


def make_person_key(path: Path, passphrase: bytes | None = None) -> bytes:
    """Write a new key of a person to a new file, plainly or encrypted with `passphrase`, and return its 32 raw bytes.

    Raises:
        FileExistsError: there is something at `path`.
        OSError: the file cannot be written.
        InvalidSettings: the passphrase is empty or too long.
    """
    if passphrase is None:
        return write_seed(path)
    files, raw = Pkcs8Files(passphrase), secrets.token_bytes(KEY_BYTES)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, raw)
    return raw


def read_person_key(path: Path, passphrase: Callable[[], bytes]) -> bytes:
    """Return the 32 raw bytes of a person's key. `passphrase` is called only if the file is encrypted.

    Raises:
        InvalidSettings: as `read_seed` and `Pkcs8Files.read`.
    """
    try:
        is_encrypted = read_regular_file(path, MAX_KEY_FILE_BYTES).startswith(_ENCRYPTED)
    except OSError:
        is_encrypted = False  # `read_seed` says what it is
    return Pkcs8Files(passphrase()).read(path) if is_encrypted else read_seed(path)


class _WallClock:
    """The `Clock` of the machine: Unix time in microseconds."""

    def now_us(self) -> int:
        return time.time_ns() // 1000


def read_secret(file: Path | None, variable: str, pointer: str) -> bytes:
    """Return a secret from a file that only its owner can read (without the line break at its end), or from the
    environment variable `variable`.

    Raises:
        InvalidSettings: the secret is not there, is empty, or others can read the file; `pointer` names the setting.
    """
    if file is not None:
        secret = _private_file(file, pointer).removesuffix(b"\n").removesuffix(b"\r")
        source = f"`{file.name}`"
    else:
        secret, source = os.environ.get(variable, "").encode("utf-8", "surrogateescape"), f"`{variable}`"
    if not secret:
        detail = f"{source} holds no secret"
        raise InvalidSettings(Problem(pointer, "no_secret", detail, "put it there before the start"))
    return secret


def _private_file(path: Path, pointer: str = "/keys") -> bytes:
    try:
        return read_private_file(path, MAX_KEY_FILE_BYTES, pointer)
    except OSError as error:
        detail = f"`{path.name}` cannot be read: {error.strerror}"
        raise InvalidSettings(Problem(pointer, "unreadable", detail, "bring it back, or name another")) from None


def _refusal(path: Path, code: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem("/keys", code, f"`{path.name}`: {detail}", remedy))
