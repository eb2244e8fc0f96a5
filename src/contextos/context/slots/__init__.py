"""Typed context slots: what a slot accepts, who selects, and what is pinned.

Owns: the resolver (`resolve`); selection, autonomous or by a person (`select`); the one path to a recorded selection
(`steps`); the slots that an agent's document declares (`oas`).

Does not own: artifacts (the ports `Artifacts` and `Curation`); the lint of agents and their flows (the distribution
`contextos-agentspec`); or whether a run has a slot: a slot is resolved only where a task template or an agent's flow
has a step for it.

Invariants, with the tests that prove them:

- A project that is not the actor's resolves to nothing, without a query: `tests/unit/context/slots/test_gate.py`.
- Candidates are in a total order, so `override` is deterministic: `tests/differential/test_slots.py`.
- Only the ref triples of a person's answer are read, and each is looked up among the artifacts the actor can see now:
  `tests/unit/context/slots/test_select.py`.
- Every selection leaves a header, also an empty one; an old pin reads the same bytes for ever:
  `tests/unit/context/slots/test_append_only.py`.
"""
