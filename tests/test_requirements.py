"""Requirements as data, checked in both directions: each has a test or a reason, each mark names one.

Marks are read from the syntax tree, not from a run, so a test that was deselected still counts and one
that only mentions a requirement in prose does not.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
FIELDS = {"sentence", "source", "reason", "pending"}

Requirements = Mapping[str, Mapping[str, Any]]


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """All requirements by id. Refuses an id that two files define."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        twice = found.keys() & tables.keys()
        if twice:
            raise ValueError(f"`{path.name}` defines `{min(twice)}` again")
        found |= tables
    return found


def marks(source: str) -> Iterator[str]:
    """The ids that tests of this module name, on a test, a test class, `pytestmark` or one parameter set."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.lower().startswith("test"):
                for decorator in node.decorator_list:
                    yield from named(decorator)
        elif isinstance(node, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets):
                yield from named(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "marks":
            yield from named(node.value)


def named(expression: ast.expr) -> Iterator[str]:
    for call in ast.walk(expression):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("mark.requirement"):
            for argument in call.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"line {argument.lineno}: name the requirement as a literal string")
                yield argument.value


def findings(requirements: Requirements, proved: Iterable[str]) -> Iterator[str]:
    """Everything that is wrong between the two, as sentences."""
    proved = set(proved)
    for name in sorted(proved - requirements.keys()):
        yield f"a test names `{name}`, which no file in tests/requirements defines"
    for name, entry in requirements.items():
        if unknown := entry.keys() - FIELDS:
            yield f"`{name}` has the unknown field `{min(unknown)}`"
        if not all(str(entry.get(field, "")).strip() for field in ("sentence", "source")):
            yield f"`{name}` needs a sentence and a source"
        if entry.get("pending", True) is not True:
            yield f"`{name}`: `pending` is true or absent"
        excuses = [field for field in ("reason", "pending") if str(entry.get(field, "")).strip()]
        if name in proved and excuses:
            yield f"`{name}` has a test; take `{excuses[0]}` away"
        if name not in proved and len(excuses) != 1:
            yield f"`{name}` needs a test that names it, or a written `reason` why there can be none"


def proved_by_tests() -> set[str]:
    return {name for path in sorted(TESTS.rglob("*.py")) for name in marks(path.read_text(encoding="utf-8"))}


def test_every_requirement_has_a_test_and_every_mark_a_requirement() -> None:
    found = list(findings(load(TESTS / "requirements"), proved_by_tests()))
    assert not found, "\n".join(found)


def test_the_index_is_not_empty() -> None:
    assert load(TESTS / "requirements")


WRITTEN = {"sentence": "It holds.", "source": "Somewhere"}


@pytest.mark.parametrize(
    ("entry", "proved", "said"),
    [
        (WRITTEN, [], "needs a test"),
        (WRITTEN, ["X-1", "X-2"], "names `X-2`"),
        (WRITTEN | {"reason": "a person must look"}, ["X-1"], "take `reason` away"),
        (WRITTEN | {"pending": True}, ["X-1"], "take `pending` away"),
        (WRITTEN | {"reason": " "}, [], "needs a test"),
        (WRITTEN | {"pending": True, "reason": "a person must look"}, [], "needs a test"),
        (WRITTEN | {"pending": False}, ["X-1"], "true or absent"),
        (WRITTEN | {"note": "?"}, ["X-1"], "unknown field"),
        ({"sentence": "It holds."}, ["X-1"], "a sentence and a source"),
    ],
)
def test_a_gap_between_requirements_and_tests_is_found(entry: dict[str, Any], proved: list[str], said: str) -> None:
    assert said in "\n".join(findings({"X-1": entry}, proved))


@pytest.mark.parametrize(
    ("entry", "proved"),
    [(WRITTEN, ["X-1"]), (WRITTEN | {"reason": "a person must look"}, []), (WRITTEN | {"pending": True}, [])],
)
def test_a_requirement_in_order_is_left_alone(entry: dict[str, Any], proved: list[str]) -> None:
    assert list(findings({"X-1": entry}, proved)) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@pytest.mark.requirement('A', 'B')\ndef test_x(): ...", ["A", "B"]),
        ("@mark.requirement('A')\nclass TestX: ...", ["A"]),
        ("class TestX:\n    pytestmark = pytest.mark.requirement('A')", ["A"]),
        ("pytestmark = [pytest.mark.requirement('A'), pytest.mark.soak]", ["A"]),
        ("@pytest.mark.parametrize('x', [param(1, marks=mark.requirement('A'))])\ndef test_x(x): ...", ["A"]),
        ("CASES = [param(1, marks=[mark.requirement('A')])]", ["A"]),
        ("@pytest.mark.requirement('A')\ndef prepare(): ...", []),
        ("# pytest.mark.requirement('A')\n'''@pytest.mark.requirement('A')'''", []),
    ],
)
def test_marks_are_read_from_tests_and_from_nothing_else(source: str, expected: list[str]) -> None:
    assert sorted(set(marks(source))) == expected


def test_a_computed_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="literal"):
        list(marks("@pytest.mark.requirement(NAME)\ndef test_x(): ..."))


def test_an_id_defined_twice_is_refused(tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text("[X-1]\nsentence = 'It holds.'\nsource = 'Somewhere'\n", encoding="utf-8")
    with pytest.raises(ValueError, match="again"):
        load(tmp_path)
