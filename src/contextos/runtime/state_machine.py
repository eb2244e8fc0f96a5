"""The run table: one dict, `state -> event -> state`. An event that it does not list is refused and changes nothing.

An event is the kind of a journal entry. If a verdict in the entry selects the next state, the event is `kind:verdict`.
The state of a run is the fold of its entries through `TABLE`. The diagram in the docs and the Hypothesis state machine
are generated from it.
Source: docs/design/contracts.md, "Run".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.envelopes.verdicts import End

START: Final = "new"
ENDS: Final = frozenset(get_args(End))

_STATES: Final = "received resolved choosing compiled open planning verifying executing waiting scoring"


def _build_table() -> dict[str, dict[str, str]]:
    """Return the run table: what the rows of all kinds say about each state."""
    table: dict[str, dict[str, str]] = {state: {} for state in (START, *_STATES.split(), *sorted(ENDS))}
    for kind, row in KINDS.items():
        for edge in row.moves.split():
            states, _, after = edge.partition(">")
            after, decided, verdict = after.partition(":")
            table |= {
                state: table[state] | {f"{kind}{decided}{verdict}": after or state} for state in states.split(",")
            }
    return table


TABLE: Final = _build_table()

DECIDED_BY_BODY: Final = {kind: row.decides for kind, row in KINDS.items() if row.decides}
"""The kinds whose body selects the next state, each with the member of the body that selects it."""


STILL: Final = frozenset(
    kind
    for kind in KINDS.keys() - DECIDED_BY_BODY.keys()
    if all(row.get(kind, state) == state for state, row in TABLE.items())
)
"""The kinds that do not change the state of a run."""


def event_of(kind: str, body: Mapping[str, Any]) -> str:
    """Return the event of a journal entry: its kind, followed by `:<verdict>` where the verdict selects the next
    state.
    """
    field = DECIDED_BY_BODY.get(kind)
    return f"{kind}:{body[field]}" if field else kind


def events(kind: str) -> list[str]:
    """Return every event that an entry of this kind can cause."""
    names = {name for row in TABLE.values() for name in row}
    return sorted(name for name in names if name == kind or name.startswith(f"{kind}:"))


def step(state: str, happened: str) -> str | None:
    """Return the next state of a run, or None if the event is not allowed in `state`."""
    return TABLE[state].get(happened)


def transition(state: str, kind: str, body: Mapping[str, Any]) -> str | None:
    """Return the next state of a run after an entry of this kind with this body, or None if it is not allowed."""
    return TABLE[state].get(event_of(kind, body) if kind in DECIDED_BY_BODY else kind)
