"""MCP servers that nobody here wrote are governed: drafted, published, bounded by a pack, approved, and their drift
found. `make mcp-servers` installs them from PyPI and npm at pinned versions and runs this.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import contextos
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.contracts.ports.outside import Adapter
from contextos.errors import InvalidArtifact
from contextos.testing import Person, in_memory
from contextos.workspace.adapter_files import draft_mcp, publish_adapter_file
from contextos.workspace.foreign_adapters import load_adapter_file
from tests.adopting import type_section
from tests.loopback import Answer, Asked, serving
from tests.npm import npm_folder

ROOT = Path(__file__).resolve().parents[2]
PYPI, SQLITE = ROOT / ".venv-mcp-servers", ROOT / ".venv-mcp-server-sqlite"

pytestmark = pytest.mark.skipif(not (SQLITE / "locked").exists(), reason="`make mcp-servers` installs the servers")

DIRECTORY = json.loads((ROOT / "examples" / "deploy_rollback" / "directory.json").read_text("utf-8"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "contextos.toml").write_text('unsafe = ["unsafe_local_directory", "unsafe_local_keys"]\n', "utf-8")
    (tmp_path / "adapters").mkdir()
    (tmp_path / "data").mkdir()
    return tmp_path


def published(
    workspace: Path,
    name: str,
    command: list[str],
    reads: list[str],
    *,
    connection: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Adapter:
    """The adapter of a server, after its draft was published as it is. `connection` has what is not only a command."""
    stated = {"reads": reads, "resources": [], "egress": [], "local": True, **more}
    reached = {"kind": "mcp", "command": command, "env": ["PATH"], **connection}
    file, rows = asyncio.run(draft_mcp(workspace, name, reached, **stated))
    assert {row["kind"] for row in rows if row["tool"] not in reads} <= {"write", ""}
    place = workspace / "adapters" / f"{name}.json"
    place.write_text(json.dumps(file), encoding="utf-8")
    pinned = publish_adapter_file(workspace, place)
    [adapter] = load_adapter_file(pinned["path"], pinned["digest"], root=workspace, authors=()).adapters
    return adapter


def drifted(workspace: Path, adapter: Any, tool: str) -> Any:
    """The same adapter, published when the tool had another definition."""
    place = workspace / "adapters" / f"{adapter.describe().adapter_id}.json"
    file = json.loads(place.read_text("utf-8"))
    file["operations"][tool]["digest"] = "sha256:" + "0" * 64
    place.write_text(json.dumps(file), encoding="utf-8")
    return load_adapter_file(place.relative_to(workspace).as_posix(), None, root=workspace, authors=()).adapters[0]


@contextmanager
def session(adapter: Any, permissions: dict[str, Any], *, egress: tuple[str, ...] = ()) -> Iterator[Any]:
    """A session of an agent under a pack that bounds the arguments; `ask` answers what a call waits for."""
    people = json.loads(json.dumps(DIRECTORY))
    for approver in people["acme"]["approvers"]:
        approver["keys"] = []
    name = adapter.describe().adapter_id
    pack = contextos.pack(
        f"acme.{name}",
        version="1.0.0",
        tenant="acme",
        tools=[adapter],
        who=["deployer"],
        approver="oncall",
        permissions={f"{name}.{tool}": {"arg_constraints": bounds} for tool, bounds in permissions.items()},
        egress=list(egress),
    )
    try:
        with in_memory(packs=[pack], directory=people, egress={"acme": egress}) as app:
            gate = app.gate(session="s", user="ana", token="tok_ana", agent="agt_deploy")
            yield app, gate
    finally:
        adapter.close()


def approved(app: Any, gate: Any, tool: str, args: dict[str, Any], *, call_id: str = "write") -> Any:
    """Call a write, see it wait, and call it again after a person approved exactly that."""
    assert isinstance(gate.call(tool, args, call_id=call_id), Waiting)
    app.call(Person("olga").answer, app, gate.view())
    return gate.call(tool, args, call_id=call_id)


def refused_as_drift(workspace: Path, adapter: Any, tool: str, args: dict[str, Any], **more: Any) -> None:
    name = adapter.describe().adapter_id
    with session(drifted(workspace, adapter, tool), {}, **more) as (_, gate):
        answer = gate.call(f"{name}.{tool}", args, call_id="1")
    assert isinstance(answer, Done), answer
    assert answer.error is not None
    assert answer.error.code == "definition_drift"
    assert answer.output == {"error": {"code": answer.error.code, "message": answer.error.message}}


def test_a_reader_of_the_readme_governs_the_filesystem_server_for_the_inspector(tmp_path: Path) -> None:
    programs = npm_folder() / "node_modules" / ".bin"
    installed = {name: programs / name for name in ("mcp-server-filesystem", "mcp-inspector")}
    # The Node of the same folder comes first: the inspector needs a new one.
    desk = type_section(tmp_path, installed, programs)
    assert (desk / "files" / "notes" / "plan.txt").read_text("utf-8") == "Repot the fern."
    assert not (desk / "files" / "budget.txt").exists()


def test_the_filesystem_server_of_npm_is_bounded_by_path(workspace: Path) -> None:
    (workspace / "data" / "a.txt").write_text("hello", encoding="utf-8")
    (workspace / "data" / "secret.key").write_text("s3cret", encoding="utf-8")
    data = str(workspace / "data")
    modules = npm_folder() / "node_modules"
    server = modules / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
    files = published(workspace, "files", [str(modules / ".bin" / "node"), str(server), data], ["read_text_file"])
    inside = {"path": {"pattern": rf"{data}/[a-z]+\.txt"}}
    with session(files, {"read_text_file": inside, "write_file": inside}) as (app, gate):
        read = gate.call("files.read_text_file", {"path": f"{data}/a.txt"}, call_id="1")
        assert isinstance(read, Done), read
        assert "hello" in json.dumps(read.output)
        key = gate.call("files.read_text_file", {"path": f"{data}/secret.key"}, call_id="2")
        assert isinstance(key, Refused), key
        outside = gate.call("files.write_file", {"path": f"{data}/../b.txt", "content": "x"}, call_id="3")
        assert isinstance(outside, Refused), outside
        written = approved(app, gate, "files.write_file", {"path": f"{data}/b.txt", "content": "agreed"})
        assert isinstance(written, Done), written
    assert (workspace / "data" / "b.txt").read_text("utf-8") == "agreed"
    assert not (workspace / "b.txt").exists()
    refused_as_drift(workspace, files, "read_text_file", {"path": f"{data}/a.txt"})


def test_the_git_server_of_pypi_is_bounded_by_repository(workspace: Path) -> None:
    repository = workspace / "data"
    for arguments in (["init", "-q"], ["config", "user.email", "a@b.example"], ["config", "user.name", "a"]):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    (repository / "a.txt").write_text("one", encoding="utf-8")
    subprocess.run(["git", "add", "a.txt"], cwd=repository, check=True)
    git = published(workspace, "git", [str(PYPI / "bin" / "mcp-server-git")], ["git_status", "git_log"])
    here = {"repo_path": {"enum": [str(repository)]}}
    with session(git, {"git_status": here, "git_commit": here}) as (app, gate):
        status = gate.call("git.git_status", {"repo_path": str(repository)}, call_id="1")
        assert isinstance(status, Done), status
        assert "a.txt" in json.dumps(status.output)
        elsewhere = gate.call("git.git_status", {"repo_path": str(ROOT)}, call_id="2")
        assert isinstance(elsewhere, Refused), elsewhere
        done = approved(app, gate, "git.git_commit", {"repo_path": str(repository), "message": "agreed"})
        assert isinstance(done, Done), done
    log = subprocess.run(["git", "log", "--format=%s"], cwd=repository, capture_output=True, text=True, check=True)
    assert log.stdout.split() == ["agreed"]
    refused_as_drift(workspace, git, "git_status", {"repo_path": str(repository)})


def test_the_sqlite_server_of_pypi_speaks_the_previous_revision_and_a_write_is_asked_about(workspace: Path) -> None:
    books = workspace / "data" / "books.db"
    with sqlite3.connect(books) as database:
        database.execute("CREATE TABLE t (n INTEGER)")
    command = [str(SQLITE / "bin" / "mcp-server-sqlite"), "--db-path", str(books)]
    sqlite = published(workspace, "sqlite", command, ["read_query"])
    only = {"query": {"pattern": "INSERT INTO t VALUES \\([0-9]+\\)"}}
    with session(sqlite, {"write_query": only}) as (app, gate):
        dropped = gate.call("sqlite.write_query", {"query": "DROP TABLE t"}, call_id="1")
        assert isinstance(dropped, Refused), dropped
        done = approved(app, gate, "sqlite.write_query", {"query": "INSERT INTO t VALUES (7)"})
        assert isinstance(done, Done), done
        read = gate.call("sqlite.read_query", {"query": "SELECT n FROM t"}, call_id="2")
        assert isinstance(read, Done), read
        assert "7" in json.dumps(read.output)
    refused_as_drift(workspace, sqlite, "read_query", {"query": "SELECT 1"})


def test_the_fetch_server_of_pypi_is_bounded_by_url(workspace: Path) -> None:
    def answer(asked: Asked) -> Answer:
        fetched.append(asked.path)
        return 200, b"a page", {"Content-Type": "text/plain"}

    fetched: list[str] = []
    with serving(answer) as address:
        endpoint = address.removeprefix("http://")
        command = [str(PYPI / "bin" / "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"]
        stated = {"local": False, "egress": [endpoint]}
        fetch = published(workspace, "fetch", command, ["fetch"], **stated)
        bounds = {"fetch": {"url": {"pattern": rf"{address}/public/[a-z]*"}}}
        with session(fetch, bounds, egress=(endpoint,)) as (_, gate):
            page = gate.call("fetch.fetch", {"url": f"{address}/public/a"}, call_id="1")
            assert isinstance(page, Done), page
            assert "a page" in json.dumps(page.output)
            for url in (f"{address}/private/a", "http://169.254.169.254/latest"):
                assert isinstance(gate.call("fetch.fetch", {"url": url}, call_id=url), Refused)
        assert fetched == ["/public/a"]
        again = load_adapter_file("adapters/fetch.json", None, root=workspace, authors=()).adapters[0]
        with pytest.raises(InvalidArtifact, match="the pack does not allow"), session(again, bounds):
            raise AssertionError("a pack without the endpoint is refused")
        refused_as_drift(workspace, fetch, "fetch", {"url": f"{address}/public/a"}, egress=(endpoint,))
    assert fetched == ["/public/a"]
