"""The console: pages for approvers, operators and auditors, at `/console`, without any power of its own.

A page reads what `/v1` reads, by the same rules of access, and an act goes through `/v1` with the person's signature.
Reading works without scripts. No page sends a request to another host, and none has an inline script or style.

Tests: `tests/unit/server/console`, `tests/attacks/test_h14_the_console.py`, `tests/e2e/test_console.py`,
`tests/e2e/test_numbers_of_the_console.py`, `benchmarks/console.py`.
"""
