"""Every file that the imports of code lead to counts for the digest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from contextos.adapters.function.imports import Imports
from contextos.adapters.function.packages import PackageFiles
from contextos.adapters.function.trees import Others, walk

pytestmark = pytest.mark.usefixtures("looks_each_time")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, as `PYTHONPATH` and editable installs add one, with a module of no distribution."""
    put(tmp_path, "looseone/__init__.py", "from .inner import x\n")
    put(tmp_path, "looseone/inner.py", "import loosetwo\nx = 1\n")
    put(tmp_path, "loosetwo.py", "y = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, "utf-8")


def counted(files: PackageFiles) -> set[str]:
    """The files that count, without what tells the folders of the import path apart."""
    found = [one for label, root in files._trees.items() for one in walk(label, str(root), Others())]
    return {key.partition("/")[2] for key, _, _ in found}


def importing(*names: str, runs_others: bool = False) -> PackageFiles:
    return PackageFiles(Imports(frozenset(names), runs_others))


@pytest.mark.parametrize("changed", ["looseone/__init__.py", "looseone/inner.py", "loosetwo.py"])
def test_modules_of_no_distribution_are_followed_file_by_file(folder: Path, changed: str) -> None:
    before = importing("looseone")
    first = before.now()
    assert first is not None
    put(folder, changed, (folder / changed).read_text("utf-8") + "# changed\n")
    assert before.now() is None, "nobody knows which of both this process runs"
    after = importing("looseone").now()
    assert after not in (None, first)


def test_a_module_that_nobody_imports_does_not_count(folder: Path) -> None:
    first = importing("loosetwo").now()
    put(folder, "looseone/inner.py", "x = 2\n")
    assert importing("loosetwo").now() == first


def test_an_import_of_what_is_not_installed_counts_once_it_is(folder: Path) -> None:
    before = importing("loosethree")
    first = before.now()
    assert first is not None
    put(folder, "loosethree.py", "z = 1\n")
    assert before.now() is None
    assert importing("loosethree").now() != first


def test_a_module_in_a_folder_before_it_takes_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = importing("loosetwo")
    put(folder, "ahead/loosetwo.py", "y = 1\n")
    monkeypatch.syspath_prepend(str(folder / "ahead"))
    assert before.now() is None


def test_a_file_that_is_put_back_counts_as_before(folder: Path) -> None:
    files = importing("loosetwo")
    first = files.now()
    put(folder, "loosetwo.py", "y = 2\n")
    assert files.now() is None
    put(folder, "loosetwo.py", "y = 1\n")
    assert files.now() == first


def test_what_a_distribution_requires_counts_with_it() -> None:
    files = importing("httpx")
    kept = {label.split("/")[1] for label in files._trees if label.startswith("package/")}
    assert {"httpx", "httpcore", "h11", "certifi", "idna", "anyio"} <= kept
    assert "contextos" not in kept


def test_the_standard_library_and_the_runtime_are_no_packages() -> None:
    files = importing("json", "os.path", "contextos.errors", "zipimport", "_frozen_importlib")
    assert {label.rstrip("0123456789") for label in files._trees} <= {"start"}
    assert not files.without_files


def test_code_that_runs_other_code_is_bound_to_its_workspace(tmp_path: Path) -> None:
    put(tmp_path, "rates.py", "x = 1\n")
    put(tmp_path, "pay.sh", "echo 1\n")
    put(tmp_path, "books.db", "1")
    (tmp_path / "tool").write_text("echo 1\n", "utf-8")
    (tmp_path / "tool").chmod(0o755)
    files = PackageFiles(Imports(runs_others=True), tmp_path)
    files._trees = {label: root for label, root in files._trees.items() if root == tmp_path}
    assert counted(files) == {"rates.py", "pay.sh", "tool"}


def test_a_link_that_leads_to_itself_or_nowhere_is_nothing_that_code_can_run(tmp_path: Path) -> None:
    put(tmp_path, "rates.py", "x = 1\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    files = PackageFiles(Imports(runs_others=True), tmp_path)
    files._trees = {label: root for label, root in files._trees.items() if root == tmp_path}
    assert counted(files) == {"rates.py"}


@pytest.mark.parametrize("name", ["lonely.py", "deep/in/it.py", "deep/in/table.json"])
def test_every_installed_file_counts_for_code_that_runs_other_code(folder: Path, name: str) -> None:
    put(folder, f"site-packages/{name}", "x = 1\n")
    sys.path.insert(0, str(folder / "site-packages"))
    try:
        files = importing(runs_others=True)
        assert files.now() is not None
        put(folder, f"site-packages/{name}", "x = 2\n")
        for _ in range(2):
            assert files.now() is None
    finally:
        sys.path.remove(str(folder / "site-packages"))


def test_a_file_whose_name_is_no_text_counts(tmp_path: Path) -> None:
    named = os.fsdecode(b"h\xff.py")
    (tmp_path / named).write_text("1", "utf-8")
    files = PackageFiles(Imports(runs_others=True), tmp_path)
    assert files.now() is not None
    (tmp_path / named).write_text("12", "utf-8")
    assert files.now() is None


def test_a_folder_that_is_put_on_the_path_later_counts_for_what_is_loaded_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = Imports(runs_others=True)
    assert PackageFiles.of(imports).now() is not None
    put(tmp_path, "late.py", "x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    files = PackageFiles.of(imports)
    assert files.now() is not None
    put(tmp_path, "late.py", "x = 2 * 1\n")
    assert files.now() is None


def test_what_changed_since_another_adapter_was_loaded_is_found_for_the_next(folder: Path) -> None:
    imports = Imports(frozenset({"looseone"}))
    before = PackageFiles.of(imports)
    first = before.now()
    assert PackageFiles.of(imports) is before
    put(folder, "loosetwo.py", "y = 2 * 1\n")
    after = PackageFiles.of(imports).now()
    assert after is not None
    assert after != first
    assert before.now() is None
