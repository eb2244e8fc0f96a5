"""Which imports of an adapter are refused, and what the digest of a folder covers."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contextos.adapters.function.imports import Imports
from contextos.adapters.function.sources import SourceFiles, UnlistedImport, tree_digest


def sources(root: Path, code: str, *helpers: str) -> SourceFiles:
    (root / "lib").mkdir(exist_ok=True)
    for name in ("rates.py", "lib/other.py", "json.py"):
        (root / name).write_text("", "utf-8")
    names = {"shop": root / "shop.py", **{name.replace("/", ".")[:-3]: root / name for name in helpers}}
    return SourceFiles(root, {name: code.encode() if name == "shop" else b"" for name in names}, names)


@pytest.mark.parametrize(
    "code",
    ["import rates", "from rates import x", "from . import rates", "from .rates import x", "if 0:\n    import rates"],
)
def test_a_file_of_the_workspace_is_refused_unless_it_is_listed(tmp_path: Path, code: str) -> None:
    with pytest.raises(UnlistedImport, match="`rates"):
        sources(tmp_path, code).check_imports()
    sources(tmp_path, code, "rates.py").check_imports()


def test_a_listed_folder_does_not_let_its_other_files_in(tmp_path: Path) -> None:
    with pytest.raises(UnlistedImport, match=r"lib\.other"):
        sources(tmp_path, "import lib.other", "lib/rates.py").check_imports()


@pytest.mark.parametrize("code", ["import json", "import contextos.errors", "import pydantic", "import not_installed"])
def test_other_modules_are_none_of_the_workspace(tmp_path: Path, code: str) -> None:
    found = sources(tmp_path, code)
    found.check_imports()
    assert found.imports().names == {code.removeprefix("import ")}


def test_the_digest_of_a_folder_follows_names_and_bytes_and_no_bytecode(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1", "utf-8")
    before = tree_digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert tree_digest(tmp_path) == before
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert tree_digest(tmp_path) != before


def test_threads_that_open_one_workspace_at_the_same_time_all_read_it(tmp_path: Path) -> None:
    found = sources(tmp_path, "import json\n" * 40)

    def another_thread_goes_on(*_: object) -> None:
        time.sleep(0)

    gc.callbacks.append(another_thread_goes_on)
    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as threads:
            read = [threads.submit(found.imports) for _ in range(20)]
            assert [one.result() for one in read] == [Imports(frozenset({"json"}))] * 20
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(another_thread_goes_on)
