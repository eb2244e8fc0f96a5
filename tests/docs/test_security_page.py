"""`docs/security.md` names every attack test, and no test that does not exist."""

from __future__ import annotations

import re

from contextos.trust.approvals.acts import ACT_ROLES
from contextos.workspace.settings import UNSAFE_SETTINGS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
NAMED = set(re.findall(r"tests/[\w/]+\.py", PAGE))


def test_every_attack_test_is_named_on_the_page() -> None:
    attacks = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert attacks
    assert attacks - NAMED == set(), "add a row to the table of promises"


def test_every_test_that_the_page_names_exists() -> None:
    assert NAMED
    assert [name for name in sorted(NAMED) if not (ROOT / name).is_file()] == []


def rows(head: str) -> list[list[str]]:
    """The cells of the table with this head."""
    table = PAGE.split(head, 1)[1].split("\n\n", 1)[0]
    return [line.strip("|").split(" | ") for line in table.splitlines()[2:]]


def test_the_page_names_every_act_of_an_operator_with_its_role() -> None:
    named = {
        kind: re.findall(r"`(\w+)`", role)[0]
        for kinds, _, role in rows("| act | command | role |")
        for kind in re.findall(r"`([\w.]+)`", kinds)
    }
    assert named == dict(ACT_ROLES)


def test_the_page_names_every_unsafe_setting() -> None:
    assert sorted(name.strip(" `") for name, *_ in rows("| name | what it allows")) == sorted(UNSAFE_SETTINGS)


def test_every_row_has_a_tenant_but_those_that_the_page_names() -> None:
    schemas = [path.read_text("utf-8") for path in (ROOT / "src" / "contextos" / "store").rglob("*.sql")]
    tables = re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?([\w.]+) \(\n(.*?)\n\)", "\n".join(schemas), re.DOTALL)
    assert len(tables) > 20
    assert {name for name, columns in tables if not re.search(r"^  tenant .*NOT NULL", columns, re.MULTILINE)} == {
        "contextos.workers"
    }
