"""`read_regular_file` reads regular files within a limit; `NewFiles` writes files that appear together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contextos.files import NewFiles, read_regular_file


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"12345")
    assert read_regular_file(file, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular_file(file, 4)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert read_regular_file(tmp_path / "b", 1) == b"x"


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular_file(place, 1)
    with pytest.raises(OSError, match="null character"):
        read_regular_file(tmp_path / "a\0b", 1)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "missing", 1)


def test_new_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    with NewFiles() as new:
        new.write(tmp_path / "a", b"1")
        new.write(tmp_path / "b", b"2")
        assert (tmp_path / "a").read_bytes() == b""
        new.publish()
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"1", b"2"]
    with NewFiles() as new:
        new.write(tmp_path / "c", b"3")
        with pytest.raises(FileExistsError):
            new.write(tmp_path / "a", b"4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    with pytest.raises(OSError, match="null character"), NewFiles() as new:
        new.write(tmp_path / "a\0b", b"")
