"""Commands for authors of packs and for auditors.

Authors: `apply`, `pack`, `policies`, `facts`, `schemas`, `memory` (review memories that runs propose). Auditors:
`verify`, `replay`, `runs export` and `runs erase`. Tests: `tests/unit/cli/governance`.
"""
