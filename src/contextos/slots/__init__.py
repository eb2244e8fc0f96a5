"""Typed context slots: what a slot may take, who picks, and what is pinned.

Owns the resolver (`resolve`), selection by nobody or by a person (`select`), what the two steps of the selection agent
do (`desk`), and the reading and judging of an agent's own declaration (`documents`, `oas`; `components`, `names`,
`selection_node`, `selection_flow`, `consumers`, `wiring`, `package`). Does not own artifacts (the ports `Artifacts` and
`Curation`), nor whether a run has a slot at all: nothing here wires a slot by itself, it is resolved where a task
template or an agent's flow has a step for it.

Invariants, and the tests that prove them (`tests/unit/slots`, `tests/differential/test_slots.py`):
a project that is not the actor's resolves to nothing and asks the store nothing; the order is total, so override is
deterministic; of a person's answer the triples are read and nothing else, and each is looked up among what the actor
may see now; every act leaves a header, an empty one too; an old pin reads the same bytes for ever.
"""
