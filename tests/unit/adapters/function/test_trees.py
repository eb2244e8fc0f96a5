"""Which files below a folder count, by what the folder is, and how a change of them is seen."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contextos.adapters.function import trees
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


@pytest.mark.usefixtures("looks_each_time")
def test_a_folder_that_gets_its_old_time_back_is_seen_as_another(tmp_path: Path) -> None:
    tree, before = Tree.of("site0", tmp_path), os.stat(tmp_path)
    assert tree.is_as_seen()
    (tmp_path / "new.py").write_text("1", "utf-8")
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not tree.is_as_seen()


@pytest.mark.parametrize("label", ["workspace", "module/x/0", "folder1"])
def test_a_file_that_is_not_installed_is_looked_at_each_time(label: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1", "utf-8")
    tree = Tree.of(label, tmp_path)
    assert tree.is_as_seen()
    (tmp_path / "a.py").write_text("12", "utf-8")
    assert not tree.is_as_seen()


def test_an_installed_file_is_looked_at_again_after_a_while(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1", "utf-8")
    tree = Tree.of("site0", tmp_path)
    (tmp_path / "a.py").write_text("12", "utf-8")
    time.sleep(trees.LOOK_AGAIN_S)
    assert not tree.is_as_seen()
    assert Tree.of("site0", tmp_path).files != tree.files


@pytest.mark.parametrize(("took_s", "pause_s"), [((0.05, 0.01), 3.0), ((0.001, 0.001), 1.0), ((60.0, 30.0), 10.0)])
def test_a_look_that_takes_long_is_made_again_after_fifty_times_that_and_at_most_ten_seconds(
    tmp_path: Path, took_s: tuple[float, float], pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_TREES", {})
    monkeypatch.setattr(trees, "LOOK_AGAIN_S", 1.0)
    (tmp_path / "a.py").write_text("1", "utf-8")
    (tmp_path / "b.py").write_text("1", "utf-8")
    installed, loose = Tree.of("site0", tmp_path / "a.py"), Tree.of("workspace", tmp_path)
    beside = Tree.of("site0", tmp_path / "b.py")
    installed.took_s, beside.took_s = took_s
    for tree in (installed, beside):
        assert tree.until - tree.looked_at == pytest.approx(pause_s)
    assert loose.until == loose.looked_at


def test_threads_that_ask_at_once_share_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred calls at once would otherwise look at some ten thousand files a hundred times."""
    (tmp_path / "a.py").write_text("1", "utf-8")
    tree, looks, sign = Tree.of("workspace", tmp_path), list[float](), trees.file_sign
    monkeypatch.setattr(
        trees, "file_sign", lambda stated: (looks.append(time.monotonic()), time.sleep(0.05), sign(stated))[2]
    )
    together = threading.Barrier(50)

    def ask() -> bool:
        together.wait()
        return tree.is_as_seen()

    with ThreadPoolExecutor(50) as threads:
        assert all(one.result() for one in [threads.submit(ask) for _ in range(50)])
    assert len(looks) < 25
    (tmp_path / "a.py").write_text("12", "utf-8")
    assert not tree.is_as_seen()
