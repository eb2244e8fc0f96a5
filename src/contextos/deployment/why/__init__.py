"""Why a run did what it did: for each tool why it was shown or hidden, asked about or denied, and who authorised it.

- `explaining`: the reasons as sentences, each with the journal entry that it rests on; a pure function of the entries
  and of the rules that the run is pinned to.
- `fact_values`: the values of the facts that a rule read, as far as the journal has them.
- `checked_reasons`: the reasons for a run that was read and verified.

Invariants, with the tests that prove them:

- Each sentence names an entry that exists, and text of tools and users is escaped:
  `tests/unit/deployment/why/test_explaining.py`.
- Denied, gated, hidden, approved and refused calls of the shipped examples are explained:
  `tests/unit/cli/runs/test_why.py`.
"""
