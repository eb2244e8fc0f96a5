"""The Intelligence plane finds evidence in the tenant's graph at a pinned snapshot, and recalls promoted memory.

Owns: retrieval (`retrieval`), which finds evidence within the hop, fan-out and size limits of a query and decides which
item answers a named requirement; the life of a memory (`memory`): proposal, review, promotion or rejection, recall.

Does not own: storage (`Graph`, `Store`), what can be exposed (`trust`), what fits the prompt (`context`), or the
statements themselves: nothing here writes to the graph, and no run can write what recall reads.

Invariants, with the tests that prove them:

- The same query at the same snapshot returns the same items in the same order, whatever is committed later:
  `tests/unit/intelligence/test_retrieval.py`.
- An item gets a requirement's name only if its whole path is trusted, completely visible and unambiguous. Conflicting,
  untrusted, cut-off and stale items leave the requirement unmet: `tests/unit/intelligence/test_retrieval.py`.
- Only promoted memory is recalled, and only a reviewer's decision promotes it, under compare-and-set:
  `tests/unit/intelligence/test_memory.py`.
- A contradiction is a typed refusal and never a silent overwrite, and a rejection is remembered:
  `tests/unit/intelligence/test_memory.py`.
"""
