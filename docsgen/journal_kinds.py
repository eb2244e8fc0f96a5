"""The table of journal kinds in the reference: what the row of each kind says."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, get_args

from contextos.contracts.entries.bodies import CONTROL_BODIES, INDEX_BODIES
from contextos.contracts.entries.kinds import KINDS


def kinds_table() -> Iterator[tuple[str, ...]]:
    """Yield a table row for each kind: kind, stream or ledger, recorded or derived, body, author, component, event and
    whether it is told.
    """
    for kind, row in KINDS.items():
        how, author = "recorded" if row.recorded else "derived", row.author.replace("*", "any process")
        components = dict.fromkeys(one for one in (row.component, *row.component_by_key.values()) if one)
        shown = ", ".join(f"`{one}`" for one in components) or "the run"
        told = "told" if row.told else ""
        yield f"`{kind}`", row.ledger, how, f"`{_type_name(row.body)}`", author, shown, row.severity or "", told
    for stream, bodies in (("index", INDEX_BODIES), ("control", CONTROL_BODIES)):
        for kind, body in bodies.items():
            yield f"`{kind}`", f"stream `{stream}`", "", f"`{_type_name(body)}`", "", "", "", ""


def _type_name(body: Any) -> str:
    if isinstance(body, types.UnionType):
        return " or ".join(_type_name(one) for one in get_args(body))
    return body.__name__ if isinstance(body, type) and not get_args(body) else str(body).replace("contextos.", "")
