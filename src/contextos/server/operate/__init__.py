"""The routes by which people operate a tenant: search, reasons, settlements, replays, exports, and what is stuck.

What changes something needs the signature of the person's own key: `…/statement` returns what exactly is signed, and
the same body with `token` does it. A bearer token alone changes nothing.
Tests: `tests/unit/server/operate`, `tests/attacks/test_f49_http_operations.py`.
"""
