"""Commands for authors of packs and for auditors.

Authors: `lint`, `schemas`, `simulate`, `memory` (review what runs propose to remember). Auditors: `verify`, `replay`,
`export`. Tests: `tests/unit/cli/governance`.
"""
