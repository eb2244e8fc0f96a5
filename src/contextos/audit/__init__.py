"""Audit: verify a tenant's journal, export runs, and replay them without any of the outside.

- `verify`: chains, signed heads and witnessed heads of a tenant.
- `replay`: drive the same loop from the recorded entries and compare every derived entry byte for byte.
- `export`: runs and the artifacts they pin, readable by somebody who has nothing of ours but a public key.
"""
