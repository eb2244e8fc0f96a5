"""Finds the page of what a reference in a run names, as far as the reader's roles open it."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from contextos.contracts.refs import EVIDENCE, parse_ref
from contextos.service.operations.table import named_operation

PACK_PREFIX: Final = "ctxpack."


def reference_address(text: str, run_id: str, roles: frozenset[str]) -> str | None:
    """Return the page of what a reference names: the facts of a subject, the entries of a call, the policies in force,
    the selections of a run, the memories, the packs or the models. None for another text, or a page of other roles.
    """
    asked = f"/console/ask/{{}}?{urlencode({'run': run_id})}" if run_id else ""
    if text.startswith(PACK_PREFIX):
        return _page("packs.list", roles)
    if not EVIDENCE.fits(text):
        return None
    ref = parse_ref(text)
    if ref.scheme == "kg":
        return _page("facts.list", roles, subject=ref.subject)
    if ref.scheme == "tool":
        return f"/console/runs/{quote(run_id)}/entries?{urlencode({'call': ref.version})}" if run_id else None
    if ref.scheme == "policy":
        return _page("policies.list", roles)
    if ref.scheme == "artifact" and asked:
        return asked.format("slots.selections")
    return _page("memories.list", roles) if ref.scheme == "memory" else None


def _page(name: str, roles: frozenset[str], **fields: str) -> str | None:
    if roles.isdisjoint(named_operation(name).roles):
        return None
    return f"/console/ask/{name}" + (f"?{urlencode(fields)}" if fields else "")
