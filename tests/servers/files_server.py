"""A stand-in for the filesystem server of npm: `files_server.py FOLDER` speaks stdio, with three of its tools."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server import MCPServer
from pydantic import BaseModel


class Content(BaseModel):
    content: str


def main(folder: str) -> None:
    root, server = Path(folder), MCPServer("files")

    @server.tool()
    def read_text_file(path: str) -> Content:
        """Read a file."""
        return Content(content=(root / path).read_text("utf-8"))

    @server.tool()
    def write_file(path: str, content: str) -> Content:
        """Write a file."""
        (root / path).write_text(content, "utf-8")
        return Content(content=f"Successfully wrote to {path}")

    @server.tool()
    def move_file(source: str, destination: str) -> Content:
        """Move a file."""
        (root / source).rename(root / destination)
        return Content(content="moved")

    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
