"""The docs import nothing but what is stable: the public names, and the modules that `contextos` and
`contextos_agentspec` list as stable.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

import contextos
import contextos_agentspec
from contextos.action.gateway.tool_gateway import GUARDS, OBSERVED
from tests.docs.pages import ROOT, blocks, written

STABLE = re.compile(r"^- `(contextos(?:_agentspec)?\.[a-z_.]+?)(\.\*)?`: ", re.MULTILINE)
PAGES = [*written(), *sorted((ROOT / "examples").glob("*/README.md"))]


def is_stable(module: str) -> bool:
    listed = STABLE.findall(f"{inspect.getdoc(contextos)}\n{inspect.getdoc(contextos_agentspec)}")
    return any(module == name or (every and module.startswith(f"{name}.")) for name, every in listed)


def unstable(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "contextos",
            "contextos_agentspec",
        ):
            if node.module == "contextos":
                yield from (alias.name for alias in node.names if alias.name not in contextos.__all__)
            elif not is_stable(node.module or ""):
                yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (
                alias.name for alias in node.names if alias.name.startswith(("contextos.", "contextos_agentspec."))
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_imports_only_stable_names(page) -> None:
    sources = [block.text for block in blocks(page.read_text("utf-8")) if block.language == "python"]
    assert [name for source in sources for name in unstable(source)] == []


@pytest.mark.parametrize(
    "line",
    [
        "from contextos.store.sqlite.stores import SqliteStores",
        "from contextos import _HOMES",
        "import contextos.workspace",
        "from contextos_agentspec.components import graph_of",
    ],
)
def test_an_import_of_what_may_change_is_found(line: str) -> None:
    assert list(unstable(line))


def test_the_reference_lists_every_guard_in_order_and_those_that_are_only_observed() -> None:
    page = (ROOT / "docs" / "reference" / "run.md").read_text("utf-8")
    rows = page.split("| guard | what it does | observed |\n", 1)[1].splitlines()[1:]
    assert [row.split("`")[1] for row in rows] == [guard.__name__ for guard in GUARDS]
    assert [row.split("`")[1] for row in rows if row.endswith("| observed |")] == [one.__name__ for one in OBSERVED]
    assert "(reference/run.md#guards)" in (ROOT / "docs" / "security.md").read_text("utf-8")
