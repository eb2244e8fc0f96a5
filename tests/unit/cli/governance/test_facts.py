"""`contextos policies facts` prints the vocabulary, as text and as JSON."""

from __future__ import annotations

from contextos.contracts.envelopes.policy import POINTS
from contextos.contracts.facts import ENVIRONMENTS, FACTS


def test_facts_are_printed_as_declared(say) -> None:
    printed = say("policies", "facts", "--json").json
    assert [(one["path"], one["type"], tuple(one["points"])) for one in printed["facts"]] == [
        (fact.path, fact.type, fact.points) for fact in FACTS
    ]
    assert (printed["points"], printed["environments"]) == ([*POINTS], [*ENVIRONMENTS])
    lines = say("policies", "facts").out.splitlines()
    assert [line.split()[0] for line in lines] == [fact.path for fact in FACTS]
