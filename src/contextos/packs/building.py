"""`pack`: declare a pack in Python, with the tools themselves; `read_pack`: read it from a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from contextos.contracts.encoding.yaml_text import lines_in
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ports.outside import Adapter
from contextos.errors import InvalidArtifact, InvalidInput, InvalidTool, Problem
from contextos.files import read_regular_file
from contextos.packs.declaration import PackDeclaration
from contextos.packs.expansion import Expansion, expand
from contextos.packs.facts import FactExpression
from contextos.packs.reading import parse_declaration, read_declaration
from contextos.packs.tools.declared import Tool
from contextos.packs.tools.toolset import grouped

MAX_PACK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DeclaredPack:
    """A pack that was declared in Python: its short form, its expansion, and the adapters of its tools."""

    declaration: PackDeclaration
    expansion: Expansion
    adapters: tuple[Adapter, ...]


def pack(
    name: str, *, version: str, tenant: str, tools: Iterable[Tool[Any, Any] | Adapter], **fields: Any
) -> DeclaredPack:
    """Declare a pack and expand it.

    `tools` are decorated functions, which are grouped by their module, and adapters such as toolsets. `fields` are
    those of `PackDeclaration`, as in `pack.yaml`; a condition is a text, or made with `contextos.fact`.

    Raises:
        InvalidTool: something in `tools` is not a tool, or two adapters have the same id.
        InvalidEnvelope: a field is unknown or of another type.
        InvalidArtifact: as `expand`.
    """
    adapters = _collect_adapters(tools)
    declaration = parse_declaration(_to_json({"name": name, "version": version, "tenant": tenant, **fields}))
    return DeclaredPack(declaration, expand(declaration, [adapter.describe() for adapter in adapters]), adapters)


def _collect_adapters(tools: Iterable[Tool[Any, Any] | Adapter]) -> tuple[Adapter, ...]:
    functions: list[Tool[Any, Any]] = []
    adapters: list[Adapter] = []
    for tool in tools:
        if not isinstance(tool, Tool) and hasattr(tool, "describe"):
            adapters.append(tool)
        else:
            functions.append(cast(Tool[Any, Any], tool))  # `grouped` refuses what is not a tool
    adapters += grouped(functions)
    ids = [adapter.describe().adapter_id for adapter in adapters]
    duplicates = sorted({adapter_id for adapter_id in ids if ids.count(adapter_id) > 1})
    if duplicates:
        detail = f"two adapters have the id `{duplicates[0]}`"
        raise InvalidTool(Problem("/tools", "duplicate", detail, "name one with `contextos.toolset`"))
    return tuple(adapters)


def _to_json(value: Any) -> Any:
    """Return the value of a field as JSON: conditions as text, tuples as lists."""
    if isinstance(value, FactExpression):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value


def read_pack(path: Path | str, *, tools: Iterable[Tool[Any, Any] | Adapter]) -> DeclaredPack:
    """Read a pack from a `pack.yaml` and expand it for `tools`, as `pack` does.

    Raises:
        InvalidInput: the file cannot be read; else as `pack`.
    """
    adapters = _collect_adapters(tools)
    try:
        raw = read_regular_file(Path(path), MAX_PACK_BYTES)
    except OSError as error:
        detail = f"`{Path(path).name}` cannot be read: {(error.strerror or str(error)).lower()}"
        raise InvalidInput(Problem("", "unreadable", detail, "name a file that is there")) from None
    with lines_in(raw):
        declaration = read_declaration(raw)
        expansion = expand(declaration, [adapter.describe() for adapter in adapters])
    return DeclaredPack(declaration, replace(expansion, source=raw), adapters)


def expand_file(raw: bytes, name: str, definitions: Iterable[AdapterDefinition]) -> Expansion:
    """Return the expansion of a pack in the file `name`, whose content is `raw`, for the tools of a whole workspace.

    Raises:
        InvalidInput: as `expand_content`; names the file.
    """
    try:
        return expand_content(raw, definitions)
    except InvalidInput as error:
        raise type(error)(*error.in_file(name)) from None


def expand_content(raw: bytes, definitions: Iterable[AdapterDefinition]) -> Expansion:
    """Return the expansion of a short form, for the tools of a whole workspace.

    Raises:
        InvalidInput: the content is not a declaration of a pack, names no tools, or as `expand`.
    """
    with lines_in(raw):
        declaration = read_declaration(raw)
        if not declaration.tools:
            detail = "the file names no tools, and a workspace can have some that the pack is not about"
            raise InvalidArtifact(Problem("/tools", "no_tools", detail, "list them in `tools`"))
        return replace(expand(declaration, definitions), source=raw)
