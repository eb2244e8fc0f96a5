"""Every fault of a settings file is said at once, in the order of its lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.settings import Settings

WRONG = """\
packs = ["a", 3, 4]
stroe = "x.db"

[[adapters]]
path = "a:b"

[limits]
total_tokens = 0
max_tool_cals = -3
"""


def test_all_faults_are_named_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "contextos.toml").write_text(WRONG, "utf-8")
    with pytest.raises(InvalidSettings) as raised:
        Settings.read(tmp_path)
    said = [(one.pointer, one.detail.partition(":")[0]) for one in raised.value.problems]
    assert said == [
        ("/packs/1", "line 1"),
        ("/packs/2", "line 1"),
        ("/stroe", "line 2"),
        ("/adapters/0/digest", "line 4"),
        ("/limits/max_tool_calls", "line 7"),
        ("/limits/total_tokens", "line 8"),
        ("/limits/max_tool_cals", "line 9"),
    ]
