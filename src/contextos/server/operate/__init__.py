"""The routes by which people operate a tenant, beside the table of operations: reasons, verifications, the keys of
exports and metrics. `work` runs long jobs.

Tests: `tests/unit/server/operate`, `tests/attacks/test_f49_http_operations.py`.
"""
