"""An owner is alive for as long as its process is, and not a moment longer."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.engine.lease_owner import LeasedOwner, Owner

HOLD = """
import sys
from contextos.workspace.engine.lease_owner import LeasedOwner, Owner

owner = Owner(sys.argv[1])
print(owner.id, flush=True)
sys.stdin.read()
"""


def spawn(path: Path) -> tuple[subprocess.Popen[str], str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def locks(path: Path) -> set[str]:
    return {lock.stem for lock in Path(f"{path}.owners").iterdir()}


def test_an_owner_is_alive_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first, second = Owner(path), Owner(path)
    assert re.fullmatch(r"[0-9a-f]{16}", first.id)
    assert first.id != second.id
    for asked in (first, second):
        assert asked.alive(first.id)
        assert asked.alive(second.id)
    second.close()
    second.close()
    assert not first.alive(second.id)
    assert not second.alive(second.id)
    assert locks(path) == {first.id}
    first.close()


def test_a_killed_process_is_dead_at_once_and_its_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    owner = Owner(path)
    process, other = spawn(path)
    with process:
        for _ in range(3):
            assert owner.alive(other), "asking does not take the lock away"
        process.kill()
        process.wait()
        assert locks(path) == {owner.id, other}
        assert not owner.alive(other)
    assert locks(path) == {owner.id}
    assert not owner.alive(other)
    owner.close()


def test_two_who_ask_at_the_same_time_do_not_take_each_other_for_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    owner, (process, killed) = Owner(path), spawn(path)
    with process:
        process.kill()
    with Path(f"{path}.owners/{killed}.lock").open() as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        assert not owner.alive(killed)
    owner.close()


def test_a_new_owner_clears_away_the_dead_and_spares_the_living(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    living, (process, killed) = Owner(path), spawn(path)
    with process:
        process.kill()
    assert killed in locks(path)
    successor = Owner(path)
    assert locks(path) == {living.id, successor.id}
    living.close()
    successor.close()


@pytest.mark.parametrize("owner_id", ["", "0" * 16, "../secret", "x" * 16, "0" * 17, "ABCDEF0123456789"])
def test_an_unknown_owner_is_dead_and_no_path_is_followed(tmp_path: Path, owner_id: str) -> None:
    (tmp_path / "secret.lock").write_text("kept")
    owner = Owner(tmp_path / "store.db")
    assert not owner.alive(owner_id)
    assert (tmp_path / "secret.lock").exists()
    owner.close()


def test_a_lock_that_cannot_be_made_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot create a lock in"):
        Owner(tmp_path / "absent" / "store.db")
    (tmp_path / "store.db.owners").write_text("in the way")
    with pytest.raises(InvalidSettings, match="cannot create a lock in"):
        Owner(tmp_path / "store.db")


def test_in_memory_only_oneself_is_alive() -> None:
    first, second = Owner(None), Owner(None)
    assert first.alive(first.id)
    assert not first.alive(second.id)
    first.close()
    assert not first.alive(first.id)


def test_a_file_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process clears the file away between its making and its locking, twice."""
    path, lock, robbed = tmp_path / "store.db", fcntl.flock, []

    def flock(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and len(robbed) < 2:
            for file in Path(f"{path}.owners").iterdir():
                file.unlink()
                robbed.append(file)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    owner, witness = Owner(path), Owner(path)
    assert len(robbed) == 2
    assert locks(path) == {owner.id, witness.id}
    assert witness.alive(owner.id)
    owner.close()
    witness.close()


def test_where_nobody_can_be_asked_every_other_owner_counts_as_alive() -> None:
    owner = LeasedOwner()
    assert owner.alive("0" * 16)
    assert owner.alive(owner.id)
    owner.close()
    assert not owner.alive(owner.id)
    assert owner.alive("0" * 16)
