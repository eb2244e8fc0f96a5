"""The key files are read anew when the list changes, and a list that does not fit its files is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters import key_files
from contextos.adapters.key_files import KeyFiles, read_seed, write_seed
from contextos.deployment.acts.keys import OVERLAP_US
from contextos.errors import Conflict, InvalidInput, InvalidSettings
from contextos.trust import seal
from contextos.trust.seal import PURPOSES, KeyRing
from tests.world import ManualClock

NOW = 1_793_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def keys(tmp_path: Path, clock: ManualClock) -> KeyFiles:
    return KeyFiles.make(tmp_path / "keys", clock)


def opened(tmp_path: Path) -> KeyFiles:
    """The same keys, as another process has them."""
    return KeyFiles(tmp_path / "keys", ManualClock(NOW + 1_000_000))


def seed_of(tmp_path: Path, kid: str) -> bytes:
    return bytes.fromhex((tmp_path / "keys" / f"{kid}.key").read_text())


def change(tmp_path: Path, **fields: Any) -> None:
    path = tmp_path / "keys" / "runtime.json"
    content = json.loads(path.read_text())
    content["keys"][0] |= fields
    path.write_text(json.dumps(content, indent=1))


def test_each_purpose_has_a_key_that_signs_for_it_alone(keys: KeyFiles) -> None:
    assert [one.purpose for one in keys.listed()] == list(PURPOSES)
    for purpose in PURPOSES:
        kid, signature = keys.sign(purpose, b"x")
        assert keys.kids(purpose) == (kid,)
        assert [other for other in PURPOSES if keys.verify(other, kid, b"x", signature)] == [purpose]
        assert keys.public_key(purpose, kid)
    assert keys.public_key("head", "kid_none") is None


def test_a_rotated_key_counts_until_it_is_retired(keys: KeyFiles, tmp_path: Path) -> None:
    other = opened(tmp_path)
    old, signature = keys.sign("head", b"x")
    new = keys.prepare("head", NOW)
    assert keys.sign("head", b"x")[0] == old, "a prepared key signs nothing"
    keys.install(new)
    assert other.sign("head", b"x")[0] == new.kid, "a process that runs signs with the new key"
    assert other.kids("head") == (new.kid, old)
    at = NOW + OVERLAP_US
    told = [other.verify("head", old, b"x", signature, at_us=when) for when in (None, NOW, at, at + 1)]
    assert told == [True, True, True, False]
    assert not (tmp_path / "keys" / f"{old}.key").exists()


def test_two_rotations_at_once_are_one(keys: KeyFiles) -> None:
    first, second = keys.prepare("head", NOW), keys.prepare("head", NOW)
    keys.install(first)
    with pytest.raises(Conflict, match=r"`kid_\w+` changed meanwhile; list the keys and rotate again"):
        keys.install(second)


def test_a_new_key_signs_from_its_time_on_and_the_old_half_is_then_deleted(
    keys: KeyFiles, clock: ManualClock, tmp_path: Path
) -> None:
    old, _ = keys.sign("head", b"x")
    keys.install(new := keys.prepare("head", NOW + OVERLAP_US))
    elsewhere = opened(tmp_path)
    _, signature = KeyRing({"head": seed_of(tmp_path, new.kid)}).sign("head", b"x")
    for ring in (keys, elsewhere):
        assert ring.sign("head", b"x")[0] == old
        assert ring.verify("head", new.kid, b"x", signature), "who signs early is believed"
    with pytest.raises(InvalidInput, match="does not sign yet"):
        keys.prepare("head", NOW)
    clock.at_us = NOW + OVERLAP_US
    assert keys.sign("head", b"x")[0] == new.kid
    assert not (tmp_path / "keys" / f"{old}.key").exists()
    assert elsewhere.sign("head", b"x")[0] == new.kid, "its clock is behind, and the old key is gone"
    assert keys.prepare("head", NOW).old_kid == new.kid


def test_a_list_that_arrives_before_its_private_half_is_read_again(keys: KeyFiles, tmp_path: Path) -> None:
    other = opened(tmp_path)
    keys.install(new := keys.prepare("head", NOW))
    half = tmp_path / "keys" / f"{new.kid}.key"
    raw = bytes.fromhex(half.read_text())
    half.unlink()
    with pytest.raises(InvalidSettings, match="no key to sign"):
        other.sign("head", b"x")
    write_seed(half, raw)
    assert other.sign("head", b"x")[0] == new.kid


def test_a_machine_without_the_new_half_signs_until_the_old_key_is_retired(
    keys: KeyFiles, clock: ManualClock, tmp_path: Path
) -> None:
    old, _ = keys.sign("head", b"x")
    half = (tmp_path / "keys" / f"{old}.key").read_text()
    keys.install(new := keys.prepare("head", NOW))
    (tmp_path / "keys" / f"{new.kid}.key").unlink()
    (tmp_path / "keys" / f"{old}.key").write_text(half)
    (tmp_path / "keys" / f"{old}.key").chmod(0o600)
    assert keys.sign("head", b"x")[0] == old
    clock.at_us = new.retired_at_us
    with pytest.raises(InvalidSettings, match="no key to sign"):
        keys.sign("head", b"x")
    assert keys.verify("head", old, b"x", KeyRing({"head": bytes.fromhex(half)}).sign("head", b"x")[1], at_us=NOW)


@pytest.mark.parametrize("dies", ["replace", "unlink"])
def test_a_rotation_that_is_killed_leaves_a_key_that_signs_and_no_retired_half(
    dies: str, keys: KeyFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_of: Any, **_how: Any) -> None:
        raise Killed

    old, _ = keys.sign("head", b"x")
    new = keys.prepare("head", NOW)
    with monkeypatch.context() as dying:
        dying.setattr(*((os, "replace", die) if dies == "replace" else (Path, "unlink", die)))
        with pytest.raises(Killed):
            keys.install(new)
    again = opened(tmp_path)
    assert again.sign("head", b"x")[0] == (old if dies == "replace" else new.kid)
    again.install(last := again.prepare("head", NOW))
    assert again.sign("head", b"x")[0] == last.kid
    retired = [one.kid for one in again.listed() if one.retired_at_us is not None]
    assert old in retired
    assert [kid for kid in retired if (tmp_path / "keys" / f"{kid}.key").exists()] == []


ROTATE = """
import sys
from pathlib import Path
from contextos.adapters import key_files
from contextos.adapters.key_files import KeyFiles
from contextos.store.shared.clock import SystemClock

keys, purpose = KeyFiles(Path(sys.argv[1]), SystemClock()), sys.argv[2]
for _ in range(5):
    keys.install(keys.prepare(purpose, SystemClock().now_us()))
"""


def test_processes_that_rotate_different_keys_at_once_lose_none(keys: KeyFiles, tmp_path: Path) -> None:
    folder = str(tmp_path / "keys")
    processes = [subprocess.Popen([sys.executable, "-c", ROTATE, folder, purpose]) for purpose in PURPOSES]
    assert [one.wait() for one in processes] == [0] * len(PURPOSES)
    assert len(keys.listed()) == 6 * len(PURPOSES)
    for purpose in PURPOSES:
        assert keys.sign(purpose, b"x")


def test_the_last_key_that_fits_the_list_is_the_last_rotation(
    keys: KeyFiles, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (key_files, seal):
        monkeypatch.setattr(module, "MAX_KEYS_PER_PURPOSE", 4)
    for _ in range(3):
        keys.install(keys.prepare("head", clock.now_us()))
    with pytest.raises(InvalidInput, match="which is the most"):
        keys.prepare("head", clock.now_us())
    assert keys.sign("head", b"x")


def test_a_key_without_its_private_half_is_trusted_and_signs_nothing(keys: KeyFiles, tmp_path: Path) -> None:
    kid, signature = keys.sign("pack", b"x")
    (tmp_path / "keys" / f"{kid}.key").unlink()
    reader = opened(tmp_path)
    assert reader.verify("pack", kid, b"x", signature)
    with pytest.raises(InvalidSettings):
        reader.sign("pack", b"x")
    with pytest.raises(InvalidInput, match="cannot sign"):
        reader.prepare("pack", NOW)
    with pytest.raises(InvalidInput, match="no purpose"):
        reader.prepare("everything", NOW)


@pytest.mark.parametrize(
    "fields", [{"kid": "kid_other"}, {"public_key": "00"}, {"public_key": "no"}, {"purpose": "tea"}, {"more": 1}]
)
def test_a_list_that_does_not_fit_its_files_is_refused(keys: KeyFiles, tmp_path: Path, fields: dict[str, Any]) -> None:
    change(tmp_path, **fields)
    for again in (keys.listed, lambda: opened(tmp_path)):
        with pytest.raises(InvalidSettings):
            again()


def test_a_private_key_that_is_not_listed_is_refused(keys: KeyFiles, tmp_path: Path) -> None:
    head, claim = (tmp_path / "keys" / f"{keys.kids(purpose)[0]}.key" for purpose in ("head", "claim"))
    head.write_bytes(claim.read_bytes())
    with pytest.raises(InvalidSettings):
        opened(tmp_path)


def test_a_missing_list_is_refused_and_files_are_made_once(keys: KeyFiles, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        KeyFiles.make(tmp_path / "keys", ManualClock(NOW))
    with pytest.raises(InvalidSettings, match=r"runtime\.json"):
        KeyFiles(tmp_path, ManualClock(NOW))


def test_a_seed_is_read_as_it_was_written_and_by_its_owner_only(tmp_path: Path) -> None:
    raw = write_seed(tmp_path / "a.key")
    assert read_seed(tmp_path / "a.key") == raw
    (tmp_path / "a.key").chmod(0o640)
    with pytest.raises(InvalidSettings, match="read by others"):
        read_seed(tmp_path / "a.key")
    write_seed(tmp_path / "b.key", b"short")
    with pytest.raises(InvalidSettings, match="5 bytes"):
        read_seed(tmp_path / "b.key")
