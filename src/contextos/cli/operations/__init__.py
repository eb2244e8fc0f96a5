"""Commands for operators of a deployment.

`worker`, `serve`, `runs dead-letters`, `runs retry` (runs that failed for good), `breakers list` (tools that failed too
often), `key`, `token`, `models`, `ops`, `ask`, `store migrate` (schemas), `store restored` (record a restore).
Tests: `tests/unit/cli/operations`.
"""
