"""`policies facts`: print the facts that policy rules can read."""

from __future__ import annotations

from contextos.cli.command_context import JsonOption
from contextos.cli.terminal import print_result


def policies_facts_command(as_json: JsonOption = False) -> int:
    """List the facts that policy rules can read."""
    from contextos.contracts.envelopes.policy import POINTS
    from contextos.contracts.facts import ENVIRONMENTS, FACTS
    from contextos.service.operations.policies import RULE_FACTS

    width = max(len(fact.path) for fact in FACTS)
    lines = [
        f"{fact.path:<{width}}  {fact.type or 'any':<13}  {fact.supplier:<18}  {' '.join(fact.points)}"
        + ("" if fact.always else "  (can be absent)")
        for fact in FACTS
    ]
    body = {
        "facts": [fact.to_json() for fact in RULE_FACTS],
        "points": list(POINTS),
        "environments": list(ENVIRONMENTS),
    }
    print_result(body, lines, as_json=as_json)
    return 0
