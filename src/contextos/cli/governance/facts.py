"""`policies facts`: print the facts that policy rules can read."""

from __future__ import annotations

from contextos.cli.command_context import JsonOption
from contextos.cli.terminal import print_result


def policies_facts_command(as_json: JsonOption = False) -> int:
    """List the facts that policy rules can read."""
    from contextos.contracts.facts import CALLED_POINTS, ENVIRONMENTS, FACTS

    width = max(len(fact.path) for fact in FACTS)
    lines = [
        f"{fact.path:<{width}}  {fact.type or 'any':<13}  {fact.supplier:<18}  {' '.join(fact.points)}"
        + ("" if fact.always else "  (can be absent)")
        for fact in FACTS
    ]
    documents = [
        {
            "path": fact.path,
            "type": fact.type,
            "supplier": fact.supplier,
            "points": list(fact.points),
            "always": fact.always,
            "asserted": fact.asserted,
        }
        for fact in FACTS
    ]
    body = {"facts": documents, "points": list(CALLED_POINTS), "environments": list(ENVIRONMENTS)}
    print_result(body, lines, as_json=as_json)
    return 0
