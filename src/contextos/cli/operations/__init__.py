"""Commands for operators of a deployment.

`worker`, `dead-letters` and `retry` (runs that failed for good), `breakers` (tools that are not called after failures),
`migrate` (database schemas), `restored` (record a restore from a backup). Tests: `tests/unit/cli/operations`.
"""
