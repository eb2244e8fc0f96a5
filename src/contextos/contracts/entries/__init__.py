"""The kinds of journal entries: one row for each (`kinds`), the types of their bodies, and the account that they make.

The rows are in `of_run` (no ledger), `of_context` and `of_model` (context), `of_decision` and `of_effect`; `row` has
their type.
Owns the shape of a body and what is fixed for its kind. Does not own when an entry is written: the journal checks no
body at run time; the simulator and the golden histories check every one.
Tests: tests/unit/contracts/entries/test_bodies.py, test_kinds.py, tests/machines/test_run_table.py.
Source: docs/design/adding.md, "Add a kind".
"""
