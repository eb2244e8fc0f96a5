"""`KINDS`: the row of every kind of entry that a run can have."""

from __future__ import annotations

from typing import Final

from contextos.contracts.entries import of_context, of_decision, of_effect, of_run
from contextos.contracts.entries.row import Kind

KINDS: Final[dict[str, Kind]] = {
    **of_run.RUN_KINDS,
    **of_context.CONTEXT_KINDS,
    **of_decision.DECISION_KINDS,
    **of_effect.EFFECT_KINDS,
}

UNSIGNED_KINDS: Final = frozenset(kind for kind, row in KINDS.items() if row.appended)
"""Entries that are appended outside the loop, until the loop's next commit signs over them. Approval answers,
settlements and selections for slots are signed by a person's key; a cancel request, and that a question is asked again,
count with their sealed act.
"""
