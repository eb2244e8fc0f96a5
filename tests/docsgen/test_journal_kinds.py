"""The table of kinds has every kind, and no kind is there that nothing writes."""

from __future__ import annotations

from pathlib import Path

import contextos
from contextos.contracts.entries.bodies import CONTROL_BODIES, INDEX_BODIES
from contextos.contracts.entries.kinds import KINDS
from docsgen.journal_kinds import kinds_table

ROOT = Path(contextos.__file__).parent
ROW = ("`tool.refused`", "effect", "derived", "`RefusedCall`", "runtime", "`action.tool_gateway`", "warn", "told")


def test_every_kind_has_a_row() -> None:
    rows = list(kinds_table())
    assert [row[0].strip("`") for row in rows] == [*KINDS, *INDEX_BODIES, *CONTROL_BODIES]
    assert ROW in rows


def test_every_kind_is_named_where_it_is_written() -> None:
    """In no module of contracts."""
    others = [one for one in ROOT.rglob("*.py") if one.relative_to(ROOT).parts[0] not in ("contracts",)]
    named = "\n".join(one.read_text("utf-8") for one in others)
    assert {kind for kind in KINDS if f'"{kind}"' not in named} == set()
