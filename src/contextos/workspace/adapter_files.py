"""Adapter files of a workspace: draft one from what a server lists, publish a reviewed one, and list what is active.

To publish is to write the digest of the file to `contextos.toml`; a deployment that is opened afterwards has it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from contextos.action.foreign_code import describe_adapter
from contextos.adapters.foreign.adapter_file import PinnedAdapter, read_adapter_file
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.jcs import digest as digest_of
from contextos.errors import InvalidInput, InvalidSettings, Problem, Unavailable
from contextos.files import read_regular_file, replace_file, why_unwritten
from contextos.trust.seal import MAX_ENVELOPE_BYTES
from contextos.workspace.foreign_adapters import load_adapter_file
from contextos.workspace.given import adapters_of
from contextos.workspace.settings import MAX_SETTINGS_BYTES, SETTINGS_FILE, Settings
from contextos.workspace.settings.calls import is_adapter_file

_BLOCK: Final = re.compile(r"^\[\[adapters\]\][^\S\n]*\n(?:(?!\[(?!adapters\.)).*(?:\n|\Z))*", re.MULTILINE)
_DIGEST: Final = re.compile(r"""^digest[ \t]*=[ \t]*["'][^"'\n]*["']""", re.MULTILINE)


async def draft_mcp(
    workspace: Path,
    name: str,
    connection: Mapping[str, Any],
    *,
    reads: Sequence[str],
    resources: Sequence[str],
    egress: Sequence[str],
    local: bool,
    only: Sequence[str] = (),
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Ask an MCP server for its tools. Return the draft of its adapter file and a row for each tool; if `only` names
    tools, for these alone.

    Raises:
        InvalidInput: the connection is not valid, a stated name or endpoint does not fit, or no tool can be used.
        Unavailable: the server does not answer.
    """
    from contextos.adapters.mcp.adapter import listed_tools, require_mcp
    from contextos.adapters.mcp.definitions import McpConnection
    from contextos.adapters.mcp.drafting import Stated, draft_adapter

    require_mcp()
    server = parse(McpConnection, dict(connection))
    server.check()
    tools = await listed_tools(server, workspace)
    file, rows = draft_adapter(name, server, tools, Stated(reads, resources, egress, local, only))
    # A file that cannot be written as JSON cannot be reviewed either.
    canonical(file)
    return file, [asdict(row) for row in rows]


def require_reach(url: str, egress: Sequence[str], *, local: bool) -> None:
    """Raise `InvalidInput` where nobody stated which endpoints an MCP server reaches: no pack with its tools could be
    published. `url` is "" for a server that is started as a command.
    """
    from contextos.adapters.foreign.server_url import is_remote_url

    if not local and not egress and not (url and is_remote_url(url)):
        detail = "nobody stated what the server reaches"
        raise InvalidInput(Problem("", "no_egress_list", detail, "add `--local` or `--egress HOST:PORT`"))


async def draft_a2a(
    name: str, url: str, *, internal: bool, token_env: str, reads: Sequence[str]
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Ask an A2A agent for its card. Return the draft of its adapter file and a row for each skill.

    Raises:
        InvalidInput: the URL is not valid, what was stated does not fit, or no skill can be used.
        Unavailable: the agent does not answer.
    """
    from contextos.adapters.a2a.adapter import require_a2a
    from contextos.adapters.a2a.definitions import A2aConnection
    from contextos.adapters.a2a.drafting import card_url, draft_agent

    require_a2a()
    from contextos.adapters.a2a.connection import AgentConnection

    place = card_url(url)
    options = {"internal": internal, **({"token_env": token_env} if token_env else {})}
    agent = parse(A2aConnection, {"kind": "a2a", "url": place, "card_url": place, **options})
    agent.check()
    file, rows = draft_agent(name, agent, await AgentConnection(agent, os.environ, {}).card(), reads)
    canonical(file)
    return file, [asdict(row) for row in rows]


def refuse_adapter_content(raw: bytes) -> None:
    """Refuse bytes that are not a whole adapter file. Raises `InvalidInput`."""
    read_adapter_file(raw)


def publish_adapter_file(workspace: Path, file: Path) -> dict[str, str]:
    """Check an adapter file, and write its path and digest to the settings. Return the path and the digest.

    Raises:
        InvalidInput: the file or the settings are not valid, or the settings cannot be edited.
    """
    root = workspace.resolve()
    place = (file if file.is_absolute() or file.exists() else root / file).resolve()
    if not place.is_relative_to(root) or place.suffix != ".json":
        detail = f"`{displayed(file)}` is not a `.json` file of the workspace"
        raise InvalidInput(Problem("", "outside_root", detail, "move it there, for example into `adapters`"))
    path = place.relative_to(root).as_posix()
    settings = Settings.read(workspace)
    names = {setting.path: next(iter(setting.tenants.values()), None) for setting in settings.adapters}
    load = partial(load_adapter_file, root=root, authors=settings.adapter_authors)
    [adapter] = load(path, None, names=names.get(path)).adapters
    digest = digest_of(read_regular_file(place, MAX_ENVELOPE_BYTES))
    load(path, digest, names=names.get(path))
    own_id = adapter.describe().adapter_id
    for setting in settings.adapters:
        if is_adapter_file(setting) and setting.path != path:
            [other] = load(setting.path, None, names=names[setting.path]).adapters
            if other.describe().adapter_id == own_id:
                detail = f"`{setting.path[:200]}` has the id `{own_id}` too"
                raise InvalidInput(Problem("/definition/adapter_id", "duplicate", detail, "give it another id"))
    edit_settings(workspace, {(path, path): digest})
    return {"path": path, "digest": digest}


async def list_adapters(workspace: Path) -> list[dict[str, Any]]:
    """Return each adapter of the settings: its id, kind, egress and tools, and the tools whose definition changed. Each
    tool has its class, how it authenticates, and for how many seconds it may be called on an older list of tools.

    `state` is `matches`, `changed` or `unavailable` where the server is asked, and `not asked` for a server that
    answers only users. It is `pinned file` for another adapter of a file, and `pinned code` for a function adapter.

    Raises:
        InvalidSettings: an adapter does not load.
    """
    rows = []
    settings = Settings.read(workspace)
    for setting, group in zip(settings.adapters, adapters_of(settings), strict=True):
        for adapter in group.adapters:
            definition = describe_adapter(type(adapter).__name__, adapter)
            state, drifted_tools = "pinned file" if is_adapter_file(setting) else "pinned code", frozenset[str]()
            auth = {tool.name: tool.auth.to_json() for tool in definition.capabilities}
            if isinstance(adapter, PinnedAdapter) and all(scheme["mode"] == "exchange" for scheme in auth.values()):
                state = "not asked"
            elif isinstance(adapter, PinnedAdapter):
                try:
                    drifted_tools = await adapter.drifted()
                    state = "changed" if drifted_tools else "matches"
                except Unavailable:
                    state = "unavailable"
            rows.append(
                {
                    "adapter_id": definition.adapter_id,
                    "kind": definition.type,
                    "egress": list(definition.egress),
                    "tools": list(auth),
                    "classes": {tool.name: tool.capability_class for tool in definition.capabilities},
                    "auth": auth,
                    "definition_max_age_s": dict(getattr(adapter, "definition_max_age_s", {})),
                    "state": state,
                    "drifted": sorted(drifted_tools),
                }
            )
            if group.made and hasattr(adapter, "close"):
                adapter.close()
    return rows


def edit_settings(workspace: Path, digests: Mapping[tuple[str, str], str]) -> None:
    """Set digests of adapters in `contextos.toml`, or add an adapter; nothing else of the file changes. The key of a
    digest is the path of its adapter and the path of the file that has the digest.

    Raises:
        InvalidSettings: the settings file cannot be edited in this way.
    """
    place = (workspace / SETTINGS_FILE).resolve()
    text = read_regular_file(place, MAX_SETTINGS_BYTES).decode()
    entries = tomllib.loads(text).get("adapters", [])
    expected = [_with_digests(entry, digests) for entry in entries]
    new_text = _BLOCK.sub(lambda block: _edit_block(block[0], digests), text)
    paths = {entry.get("path") for entry in entries}
    for (path, _), digest in digests.items():
        if path not in paths:
            expected.append({"path": path, "digest": digest})
            new_text = f'{new_text.rstrip()}\n\n[[adapters]]\npath = "{path}"\ndigest = "{digest}"\n'
    try:
        fits = tomllib.loads(new_text) == tomllib.loads(text) | {"adapters": expected}
    except tomllib.TOMLDecodeError:
        fits = False
    if not fits:
        edits = "; ".join(f'"{path}" of "{entry}" = "{digest}"' for (entry, path), digest in digests.items())
        remedy = f"write in the entry of `[[adapters]]` by hand: {edits}"
        raise InvalidSettings(Problem("/adapters", "not_editable", f"`{SETTINGS_FILE}` cannot be edited", remedy))
    try:
        mode = place.stat().st_mode & 0o777
        replace_file(place, new_text.encode())
        os.chmod(place, mode)
    except OSError as error:
        detail = f"`{SETTINGS_FILE}` cannot be written: {why_unwritten(error)}"
        raise InvalidSettings(Problem("/adapters", "unwritable", detail, "check its permissions")) from None


def _with_digests(entry: Mapping[str, Any], digests: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return an entry of `[[adapters]]` with its new digests."""
    path = entry["path"]
    pins = {"digest": digests.get((path, path.partition(":")[0]), entry["digest"])}
    if files := entry.get("files"):
        pins["files"] = {name: digests.get((path, name), digest) for name, digest in files.items()}
    return {**entry, **pins}


def _edit_block(block: str, digests: Mapping[tuple[str, str], str]) -> str:
    """Return the text of an entry with its new digests, each in the place of the digest that it replaces."""
    entry = tomllib.loads(block)["adapters"][0]
    new_entry = _with_digests(entry, digests)
    if new_entry["digest"] != entry["digest"]:
        block = _DIGEST.sub(f'digest = "{new_entry["digest"]}"', block)
    for name, digest in new_entry.get("files", {}).items():
        pattern = rf"""(["']{re.escape(name)}["'][ \t]*=[ \t]*)["'][^"'\n]*["']"""
        block = re.sub(pattern, rf'\g<1>"{digest}"', block)
    return block
