"""Trusted code runs only from an explicit list, from inside its root, with the digest that was pinned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from contextos.adapters.function.loading import load_function_adapters, source_digest
from contextos.contracts.envelopes.tool import CallContext
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
    [one] = load_function_adapters("code.py:one", pinned, root=root).adapters
    assert one.describe().adapter_id == "adp_test"
    assert len(load_function_adapters("code.py:several", pinned, root=root).adapters) == 2


def test_the_function_is_given_the_workspace(root: Path, tmp_path: Path) -> None:
    for workspace in (root, tmp_path):
        [made] = load_function_adapters("code.py:made", None, root=root, workspace=workspace).adapters
        assert made.kept.place == str(workspace)
    [made] = load_function_adapters("code.py:made", None, root=root).adapters
    assert made.kept.place == str(root)


def test_code_that_changed_does_not_run(root: Path) -> None:
    pinned = source_digest("code.py:one", root=root)
    (root / "code.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    with pytest.raises(InvalidSettings, match="review the change"):
        load_function_adapters("code.py:one", pinned, root=root)


def test_an_installed_module_is_loaded_by_its_name_and_digest() -> None:
    entry = "tests.unit.adapters.function.test_adapter:adapter"
    pinned = source_digest(entry, root=Path())
    with pytest.raises(InvalidSettings, match="digest"):
        load_function_adapters(entry, "sha256:" + "0" * 64, root=Path())
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
        ("code.py:missing", "is not an adapter"),
        ("code.py:number", "is not an adapter"),
        ("code.py:none", "is not an adapter"),
    ],
)
def test_a_target_that_is_no_adapter_stops_the_start(root: Path, entry: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        load_function_adapters(entry, None, root=root)


@pytest.mark.parametrize("code", ["import no_such_module_here", "def broken(:"])
def test_code_that_does_not_load_stops_the_start(root: Path, code: str) -> None:
    (root / "broken.py").write_text(code, encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InvalidSettings, match="does not load"):
            load_function_adapters("broken.py:one", None, root=root)


def test_code_beyond_the_limit_is_not_read_in(root: Path) -> None:
    (root / "large.py").write_bytes(b"#" * 1_048_577)
    with pytest.raises(InvalidSettings, match="larger than"):
        load_function_adapters("large.py:one", None, root=root)


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def pays(root: Path, imported: str, call: str, files: list[str]) -> str:
    """What a capability of an adapter that uses a helper answers."""
    write(
        root, "code.py", CODE.replace("return {}", f"{imported}\n    one.said = {call}\n    return {{}}") + f"#{root}"
    )
    [one] = load_function_adapters("code.py:one", None, root=root, files=dict.fromkeys(files)).adapters
    asyncio.run(one.call("look", {}, CallContext("t", "run_1", "tool_1", None, 0, 1000)))
    return str(one.said)


@pytest.mark.parametrize(
    ("imported", "call"),
    [
        ("import rates", "rates.now()"),
        ("from rates import now", "now()"),
        ("import lib.rates", "lib.rates.now()"),
        ("import lib.rates as rates", "rates.now()"),
        ("from lib import rates", "rates.now()"),
        ("from lib.rates import now", "now()"),
        ("from .lib.rates import now", "now()"),
        ("from lib.uses import later", "later()"),
    ],
)
def test_listed_helpers_are_imported_in_every_way(root: Path, imported: str, call: str) -> None:
    for name in ("rates.py", "lib/rates.py"):
        write(root, name, f"def now():\n    return 'read at the start of {root}'\n")
    write(root, "lib/uses.py", "def later():\n    from .rates import now\n    return now()\n")
    assert pays(root, imported, call, ["rates.py", "lib/rates.py", "lib/uses.py"]) == f"read at the start of {root}"


def test_the_digest_of_the_code_covers_helpers_and_the_versions_of_packages(root: Path) -> None:
    write(root, "rates.py", "import pydantic\n")
    one = load_function_adapters("code.py:one", None, root=root, files={"rates.py": None})
    assert (
        one.code_digest == load_function_adapters("code.py:one", None, root=root, files={"rates.py": None}).code_digest
    )
    write(root, "rates.py", "import pydantic\n\n")
    changed = load_function_adapters("code.py:one", None, root=root, files={"rates.py": None})
    assert (
        len({one.code_digest, changed.code_digest, load_function_adapters("code.py:one", None, root=root).code_digest})
        == 3
    )


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("rates.txt", "is not a `.py` file"),
        ("missing.py", "cannot be read"),
        ("../outside.py", "outside the workspace"),
        ("code.py", "or is the entry"),
    ],
)
def test_a_file_that_is_no_helper_stops_the_start(root: Path, listed: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        load_function_adapters("code.py:one", None, root=root, files={listed: None})


def test_a_file_runs_as_python_runs_it_with_the_types_of_its_hints(root: Path) -> None:
    source = CODE.replace("from __future__ import annotations\n", "") + "assert Kept.__annotations__['place'] is str\n"
    (root / "code.py").write_text(source, encoding="utf-8")
    assert load_function_adapters("code.py:one", None, root=root).adapters


def test_a_toolset_of_a_workspace_is_loaded_like_any_adapter(root: Path) -> None:
    code = (
        "import contextos\n\n@contextos.read(integrity='trusted')\n"
        "def ping(times: int = 1) -> bool:\n    'Whether it is there.'\n"
        "    return True\n\nbox = contextos.toolset('box', [ping])\n"
    )
    (root / "code.py").write_text(code, encoding="utf-8")
    [box] = load_function_adapters("code.py:box", source_digest("code.py:box", root=root), root=root).adapters
    assert [one.name for one in box.describe().capabilities] == ["ping"]


def test_equal_code_of_two_workspaces_finds_the_files_beside_it(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nimport contextos\n\n@contextos.read(integrity='trusted')\n"
        "def where() -> str:\n    'Its place.'\n"
        "    return str(Path(__file__).parent)\n\nbox = contextos.toolset('box', [where])\n"
    )
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text(code, encoding="utf-8")
    digests, places = set(), []
    for name in ("a", "b"):
        loaded = load_function_adapters("code.py:box", None, root=tmp_path / name)
        said = asyncio.run(loaded.adapters[0].call("where", {}, CallContext("t", "run_1", "tool_1", None, 0, 1000)))
        places.append(said.output["result"])
        digests.add(loaded.code_digest)
    assert places == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert len(digests) == 1, "the place is not a part of what a run pins"
