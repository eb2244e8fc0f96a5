"""The control plane: the governed artifacts of one tenant, from publishing to the exact set that a run is pinned to.

Owns: the catalog (`catalog`), which publishes signed, immutable versions of packs, catalogs and policy bundles,
activates policies, withdraws, pins and loads; reading and caching its documents (`artifact_repository`); resolving the
exact set of a run (`pinning`); the kinds of artifact and how they are merged (`artifacts`); lint of the binding graph
of every pack (`lint`).

Does not own: signatures (`trust.seal`, injected), the meaning of rules (`trust.policy`), capabilities (Action), or
storage.

Invariants, with the tests that prove them:

- A ref maps to one content address for ever; different content under the same ref is refused:
  `tests/unit/control/test_catalog.py`.
- A loaded artifact has the pinned digest and a valid signature: `tests/unit/control/test_catalog.py`.
- A set that cannot be resolved completely is a recorded refusal, never a partial set:
  `tests/unit/control/test_pinning.py`.
- New runs cannot pin a withdrawn artifact, and old runs still replay: `tests/unit/control/test_pinning.py`.
- Every edge of the binding graph is checked; each edge broken alone is found: `tests/unit/control/lint/test_pack.py`.
"""
