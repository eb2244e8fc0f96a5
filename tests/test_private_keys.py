"""No private key is in the repository: none that is named as one, and none that can be read as one.

Found anywhere in a file, also escaped as in JSON and in UTF-16: PEM and OpenSSH blocks with a body, JWKs with a private
part, keys of age and PuTTY, and PKCS#8 of Ed25519. A whole file is a key if it is DER, or a seed of 32 bytes, raw, in
hex or in base64. A bare seed within other text looks like any digest, and is not found.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key

ROOT = Path(__file__).resolve().parents[1]
SEED = re.compile(rb"(0x)?[0-9a-fA-F]{64}")
MARKS = (
    # With a body: a file that only speaks of such a block is not a key. A header such as `Proc-Type` can come first.
    re.compile(
        rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----\s+(?:[A-Za-z-]+: [^\n]*\n\s*)*(?:[A-Za-z0-9+/=]+\s*){1,3}"
        rb"(?<=[A-Za-z0-9+/=\s]{40})"
    ),
    re.compile(rb"AGE-SECRET-KEY-1[A-Z0-9]{50}"),
    re.compile(rb"PuTTY-User-Key-File-[0-9]: [^\n]+\n.*Private-Lines: ", re.DOTALL),
    re.compile(rb"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20"),
)
JWK = re.compile(rb'\{[^{}]*"(?:d|k)"\s*:\s*"[A-Za-z0-9_-]{20,}={0,2}"[^{}]*\}')
NAMED = re.compile(r"\.(key|p8|pk8|p12|pfx|jks|ppk)$|(^|/)id_(rsa|dsa|ecdsa|ed25519)$|(^|/)keys/")


def private_keys(root: Path, names: list[str]) -> Iterator[str]:
    """The files of `names` (paths below `root`) that are private keys by name or by content."""
    for name in names:
        path = root / name
        if NAMED.search(name) or (path.is_file() and _is_key(path.read_bytes())):
            yield name


def _is_key(content: bytes) -> bool:
    plain = content.replace(b"\0", b"").replace(b"\\r", b"").replace(b"\\n", b"\n").replace(b'\\"', b'"')
    return (
        any(mark.search(one) for mark in MARKS for one in {content, plain})
        or any(b'"kty"' in one.group() for one in JWK.finditer(plain))
        or _is_seed(content)
        or _is_der(content)
    )


def _is_seed(content: bytes) -> bool:
    lines = content.split()
    if len(content) == 32 or (lines and all(map(SEED.fullmatch, lines))):
        return True
    try:
        return len(lines) == 1 and len(base64.b64decode(lines[0] + b"=" * (-len(lines[0]) % 4), b"-_", True)) == 32
    except (binascii.Error, ValueError):
        return False


def _is_der(content: bytes) -> bool:
    if not content.startswith(b"\x30"):
        return False
    try:
        load_der_private_key(content, None)
    except (ValueError, UnsupportedAlgorithm):
        return False
    except TypeError:  # it is encrypted
        return True
    return True


def test_no_tracked_file_is_a_private_key() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name]
    assert len(names) > 1_000
    assert list(private_keys(ROOT, names)) == []


KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
BLOCK = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
OPENSSH = KEY.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
DER = KEY.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
BODY = b"A" * 64


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("keys/runtime.json", b"{}"),
        ("id_ed25519", b""),
        ("service.key", b""),
        ("service.ppk", b""),
        ("seed.txt", b"0f" * 32 + b"\n"),
        ("seed.txt", b"0x" + b"0f" * 32),
        ("seeds.txt", b"0f" * 32 + b"\n" + b"1f" * 32 + b"\n"),
        ("seed.txt", base64.b64encode(bytes(range(32)))),
        ("seed.txt", base64.urlsafe_b64encode(b"\xff" * 32).rstrip(b"=") + b"\n"),
        ("seed.bin", bytes(range(100, 132))),
        ("server.pem", BLOCK),
        ("server.pem", OPENSSH),
        ("server.der", DER),
        ("dump.bin", b"before" + DER + b"after"),
        ("values.yaml", b"k: |\n" + b"".join(b"  " + line + b"\n" for line in BLOCK.splitlines())),
        ("values.json", b'{"k": "' + BLOCK.replace(b"\n", b"\\n") + b'"}'),
        ("wide.txt", BLOCK.decode().encode("utf-16")),
        ("notes.md", b"-----BEGIN ENCRYPTED " + b"PRIVATE KEY-----\n" + BODY + b"\n-----END\n"),
        (
            "old.pem",
            b"-----BEGIN RSA " + b"PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AA\n\n" + BODY,
        ),
        ("jwk.json", b'{"kty": "OKP", "crv": "Ed25519", "d": "' + BODY[:43] + b'", "x": "' + BODY[:43] + b'"}'),
        ("set.json", b'{"keys": [{"d": "' + BODY[:43] + b'", "kty": "EC"}]}'),
        ("age.txt", b"# a key\nAGE-SECRET-KEY-1" + b"Q" * 58),
        ("putty.txt", b"PuTTY-User-Key" + b"-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n" + BODY),
    ],
)
def test_a_planted_private_key_is_found(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    assert list(private_keys(tmp_path, [name])) == [name]


@pytest.mark.parametrize(
    "content",
    [
        b"A file with -----BEGIN " + b"PRIVATE KEY----- has a key.",
        b'{"kty": "OKP", "x": "' + BODY[:43] + b'"}',
        b'{"d": "' + BODY[:43] + b'"}',
        b"sha256: " + b"0f" * 32,
        b"",
    ],
)
def test_what_is_no_private_key_is_not_taken_for_one(content: bytes) -> None:
    assert not _is_key(content)


def test_a_workspace_in_the_checkout_leaves_its_keys_untracked() -> None:
    for name in ("keys/anybody.key", "desk/keys/runtime.json", "elsewhere.key", "a/b.pem", "b.p8", "c.ppk"):
        ignored = subprocess.run(["git", "check-ignore", "--quiet", name], cwd=ROOT, check=False)
        assert ignored.returncode == 0, name
