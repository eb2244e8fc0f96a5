"""The control plane: governed artifacts of one tenant, from publishing to the exact set that a run is pinned to.

Owns: the catalog (`catalog`): signed, immutable versions of packs, catalogs and policy bundles, which policies are
active, withdrawal, pins and loading by digest; its documents read back and cached (`shelf`); which exact set a run gets
(`pinning`); the kinds of artifact and how they are merged (`artifacts`); lint of the binding graph that every pack has
to satisfy (`graph`, `lint`, `lint_templates`).

Does not own: signatures (`trust.seal`, injected), the meaning of rules (`trust.policy`), capabilities (Action), or
storage.

Invariants, with the tests that prove them:

- A ref maps to one content address for ever; other bytes under it are refused: `tests/unit/control/test_catalog.py`.
- What is loaded has the digest that was pinned and a signature that holds, or nothing is loaded: `test_catalog.py`.
- A pin that cannot be resolved in full is a recorded refusal, never a partial set: `test_pin.py`.
- A withdrawn artifact pins nothing new, and old runs still replay: `test_pin.py`.
- Every edge of the binding graph is checked; each one broken alone is found: `test_lint.py`.
"""
