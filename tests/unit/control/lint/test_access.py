"""Who may do what: each finding, and its silence where nothing is wrong or nothing is known."""

from __future__ import annotations

from contextos.contracts.envelopes.identity import HeldRoles
from contextos.control.artifacts import merge
from contextos.control.lint.access import lint_access
from tests.attacks.lint_corpus import GATE, OF_ACCESS
from tests.unit.control.example import adapters, pack

HELD = HeldRoles(users=("support_agent", "support_lead"), approvers=("finance_lead",))


def codes(changes: dict[str, object], *, known: bool = True) -> list[str]:
    found = lint_access(merge(pack(changes)), adapters() if known else None, HELD if known else None)
    return sorted({problem.code for problem in found})


def test_the_example_has_no_finding() -> None:
    assert codes({}) == codes({}, known=False) == []


def test_each_fault_is_found_and_what_needs_the_workspace_waits_for_it() -> None:
    assert {name: codes(fault[0]) for name, fault in OF_ACCESS.items()} == {
        name: [fault[2]] for name, fault in OF_ACCESS.items()
    }
    assert codes({f"{GATE}/required_approver_role": "nobody"}, known=False) == []


def test_a_step_that_requires_a_gate_is_a_check() -> None:
    changes = OF_ACCESS["a destructive capability that nothing checks"][0]
    gated = {"/decision_layer/task_templates/0/steps/2/requires": ["GATE_FINANCE_APPROVAL"]}
    assert codes({**changes, **gated}) == []


def test_a_prohibited_capability_needs_no_permission_and_no_gate() -> None:
    changes = OF_ACCESS["a destructive capability that nothing checks"][0]
    assert codes({**changes, "/tooling_layer/prohibitions": ["adp_payments.issue_refund"]}) == []
