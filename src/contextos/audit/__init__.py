"""Audit: verify a tenant's journal, export runs, and replay them without any external system.

- `verify`: chains, signed heads and witnessed heads of a tenant, or of a range of its runs.
- `checkpoint`: what was verified, signed, so that the next verification starts from there.
- `replay`: drive the same loop from the recorded entries and compare every derived entry byte for byte.
- `export`, `exported`: runs with what proves them, which anyone can verify and replay with public keys.

Does not own: how entries are chained and heads are signed (`trust.journal`), or when heads are published to a witness
(`deployment.witness`).

Invariants, with the tests that prove them:

- A changed journal is found, and the entry is named: `tests/e2e/test_tamper.py`.
- What a verification does not read again was verified, and it says so:
  `tests/attacks/test_c16_incremental_verification.py`.
- Any changed byte of an export is refused with a typed error: `tests/e2e/test_hostile_exports.py`.
- An altered export passes only where `docs/reference/export.md` says so:
  `tests/attacks/test_g64_an_altered_export_passes_only_where_the_page_says_so.py`.
- Recorded runs replay equal, and known bad ones are refused: `tests/golden/test_golden.py`.
"""
