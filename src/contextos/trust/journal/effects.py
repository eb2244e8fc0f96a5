"""The rule that every end keeps: the outcome agrees with the effects, which the account of the run has.

Source: docs/adr/0060-outcome-agrees-with-effects.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from contextos.contracts.envelopes.verdicts import End


def end_contradiction(end: End, effects: Collection[Mapping[str, Any]], undone: tuple[str, str] | None) -> str | None:
    """Return why a run cannot end as `end` after these effects and with this undone write, or None if it can.

    A run that ends as denied had no effect. A run that ends as approved has done what it asked for last, and knows it.
    """
    unknown = next((effect for effect in effects if effect["state"] == "unknown"), None)
    if end == "completed":
        if unknown is not None:
            return f"it is not known whether `{unknown['capability_id']}` happened"
        if undone is not None:
            tool, reason = undone
            done_clause = f", and {_capability_names(effects)} was done" if effects else ""
            return f"the last call of `{tool}` was not done ({reason}){done_clause}"
        return None
    if end in ("escalated", "exhausted") or not effects:
        return None
    return f"it ends as {end}, and {_capability_names(effects)} had an effect"


def _capability_names(effects: Collection[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(str(effect["capability_id"]) for effect in effects))
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"`{name}`" for name in names[:3]) + rest
