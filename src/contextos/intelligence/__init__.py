"""The Intelligence plane: what is known. Evidence from the tenant's graph at a pinned snapshot, and promoted memory.

Owns: the way from edges to evidence (`retrieval`): which items a query finds within its hop, fan-out and size budgets,
and which of them answers a named requirement; the life of a memory (`memory`): proposal, review, promotion or
rejection, recall.

Does not own: storage (`Graph`, `Store`), what may be exposed (`trust`), what fits the prompt (`context`), or the
statements themselves: nothing here writes to the graph, and no run can write what recall can see.

Invariants, with the tests that prove them:

- The same query at the same snapshot gives the same items in the same order, whatever is committed later.
  `tests/unit/intelligence/test_retrieval.py`
- A name is given only where the whole path is trusted, seen in full and unambiguous; conflict, doubt, cut-off and age
  leave the requirement unmet. `test_retrieval.py`
- Only promoted memory is recalled; nothing is promoted but by a reviewer's act, under compare-and-set.
  `tests/unit/intelligence/test_memory.py`
- A contradiction is a typed refusal and never a silent overwrite; a rejection is remembered. `test_memory.py`
"""
