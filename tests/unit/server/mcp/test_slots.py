"""`context_resolve`, called by a real MCP client: in memory, over stdio, and over HTTP behind its token."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from contextos.cli import run_command_line
from contextos.contracts.envelopes.artifacts import ExtensionManifest
from contextos.errors import InvalidSettings
from contextos.server.mcp.slots import slots_server
from contextos.server.serving import listen, require_token
from contextos.store.sqlite.stores import SqliteStores
from contextos.workspace.settings import Settings
from contextos_sim.memory.stores import MemoryStores
from tests.agentspec.planted import good
from tests.slots import CuratedArtifacts, actor, complete

ROOT = Path(__file__).resolve().parents[4]
ICP = "@cinatra-ai/marketing-icp-artifact"
TOKEN = "a-token-that-is-long-enough-to-be-one"


async def fill(repository: CuratedArtifacts) -> None:
    await repository.register(ExtensionManifest(extension=ICP, satisfies=()))
    await repository.register(ExtensionManifest(extension="@acme/b2b-icp", satisfies=(ICP,)))
    await complete(repository, "mine", ICP, owner_level="user", owner_id="ann", visibility="owner")
    await complete(repository, "all", "@acme/b2b-icp")
    await complete(repository, "project", ICP, visibility="project:launch")
    await complete(repository, "secret", ICP, visibility="owner", owner_level="user", owner_id="bob")


@pytest.fixture
def repository() -> CuratedArtifacts:
    made: CuratedArtifacts = MemoryStores().artifacts("tenant_acme")
    asyncio.run(fill(made))
    return made


def arguments(**changes: Any) -> dict[str, Any]:
    return {"parentAgentOas": good()[0], "slotId": "offeringContext"} | changes


def ask(server: Any, given: dict[str, Any], name: str = "context_resolve") -> Any:
    async def inside() -> Any:
        async with Client(server) as client:
            return await client.call_tool(name, given)

    return asyncio.run(inside())


def artifacts_in(result: Any) -> list[str]:
    assert not result.is_error, result.content
    return [ref["artifactId"] for ref in result.structured_content["refs"]]


@pytest.mark.requirement("W-MCP")
def test_a_slot_resolves_to_refs_that_the_actor_may_see(repository: CuratedArtifacts) -> None:
    result = ask(slots_server(actor(), repository, repository), arguments())
    assert artifacts_in(result) == ["mine", "all"]
    assert result.structured_content.keys() == {"slotId", "resolutionMode", "refs"}
    assert json.loads(result.content[0].text) == result.structured_content
    assert result.structured_content["refs"][1]["extension"] == "@acme/b2b-icp"


def test_a_document_may_come_as_text(repository: CuratedArtifacts) -> None:
    server = slots_server(actor(), repository, repository)
    assert artifacts_in(ask(server, arguments(parentAgentOas=json.dumps(good()[0])))) == ["mine", "all"]


def test_a_project_of_the_actor_shows_its_own_and_a_foreign_one_nothing(repository: CuratedArtifacts) -> None:
    server = slots_server(actor(), repository, repository)
    assert artifacts_in(ask(server, arguments(projectId="launch"))) == ["project"]
    assert artifacts_in(ask(server, arguments(projectId="theirs"))) == []


def twice() -> dict[str, Any]:
    document, _ = good()
    document["metadata"]["cinatra"]["contextSlots"] *= 2
    return document


@pytest.mark.requirement("W-MCP")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (arguments(installedExtensions=[{"extension": "@acme/x", "satisfies": [ICP]}]), "installedExtensions"),
        (arguments(actor={"principal_id": "bob"}), "actor"),
        (arguments(slotId="voiceContext"), "no slot `voiceContext`"),
        (arguments(slotId=""), "slotId"),
        (arguments(projectId=""), "projectId"),
        (arguments(projectId=None), "projectId"),
        (arguments(parentAgentOas=twice()), "declared twice"),
        (arguments(parentAgentOas=[1]), "no slot"),
        (arguments(parentAgentOas=None), "no slot"),
        (arguments(parentAgentOas="a: [\n"), "neither JSON nor YAML"),
        ({"slotId": "offeringContext"}, "parentAgentOas"),
        ({}, "parentAgentOas"),
    ],
)
def test_a_call_that_does_not_hold_is_refused_with_the_reason(
    repository: CuratedArtifacts, given: dict[str, Any], said: str
) -> None:
    result = ask(slots_server(actor(), repository, repository), given)
    assert result.is_error
    assert said in result.content[0].text
    assert result.structured_content is None


def test_an_actor_without_an_organisation_is_refused_before_anything_is_read(repository: CuratedArtifacts) -> None:
    result = ask(slots_server(actor(organization_id=None), repository, repository), {})
    assert result.is_error
    assert "no active organization" in result.content[0].text


def test_another_tool_is_not_there(repository: CuratedArtifacts) -> None:
    assert ask(slots_server(actor(), repository, repository), {}, name="context_finalize").is_error


@pytest.mark.requirement("W-MCP")
def test_nothing_is_written(repository: CuratedArtifacts) -> None:
    class ReadOnly:
        """Both ports, of which only the reading ones are there."""

        candidates, extensions = repository.candidates, repository.extensions

    read_only: Any = ReadOnly()
    assert artifacts_in(ask(slots_server(actor(), read_only, read_only), arguments())) == ["mine", "all"]


def test_the_tool_says_that_it_only_reads_and_takes_no_other_field(repository: CuratedArtifacts) -> None:
    async def listed() -> Any:
        async with Client(slots_server(actor(), repository, repository)) as client:
            return (await client.list_tools()).tools

    [tool] = asyncio.run(listed())
    assert tool.annotations.read_only_hint
    assert tool.input_schema["additionalProperties"] is False
    assert tool.input_schema["required"] == ["parentAgentOas", "slotId"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of the demo with artifacts in it, and who asks."""
    path = tmp_path_factory.mktemp("served") / "shop"
    assert run_command_line(["demo", "--yes", "--keep", str(path)]) == 0
    settings = Settings.read(path)
    stores = SqliteStores(settings.workspace / settings.store)
    [tenant] = json.loads((path / "directory.json").read_text("utf-8"))
    asyncio.run(fill(stores.artifacts(tenant)))
    stores.close()
    (path / "ann.json").write_text(actor().model_dump_json(), encoding="utf-8")
    (path / "token").touch(0o600)
    (path / "token").write_text(TOKEN + "\n", encoding="utf-8")
    return path


def command(workspace: Path, *more: str) -> list[str]:
    words = ["slots", "serve", "-w", str(workspace), "--actor", str(workspace / "ann.json"), *more]
    return ["-m", "contextos.cli", *words]


def environment() -> dict[str, str]:
    """As it is in the test: at import the folder of the witnesses is not set yet."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@pytest.mark.requirement("W-MCP")
def test_over_stdio_the_command_serves_a_real_client(workspace: Path) -> None:
    started = StdioServerParameters(command=sys.executable, args=command(workspace), env=environment())
    assert artifacts_in(ask(started, arguments())) == ["mine", "all"]


@contextmanager
def served(workspace: Path, address: str) -> Iterator[str]:
    """The address of a server that runs as its own process."""
    words = [sys.executable, *command(workspace, "--http", address, "--token-file", str(workspace / "token"))]
    process = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("serving http://127.0.0."), line + process.stderr.read()
        yield line.split()[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


async def ask_over_http(url: str) -> Any:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as carrying,
        Client(streamable_http_client(url, http_client=carrying)) as client,
    ):
        return await client.call_tool("context_resolve", arguments())


@pytest.mark.requirement("W-MCP")
@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.0.0.2:0"])
def test_over_http_the_token_opens_and_nothing_else_does(workspace: Path, address: str) -> None:
    with served(workspace, address) as url:
        assert artifacts_in(asyncio.run(ask_over_http(url))) == ["mine", "all"]
        for headers in ({}, {"Authorization": "Bearer wrong-but-long-enough-to-be-one"}, {"Authorization": TOKEN}):
            assert httpx2.post(url, headers=headers, json={}).status_code == 401
        twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
        assert httpx2.post(url, headers=twice, json={}).json()["code"] == "header_twice"
        for header, value, status in (("Host", "evil.example", 421), ("Origin", "http://evil.example", 403)):
            # A page whose name was bound to this address, and a page of somebody else.
            elsewhere = {"Authorization": f"Bearer {TOKEN}", header: value}
            assert httpx2.post(url, headers=elsewhere, json={}).status_code == status


ELSEWHERE = ["0.0.0.0:0", "192.0.2.1:80", "[::]:0", "127.0.0.1", "127.0.0.1:http", "a:1", ":99999"]


@pytest.mark.parametrize("address", ELSEWHERE)
def test_an_address_that_others_can_reach_or_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidSettings, match="cannot serve on"):
        listen(address)


def test_a_client_that_comes_before_the_server_runs_waits_and_is_served() -> None:
    with listen("127.0.0.1:0") as bound, socket.create_connection(bound.getsockname()) as early:
        early.sendall(b"x")
        served, _ = bound.accept()
        with served:
            assert served.recv(1) == b"x"


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidSettings, match="in use"):
            listen(f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_short_token_does_not_start() -> None:
    with pytest.raises(InvalidSettings, match="fewer than 20 characters"):
        require_token(None, "secret")  # type: ignore[arg-type]


def test_an_actor_that_does_not_hold_is_said_with_its_file(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bob.json").write_text('{"principal_id": "bob", "admin": true}')
    assert run_command_line(["slots", "serve", "-w", str(workspace), "--actor", str(tmp_path / "bob.json")]) == 2
    assert "bob.json" in capsys.readouterr().err
