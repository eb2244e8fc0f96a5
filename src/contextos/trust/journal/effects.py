"""What a run did to other systems, and the rule that every end keeps: the outcome agrees with the effects.

All is folded from the journal, so a replay comes to the same. An effect whose outcome nobody knows counts as one that
can have happened.
Source: docs/adr/0060-outcome-agrees-with-effects.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from contextos.contracts.envelopes.verdicts import End
from contextos.contracts.journal import Logged


def effects_of(run_id: str, log: Sequence[Logged]) -> list[dict[str, Any]]:
    """Return the effects of a run in the order of the calls. The last word about a call counts."""
    return list(_effects_by_call(run_id, log).values())


def _effects_by_call(run_id: str, log: Sequence[Logged]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in log:
        call = "/".join(entry.key.split("/")[:2])
        if entry.kind == "effect.settled" and call in found:
            settled = {"state": "happened", "mutations": list(entry.body["mutations"])}
            found = found | {call: found[call] | settled} if entry.body["happened"] else _without(found, call)
        elif entry.kind in ("tool.returned", "tool.refused"):
            envelope = entry.body["envelope"]
            made_by = envelope["metadata"].get("made_by")
            happened = made_by is not None or bool(entry.body.get("happened"))
            if not happened and entry.body.get("outcome") != "unknown":
                found = _without(found, call) if entry.kind == "tool.returned" else found
                continue
            if made_by and any(one["tool_call_id"] == made_by["tool_call_id"] for one in found.values()):
                continue  # the run itself did it, before it was reopened
            found[call] = {
                "step_id": call.partition("/")[2],
                "capability_id": envelope["capability_id"],
                "tool_call_id": made_by["tool_call_id"] if made_by else envelope["tool_call_id"],
                "state": "happened" if happened else "unknown",
                "made_by": made_by["run_id"] if made_by else run_id,
                "mutations": list(envelope["mutations"]),
            }
    return found


def _without(found: Mapping[str, dict[str, Any]], call: str) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in found.items() if name != call}


def undone_call(log: Sequence[Logged], tools: Set[str]) -> tuple[str, str] | None:
    """Return the last call of one of `tools` that the agent of a session asked for and that was not done, if no later
    call of its tool was: the tool, and why.
    """
    asked: dict[str, str] = {}
    undone: dict[str, str] = {}
    made = _effects_by_call("", log)
    for entry in log:
        if entry.kind == "call.asked" and entry.body["tool"] in tools:
            asked[entry.key] = entry.body["tool"]
        elif entry.kind == "call.answered" and entry.key in asked:
            undone.pop(asked[entry.key], None)
            if entry.body["status"] != "done" and entry.body["step"] not in made:
                why = next((one["detail"] for one in entry.body["failures"]), entry.body["status"])
                undone[asked[entry.key]] = why
    return next(reversed(undone.items()), None)


def end_contradiction(end: End, effects: Sequence[Mapping[str, Any]], undone: tuple[str, str] | None) -> str | None:
    """Return why a run cannot end as `end` after these effects and with this undone write, or None if it can.

    What ends as denied had no effect. What ends as approved has done what it asked for last, and knows what it did.
    """
    unknown = next((one for one in effects if one["state"] == "unknown"), None)
    if end == "completed":
        if unknown is not None:
            return f"it is not known whether `{unknown['capability_id']}` happened"
        if undone is not None:
            tool, why = undone
            done = f", and {_named(effects)} was done" if effects else ""
            return f"the last call of `{tool}` was not done ({why}){done}"
        return None
    if end in ("escalated", "exhausted") or not effects:
        return None
    return f"it ends as {end}, and {_named(effects)} had an effect"


def _named(effects: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(str(one["capability_id"]) for one in effects))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"`{name}`" for name in names[:3]) + more
