"""Commands for authors of packs and for auditors.

Authors: `apply`, `pack`, `policies`, `schemas`, `simulate`, `memory` (review what runs propose to remember). Auditors:
`verify`, `replay`, `runs export` and `erase`. Tests: `tests/unit/cli/governance`.
"""
