"""A settlement has the call and the outcome in clear, and is shown escaped."""

from __future__ import annotations

from contextos.contracts.statements.settlements import settlement_statement, settlement_text
from tests.unit.trust.approvals.test_settlement import sent, settled


def test_the_operator_is_shown_the_call_and_what_they_state() -> None:
    said = "\n".join(settlement_text(settlement_statement("t", sent("run_1", "tool_1"), settled())))
    for part in ("adp.pay (destructive)", "amount", "user:ana", '{"id": 1}', "artifact:books#rev_1", "olga"):
        assert part in said
    hostile = settlement_statement("t", sent("run_1", "tool_1"), settled(output={"a": "\u202e"}))
    assert "\u202e" not in "\n".join(settlement_text(hostile))


def test_an_argument_is_a_line_of_its_own_and_looks_like_no_other_line() -> None:
    statement = settlement_statement("t", sent("run_1", "tool_1"), settled()) | {"args": {"happened": "no", "call": 1}}
    lines = settlement_text(statement)
    assert [one for one in lines if '"happened"' in one or '"call"' in one] == ['  "happened" no', '  "call"     1']
    assert sum(one.startswith("  happened ") for one in lines) == 1
