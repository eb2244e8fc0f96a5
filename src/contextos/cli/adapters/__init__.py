"""Commands on adapters of foreign servers: draft a file, publish it, and see whether the servers still match.

Nothing is active before `adapters publish`. Tests: `tests/unit/cli/adapters`.
"""
