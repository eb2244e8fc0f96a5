"""Trusted code runs only from an explicit list, from inside its root, with the digest that was pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.adapters.function.loading import load_function_adapter, load_function_adapters, source_digest
from contextos.errors import InvalidSettings

CODE = """
from __future__ import annotations
from dataclasses import dataclass
from contextos.adapters.function.adapter import FunctionAdapter
from tests.unit.adapters.function.test_adapter import definition

@dataclass
class Kept:
    place: str

def look(args, context):
    return {}

one = FunctionAdapter(definition(), {"look": look, "act": look})
number = 7

def made(workspace):
    one.kept = Kept(str(workspace))
    return one

def several(workspace):
    return [one, one]

def none(workspace):
    return ()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "code.py").write_text(CODE + f"# {tmp_path}\n", encoding="utf-8")
    return tmp_path / "shop"


def test_an_adapter_or_a_function_that_makes_some_is_loaded(root: Path) -> None:
    pinned = source_digest("code.py:one", root=root)
    assert load_function_adapter("code.py:one", pinned, root=root).describe().adapter_id == "adp_test"
    assert len(load_function_adapters("code.py:several", pinned, root=root)) == 2


def test_the_function_is_given_the_workspace(root: Path, tmp_path: Path) -> None:
    assert load_function_adapter("code.py:made", None, root=root).kept.place == str(root)
    assert load_function_adapter("code.py:made", None, root=root, workspace=tmp_path).kept.place == str(tmp_path)


def test_code_that_changed_does_not_run(root: Path) -> None:
    pinned = source_digest("code.py:one", root=root)
    (root / "code.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    with pytest.raises(InvalidSettings, match="review the change"):
        load_function_adapter("code.py:one", pinned, root=root)


def test_an_installed_module_is_loaded_by_its_name_and_digest() -> None:
    entry = "tests.unit.adapters.function.test_adapter:adapter"
    pinned = source_digest(entry, root=Path())
    with pytest.raises(InvalidSettings, match="digest"):
        load_function_adapter(entry, "sha256:" + "0" * 64, root=Path())
    assert pinned.startswith("sha256:")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("code.py", "names a module and an attribute"),
        (":one", "names a module and an attribute"),
        ("../outside.py:one", "outside the workspace"),
        ("/outside.py:one", "outside the workspace"),
        ("missing.py:one", "cannot be read"),
        ("no.such.module:one", "no module"),
        ("code.py:missing", "no adapter"),
        ("code.py:number", "no adapter"),
        ("code.py:none", "no adapter"),
        ("code.py:several", "2 adapters"),
    ],
)
def test_what_is_no_entry_stops_the_start(root: Path, entry: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        load_function_adapter(entry, None, root=root)


@pytest.mark.parametrize("code", ["import no_such_module_here", "def broken(:"])
def test_code_that_does_not_load_stops_the_start(root: Path, code: str) -> None:
    (root / "broken.py").write_text(code, encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InvalidSettings, match="does not load"):
            load_function_adapter("broken.py:one", None, root=root)


def test_code_beyond_the_limit_is_not_read_in(root: Path) -> None:
    (root / "large.py").write_bytes(b"#" * 1_048_577)
    with pytest.raises(InvalidSettings, match="larger than"):
        load_function_adapter("large.py:one", None, root=root)
