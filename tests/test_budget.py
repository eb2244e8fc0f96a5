"""The whole stays within `tests/budget.toml`: lines of `src` by package and in all, packages, modules, arrows, and the
words of the guides.

`python tests/test_budget.py` prints what there is; `--write` writes it into the table. A number that rises needs the
ADR that says why, in `raised`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "contextos"
TABLE = ROOT / "tests" / "budget.toml"
SLACK = 0.02
"""The share by which a number may be below its limit before the table is written again, to keep it, and by which the
lines of one package may be above theirs: what one gains, another gives.
"""

Counts = dict[str, int]


def top(name: str) -> str:
    """The package at the top, or the module, that a dotted name of ours lies in."""
    return name.split(".")[1] if "." in name else ""


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "contextos":
            yield from [f"contextos.{one.name}" for one in node.names] if node.module == "contextos" else [node.module]
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("contextos."))


def counted(src: Path = SRC, docs: Path = ROOT / "docs") -> Counts:
    """What there is: `lines <package>` for each package at the top, and the sums."""
    counts: Counts = {}
    arrows = set[tuple[str, str]]()
    modules = sorted(src.rglob("*.py"))
    packages = {one.name for one in src.iterdir() if (one / "__init__.py").is_file()}
    for path in modules:
        source = path.read_text("utf-8")
        inside = path.relative_to(src).with_suffix("").parts[0]
        name = f"lines {inside if inside in packages else 'at the top'}"
        counts[name] = counts.get(name, 0) + source.count("\n")
        arrows |= {(inside, top(one)) for one in imported(source) if {inside, top(one)} <= packages}
    guides = [path.read_text("utf-8") for path in docs.glob("*.md")]
    return counts | {
        "lines": sum(counts.values()),
        "packages": len(packages),
        "modules": len(modules),
        "arrows": sum(before != after for before, after in arrows),
        "words of guides": sum(len(re.findall(r"\S+", text)) for text in guides),
    }


def beyond(counts: Counts, limits: Counts) -> Iterator[str]:
    """What is more than the table allows, or so much less that the table has to be written."""
    for name, limit in limits.items():
        count = counts.get(name, 0)
        if count > limit * (1 + SLACK * name.startswith("lines ")):
            yield f"{name}: {count:,}, and the table allows {limit:,}; make it smaller, or name the ADR that raises it"
        elif count < limit * (1 - SLACK) - 5:
            yield f"{name}: {count:,}, and the table allows {limit:,}; write the table, to keep it"
    yield from (f"{name}: the table has no limit for it" for name in counts.keys() - limits.keys())


def limits() -> Counts:
    return dict(tomllib.loads(TABLE.read_text("utf-8"))["most"])


def write(counts: Counts) -> None:
    before = TABLE.read_text("utf-8").partition("[most]")[0]
    most = "".join(f"{json.dumps(name)} = {counts[name]}\n" for name in sorted(counts))
    TABLE.write_text(f"{before}[most]\n{most}", "utf-8")


def test_the_whole_is_within_its_budget() -> None:
    found = list(beyond(counted(), limits()))
    assert not found, "\n".join(found)


def test_a_number_that_rises_names_a_decision() -> None:
    raised = tomllib.loads(TABLE.read_text("utf-8"))["raised"]
    for name, number in raised.items():
        assert name in limits(), name
        assert list((ROOT / "docs" / "adr").glob(f"{number:04d}-*.md")), f"there is no ADR {number}"


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("import contextos.b\n", {"arrows: 1", "lines: 3", "lines a: 2"}),
        ("x = 1\n" * 50, {"lines: 52", "lines a: 51"}),
        ("", set[str]()),
    ],
)
def test_growth_is_found(tmp_path: Path, planted: str, said: set[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("y = 1\n")
    allowed = counted(tmp_path, tmp_path) | {"modules": 3}
    (tmp_path / "a" / "m.py").write_text(planted)
    assert {one.partition(",")[0] for one in beyond(counted(tmp_path, tmp_path), allowed)} == said


def test_what_shrinks_is_kept() -> None:
    assert [*beyond({"lines": 80}, {"lines": 100})] == [
        "lines: 80, and the table allows 100; write the table, to keep it"
    ]
    assert [*beyond({"lines": 80, "words": 1}, {"lines": 80})] == ["words: the table has no limit for it"]


if __name__ == "__main__":
    if "--write" in sys.argv:
        write(counted())
    for name, count in sorted(counted().items()):
        print(f"{name:<24}{count:>9,}  at most {limits().get(name, 0):>9,}")
