"""From an empty directory and a server that exists to a governed client: five commands, and the client's own entry."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from contextos.cli.demo.templates import copy_template
from tests.mcp_face import ENVIRONMENT, cli, with_client
from tests.servers.adapters import FOLDER

pytestmark = pytest.mark.slow

NOTE, SEND = "desk__read_note", "desk__send"
LETTER = {"to": "ana-of-the-desk", "text": "The report is ready."}


def adopted(folder: Path, *stated: str) -> Path:
    """A workspace that the commands of a newcomer made for the server of the help desk."""
    workspace, notes = folder / "w", folder / "notes"
    notes.mkdir()
    (notes / "today.txt").write_text("Water the plants.", "utf-8")
    server = shlex.join([sys.executable, str(FOLDER / "desk_server.py"), str(notes)])
    copy_template("empty", workspace)
    for words in (
        ["pack", "new", "acme.desk", "--who", "developer", "--local", *stated, "--from-mcp", server],
        ["adapters", "publish", "adapters/desk.json"],
        ["apply", "--by", "dev", "--key", str(workspace / "keys" / "dev.key")],
    ):
        done = cli(workspace, *words)
        assert done.returncode == 0, done.stderr
    return workspace


def client_of(workspace: Path, session: str = "monday") -> StdioServerParameters:
    """What the configuration of a client says."""
    who = ["--agent", "agt_dev", "--user", "dev", "--delegation", "tok_dev", "--session", session]
    words = ["-W", "error", "-m", "contextos.cli", "mcp", "serve", "-w", str(workspace), *who]
    return StdioServerParameters(command=sys.executable, args=words, env=ENVIRONMENT)


def sent(workspace: Path) -> str:
    place = workspace.parent / "notes" / "sent.txt"
    return place.read_text("utf-8") if place.exists() else ""


def approve(workspace: Path) -> None:
    shown = json.loads(cli(workspace, "runs", "show", "monday", "--json").stdout)
    words = [
        "monday",
        "--as",
        "lead",
        "--key",
        str(workspace / "keys" / "lead.key"),
        "--binding",
        shown["waiting"]["binding_digest"],
    ]
    assert cli(workspace, "approvals", "approve", *words).returncode == 5


@pytest.mark.requirement("P-FROM-MCP")
def test_a_drafted_pack_asks_about_every_call_and_the_same_call_has_its_answer_later(tmp_path: Path) -> None:
    workspace = adopted(tmp_path)

    async def play(client: Client) -> list[Any]:
        assert {one.name for one in (await client.list_tools()).tools} == {NOTE, SEND, "finish_session"}
        return [await client.call_tool(SEND, LETTER), await client.call_tool(NOTE, {"name": "today"})]

    first, second = with_client(client_of(workspace), play)
    assert first.is_error
    assert first.structured_content["status"] == "waiting"
    assert second.structured_content["this_call"] is False, "one question at a time"
    assert sent(workspace) == ""
    approve(workspace)

    async def again(client: Client) -> Any:
        return await client.call_tool(SEND, LETTER)

    done = with_client(client_of(workspace), again)
    assert not done.is_error, done.content
    assert sent(workspace) == "ana-of-the-desk: The report is ready.\n"


@pytest.mark.requirement("P-OBSERVED-MCP")
def test_a_pack_that_observes_lets_a_server_work_and_reports_what_it_would_have_asked(tmp_path: Path) -> None:
    workspace = adopted(tmp_path, "--observe", "--read", "read_note")

    async def play(client: Client) -> None:
        read = await client.call_tool(NOTE, {"name": "today"})
        assert "Water the plants." in read.content[0].text
        assert not (await client.call_tool(SEND, LETTER)).is_error
        assert not (await client.call_tool("finish_session", {"outcome": "approved"})).is_error

    with_client(client_of(workspace), play)
    assert sent(workspace) == "ana-of-the-desk: The report is ready.\n"
    said = cli(workspace, "pack", "observations", "--json")
    assert said.returncode == 0, said.stderr
    [asked] = json.loads(said.stdout)["rules"]
    assert (asked["verdict"], asked["count"]) == ("ask", 1)
    assert "GATE_ACME_DESK_DESK_SEND" in asked["rule"]
    record = json.loads(cli(workspace, "runs", "show", "monday", "--json").stdout)["record"]
    assert "unsafe_observed" in record["lineage"]["unsafe"]
