"""Checks rows of the stores: only those that the journal, or a signature of the runtime, proves are believed.

A row is a quick way to find what runs and people did, and a writer of the database can alter it.
Tests: tests/unit/trust/rows, tests/attacks/test_c17_rows_that_nobody_signed.py,
tests/attacks/test_g60_sums_that_nobody_signed.py.
Source: docs/design/rows.md.
"""
