"""No private key is in the repository, whatever its file is called.

A key that this project writes is a raw Ed25519 seed in hex or a PKCS#8 file; other tools write PEM blocks.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SEED = re.compile(rb"\s*[0-9a-fA-F]{64}\s*")
# With a body: a file that only speaks of such a block is not a key.
PEM = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{40,}-----END")
NAMED = re.compile(r"\.(key|p8|pk8|p12|pfx|jks)$|(^|/)id_(rsa|dsa|ecdsa|ed25519)$|(^|/)keys/")


def private_keys(root: Path, names: list[str]) -> Iterator[str]:
    """The files of `names` (paths below `root`) that are private keys by name or by content."""
    for name in names:
        path = root / name
        if NAMED.search(name) or (path.is_file() and _is_key(path.read_bytes())):
            yield name


def _is_key(content: bytes) -> bool:
    return SEED.fullmatch(content) is not None or PEM.search(content) is not None


def test_no_tracked_file_is_a_private_key() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name]
    assert len(names) > 1_000
    assert list(private_keys(ROOT, names)) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("keys/runtime.json", b"{}"),
        ("seed.txt", b"0f" * 32 + b"\n"),
        ("id_ed25519", b""),
        ("service.key", b""),
        ("notes.md", b"-----BEGIN " + b"PRIVATE KEY-----\n" + b"A" * 64 + b"\n-----END PRIVATE KEY-----\n"),
        ("notes.md", b"-----BEGIN ENCRYPTED " + b"PRIVATE KEY-----\n" + b"A" * 64 + b"\n-----END\n"),
    ],
)
def test_a_planted_private_key_is_found(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    assert list(private_keys(tmp_path, [name])) == [name]


def test_a_workspace_in_the_checkout_leaves_its_keys_untracked() -> None:
    for name in ("keys/anybody.key", "desk/keys/runtime.json", "elsewhere.key"):
        ignored = subprocess.run(["git", "check-ignore", "--quiet", name], cwd=ROOT, check=False)
        assert ignored.returncode == 0, name
