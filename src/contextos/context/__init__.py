"""The Context plane compiles what a model can see and use in one run.

Owns: the inputs of a compile (`inputs`) and its eight stages (`compiler`); token budgets (`budget`); the surface
(`surface`); the controls in force (`controls`); blocks and how text is delimited in them (`blocks`, `sources`); the
plain texts of the prompt (`prompt`); the default token estimator (`estimator`).

Does not own: retrieval and recall (Intelligence), policy decisions (Trust), registry and permissions (Action), or the
plan (Decision). Their results are arguments here; the compiler receives no port.

Invariants, and the tests that prove them:

- Equal inputs give equal bytes, in any order, process, locale or time zone: `tests/unit/context/test_determinism.py`.
- A bucket never holds more than its allocation, and all buckets together never more than `total_tokens`. No block is
  cut, and every dropped block is listed with the reason: `tests/unit/context/test_budget.py`,
  `tests/differential/test_budget.py`.
- A required block is never dropped. If one does not fit, the compile fails with `budget_exhausted`:
  `tests/unit/context/test_budget.py`.
- A capability that is not granted, has no policy decision, is above the ceiling or is not active is not surfaced:
  `tests/unit/context/test_surface.py`.
- External text is data and cannot leave its block or forge another: `tests/unit/context/test_injection.py`.
- `compiled_context_hash` covers prompt, manifests but `trace_context`, controls and budget report. Each stage has its
  own digest, so the first difference in a replay names the stage: `tests/unit/context/test_compiler.py`.
"""
