"""The outreach agent's own tool: it drafts an email from the pinned context. It needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def draft_email(recipient: str, contextSlotBindings: Sequence[dict[str, Any]]) -> str:
    """Return a draft that lists the artifacts it was written from, from narrow to broad."""
    refs = [ref for binding in contextSlotBindings for ref in binding["refs"]]
    lines = [f"- {ref['artifactId']} ({ref['sourceScope']})" for ref in refs] or ["- nothing"]
    return "\n".join([f"To: {recipient}", "", "Written from:", *lines])
