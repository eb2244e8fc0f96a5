"""The routes by which people govern a tenant, beside the table of operations: drafts of packs, recorded sessions,
publication, and the artifacts that a slot can take.

Reading needs a role of the tenant's directory. An act needs the signature of the person's own key: `…/statement`
returns what exactly is signed, and the same body with `tokens` does it. A bearer token alone changes nothing.
Packs are expanded, linted and tested in child processes (`children`), so that no document holds up the server.
Tests: `tests/unit/server/control`, `tests/attacks/test_f48_http_control.py`.
"""
