"""The policy engine: bundles of rules compile to a `PolicySet`, which decides as a pure function of the facts.

In the order of their use: `rules` compiles bundles (with `conditions`, `operators` and `constraints`), `rule_index`
selects the rules that apply, `rule_evaluation` evaluates them, `decision_combining` makes one decision of the results,
and `policy_set` is the entry point. Does no I/O and does not collect facts.

Tests: `tests/unit/trust/policy/test_policy_set.py`, `tests/unit/trust/policy/test_rules.py`,
`tests/unit/trust/policy/test_conditions.py`, `tests/unit/trust/policy/test_rule_evaluation.py`,
`tests/unit/trust/policy/test_constraints.py`, and `tests/differential/test_policy.py` against a naive reference.
"""
