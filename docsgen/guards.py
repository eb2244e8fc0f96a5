"""The table of guards in the reference: what each does, in the words of the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from contextos.action.gateway.tool_gateway import GUARDS, OBSERVED


def guards_table() -> Iterator[tuple[str, str, str]]:
    """Yield a table row for each guard, in order: its name, what it does, and whether a pack can observe it."""
    for guard in GUARDS:
        said = " ".join((inspect.getdoc(guard) or "").split()).replace("|", "\\|")
        yield f"`{guard.__name__}`", said, "observed" if guard in OBSERVED else ""
