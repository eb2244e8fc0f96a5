"""The events of one run for who watches it: a pure function of its journal, from which a reader can resume anywhere.

- `vocabulary`: which events an entry of each kind is, under the names of AG-UI where one fits.
- `folding`: the events of a run in order, each with its id, and the position that an id names.

Does not own: the transport (server-sent events), or who is allowed to read a run.

Invariants, with the tests that prove them:

- A stream that is cut after any event and resumed has no gap and no duplicate, also after an erasure, and the events
  of a run that goes on are those it had before, and more: `tests/unit/deployment/stream/test_folding.py`.
- Every kind of entry is in the vocabulary, and nothing that a redaction rule names is in an event:
  `tests/unit/deployment/stream/test_vocabulary.py`.
"""
