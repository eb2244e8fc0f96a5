"""Drafts an adapter file from an OpenAPI document of the file system."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contextos.contracts.encoding.codec import MAX_BYTES
from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput, Problem
from contextos.files import read_regular_file


def require_http() -> None:
    """Raise `InvalidInput` where the extra `http` is not installed."""
    if find_spec("httpx") is None:
        raise InvalidInput(Problem("", "missing_extra", "`httpx` is not installed", "install `contextos[http]`"))


def draft_openapi_file(
    name: str,
    document: Path,
    *,
    server: str,
    internal: bool,
    only: Collection[str],
    reads: Collection[str],
    bearer_env: str,
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return the adapter file drafted from a document, and a row for each operation, also for each refused one.

    Raises:
        InvalidInput: the document cannot be read, or no operation of it can be drafted with these arguments.
    """
    require_http()
    from contextos.adapters.foreign.adapter_file import ADAPTER_FILE_FORMAT
    from contextos.adapters.foreign.drafting import noted
    from contextos.adapters.openapi.document import MAX_OPENAPI_BYTES
    from contextos.adapters.openapi.draft import draft_openapi

    try:
        raw = read_regular_file(document, MAX_OPENAPI_BYTES)
    except OSError as error:
        detail = f"`{displayed(document)[:300]}` cannot be read: {(error.strerror or str(error)).lower()}"
        raise InvalidInput(Problem("", "unreadable", detail, "check the path")) from None
    draft = draft_openapi(name, raw, server=server, internal=internal, only=only, reads=reads, bearer_env=bearer_env)
    content = {"format": ADAPTER_FILE_FORMAT, **draft.to_json()}
    if len(canonical(content)) > MAX_BYTES // 2:
        detail = f"{len(draft.operations)} operations are more than one adapter file holds"
        raise InvalidInput(Problem("", "too_large", detail, "name those that are needed with `--only`"))
    rows = []
    for tool in draft.definition.capabilities:
        basis = "stated as a read" if tool.kind == "read" else "strictest: nothing is known of it"
        reason = noted(basis, draft.notes.get(tool.name, ()))
        rows.append({"tool": draft.named[tool.name], "kind": tool.kind, "mode": tool.approval_mode, "why": reason})
    rows += [{"tool": item.name, "kind": "-", "mode": "left out", "why": item.reason} for item in draft.refused]
    return content, rows
