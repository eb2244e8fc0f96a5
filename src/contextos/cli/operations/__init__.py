"""Commands for operators of a deployment.

`worker`, `runs dead-letters` and `runs retry` (runs that failed for good), `breakers list` (tools that are not called
after failures), `key`, `store migrate` (database schemas), `store restored` (record a restore from a backup).
Tests: `tests/unit/cli/operations`.
"""
