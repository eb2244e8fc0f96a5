"""Keys in encrypted PKCS#8 files: the same ring, rotation and retirement as plain files, behind a passphrase."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from contextos.adapters.encrypted_keys import Pkcs8Files, make_pkcs8_keys, read_secret
from contextos.adapters.key_files import KeyFiles
from contextos.errors import InvalidSettings
from contextos.trust.seal import PURPOSES
from tests.world import ManualClock

PASSPHRASE = b"correct horse battery staple"
NOW = 1_793_000_000_000_000


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return make_pkcs8_keys(tmp_path / "keys", PASSPHRASE, ManualClock(NOW))


def test_each_purpose_has_a_key_and_no_file_holds_one_plainly(keys: KeyFiles, tmp_path: Path) -> None:
    again = KeyFiles(tmp_path / "keys", ManualClock(NOW), Pkcs8Files(PASSPHRASE))
    assert (keys.unsafe, again.unsafe) == ((), ())
    for purpose in PURPOSES:
        kid, signature = keys.sign(purpose, b"x")
        assert again.verify(purpose, kid, b"x", signature)
    files = [one for one in (tmp_path / "keys").iterdir() if one.name != "runtime.json"]
    assert len(files) == len(PURPOSES)
    for one in files:
        assert (one.suffix, one.stat().st_mode & 0o777) == (".pem", 0o600)
        assert one.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")


def test_a_rotation_writes_the_new_key_encrypted_and_removes_the_old_one(keys: KeyFiles, tmp_path: Path) -> None:
    old, signature = keys.sign("head", b"x")
    new = keys.prepare("head", NOW)
    keys.install(new)
    assert keys.sign("head", b"x")[0] == new.kid
    assert keys.verify("head", old, b"x", signature)
    names = {one.name for one in (tmp_path / "keys").iterdir()}
    assert f"{new.kid}.pem" in names
    assert f"{old}.pem" not in names


def test_openssl_reads_the_files(keys: KeyFiles, tmp_path: Path) -> None:
    [kid] = keys.kids("head")
    said = subprocess.run(
        ["openssl", "pkey", "-in", tmp_path / "keys" / f"{kid}.pem", "-passin", f"pass:{PASSPHRASE.decode()}", "-text"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ED25519 Private-Key" in said.stdout


@pytest.mark.parametrize("passphrase", [b"", b"x" * 1025], ids=["empty", "long"])
def test_a_passphrase_has_a_length(passphrase: bytes) -> None:
    with pytest.raises(InvalidSettings):
        Pkcs8Files(passphrase)


def test_a_secret_comes_from_a_private_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b" two words \r\n")
    file.chmod(0o600)
    assert read_secret(file, "", "/keys") == b" two words "
    monkeypatch.setenv("KEYS_SECRET", "from there")
    assert read_secret(None, "KEYS_SECRET", "/keys") == b"from there"


def test_a_secret_that_is_missing_empty_or_open_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    monkeypatch.delenv("KEYS_SECRET", raising=False)
    for place, variable in ((file, ""), (None, "KEYS_SECRET")):
        with pytest.raises(InvalidSettings):
            read_secret(place, variable, "/keys")
    file.write_bytes(b"\n")
    file.chmod(0o600)
    with pytest.raises(InvalidSettings, match="holds no secret"):
        read_secret(file, "", "/keys")
    file.write_bytes(b"x")
    file.chmod(0o640)
    with pytest.raises(InvalidSettings, match="can be read by others"):
        read_secret(file, "", "/keys")
