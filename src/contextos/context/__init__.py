"""The Context plane: what a model may see and use in one run.

Owns: the eight stages of a compile (`compiler`), token budgets (`budget`), the surface (`surface`), the controls in
force (`controls`), blocks and their delimiting (`blocks`, `sources`), the plain texts of the prompt (`prompt`), stage
digests and what is emitted (`emission`), the default token estimator (`estimator`).

Does not own: retrieval and recall (Intelligence), policy decisions (Trust), registry and permissions (Action), the
plan (Decision). Their answers are arguments here; the compiler is handed no port and no seam.

Invariants, and the tests under `tests/unit/context` that prove them:

- The same input gives the same bytes, in any order, process, locale or time zone: `test_determinism.py`.
- A bucket never holds more than its allocation, and all together never more than `total_tokens`; nothing is cut, and
  what is dropped is listed with the reason: `test_budget.py`, `tests/differential/test_budget.py`.
- A required block is never dropped; a compile where one does not fit is `budget_exhausted`: `test_budget.py`.
- What is not granted, not decided, above the ceiling or not active is not surfaced: `test_surface.py`.
- Text from outside is data and cannot leave its block or forge another: `test_injection.py`.
- `compiled_context_hash` covers prompt, manifests, controls and budget report; each stage has a digest of its own, so
  that a replay difference names the stage: `test_compiler.py`.
"""
