"""Which files below a folder count, by what the folder is, and how a change of them is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contextos.adapters.function.trees import Tree

PUT = ("a.py", "a.txt", "a.json", "a.db", "a.pth", "sub/b.py", ".hidden/c.py", "__pycache__/d.py")


@pytest.mark.parametrize(
    ("label", "named", "counted"),
    [
        ("folder1", (), {"a.py", "a.pth", "sub/b.py"}),
        ("workspace", (), {"a.py", "a.pth", "sub/b.py"}),
        ("workspace", ("a.txt", "a.json", "a.db"), {"a.py", "a.pth", "sub/b.py", "a.txt"}),
        ("workspace", (".hidden",), {"a.py", "a.pth", "sub/b.py", ".hidden/c.py"}),
        ("module/x/0", (), {"a.py", "a.txt", "a.json", "a.pth", "sub/b.py", ".hidden/c.py"}),
        ("site0", (), {"a.py", "a.txt", "a.json", "a.db", "a.pth", "sub/b.py", ".hidden/c.py"}),
        ("start0", (), {"a.pth"}),
    ],
)
def test_the_label_of_a_folder_says_which_files_count(
    label: str, named: tuple[str, ...], counted: set[str], tmp_path: Path
) -> None:
    for name in PUT:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1", "utf-8")
    found = Tree.of(label, tmp_path, named)
    assert {key.removeprefix(f"{label}/") for key in found.files} == counted


def test_a_folder_that_gets_its_old_time_back_is_seen_as_another(tmp_path: Path) -> None:
    tree, before = Tree.of("site0", tmp_path), os.stat(tmp_path)
    assert tree.is_as_seen()
    (tmp_path / "new.py").write_text("1", "utf-8")
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not tree.is_as_seen()
