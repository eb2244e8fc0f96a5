"""The README's second screen in the normal suite: its text is typed, with stand-ins for what npm installs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.adopting import FOLDER, SECTION, commands, in_python, type_section
from tests.docs.pages import ROOT
from tests.mcp_face import cli
from tests.npm import PINNED

pytestmark = pytest.mark.slow


def test_a_reader_puts_a_stock_server_behind_the_gate_of_a_stock_client(tmp_path: Path) -> None:
    server = in_python(tmp_path / "stand-ins" / "mcp-server-filesystem", FOLDER / "files_server.py")
    in_python(tmp_path / "stand-ins" / "npx", FOLDER / "inspector.py")
    desk = type_section(tmp_path, {server.name: server}, server.parent)
    assert sorted(one.name for one in (desk / "files").rglob("*.txt")) == ["plan.txt", "today.txt"]
    shown = json.loads(cli(desk, "runs", "show", "monday", "--json").stdout)
    kinds = [entry["kind"] for entry in shown["entries"]]
    assert kinds.index("approval.answered") < len(kinds) - kinds[::-1].index("tool.dispatching")
    assert kinds.count("tool.dispatching") == 2, "one read, one write"
    assert cli(desk, "verify").returncode == 0


def test_the_section_installs_the_packages_that_are_pinned_for_the_tests() -> None:
    known = {one.rpartition("@")[0] for one in PINNED}
    [installed] = [one.command for one in commands() if one.command.startswith("npm ")]
    assert (
        set(installed.split()[3:])
        == {"@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/inspector"}
        <= known
    )


def test_the_stock_programs_run_the_same_text() -> None:
    stock = (ROOT / "tests" / "e2e" / "test_stock_mcp_servers.py").read_text("utf-8")
    assert "type_section(" in stock, "`make mcp-servers` types the section of the README"
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^mcp-servers:.*\n\t.*tests/e2e/test_stock_mcp_servers\.py", makefile, re.MULTILINE)
    assert "mcp-inspector --cli --config client.json" in SECTION
