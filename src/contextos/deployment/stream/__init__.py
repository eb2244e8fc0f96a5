"""The events of one run for a reader that watches it: a pure function of its journal. A reader can resume anywhere.

- `vocabulary`: the events that each kind of entry becomes, under the names of AG-UI if one fits.
- `folding`: the events of a run in order, each with its id, and the position that an id names.

Does not own: the transport (server-sent events), or who is allowed to read a run.

Invariants, with the tests that prove them:

- A stream that is cut after any event and resumed has no gap and no duplicate, also after an erasure, and the events
  of a run that goes on are those it had before, and more: `tests/unit/deployment/stream/test_folding.py`.
- Every kind of entry is in the vocabulary, and nothing that a redaction rule names is in an event:
  `tests/unit/deployment/stream/test_vocabulary.py`.
"""
